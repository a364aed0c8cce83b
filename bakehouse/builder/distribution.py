"""Builds on several builders at the same time. Steps that their images share run only once.

One builder runs the shared steps. Their results travel through the session of buildx to a directory of this
machine, as caches of BuildKit. The other builders read missing results from there. So builders need no route
to each other and no registry.
"""

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from bakehouse.builder.build_steps import CACHE_EXPORT, BuildStep, StepKey, part_of
from bakehouse.builder.remote_builders import RemoteBuilders
from bakehouse.builder.schedule import Estimates, Schedule, step_seconds
from bakehouse.engine import buildx
from bakehouse.engine.builder_watch import Watch
from bakehouse.engine.buildkit_errors import ImagesFailed
from bakehouse.engine.oci_layout import OciLayout
from bakehouse.util.files import matching_paths, read_bytes, write_whole
from bakehouse.util.format import format_names
from bakehouse.util.json_reader import parse_json
from bakehouse.util.terminal import Reporter

_TICK_SECONDS = 0.25

Bake = Callable[[str, Sequence[buildx.Target], Callable[[], None]], dict[str, buildx.BakedImage]]
"""Builds targets on a builder, and repeatedly calls a function whose exceptions stop the build."""
Take = Callable[[Mapping[str, buildx.BakedImage]], object]
"""Receives built images."""


class _Stopped(Exception):
    """The build was interrupted."""


@dataclass
class DistributedBuild:
    """A build of images, given by their steps, on the builders of a schedule."""

    steps: Mapping[str, Sequence[BuildStep]]
    schedule: Schedule
    builders: RemoteBuilders
    directory: Path
    """State of remote builds."""
    results: OciLayout
    """Results of shared steps, each with the key of the step as its tag."""
    _stop: threading.Event = field(default_factory=threading.Event)
    _passed_on: frozenset[StepKey] = frozenset()
    """Steps that can be read from the layout, with all steps below them."""

    def run(self, targets: Sequence[buildx.Target], bake: Bake, take: Take) -> None:
        """Build each target on its builder. Raises ImagesFailed for failed ones after building the others."""
        by_name = {target.name: target for target in targets}
        if self.schedule.shared and not self._passed_on:
            self._run_all([partial(self._run_shared, by_name, bake)])
        self._run_all(
            [
                partial(self._run_share, builder, share, bake, take)
                for builder, names in self.schedule.shares.items()
                if (share := [by_name[name] for name in names if name in by_name])
            ]
        )

    def _run_shared(self, targets: Mapping[str, buildx.Target], bake: Bake) -> None:
        """Run the shared steps on one builder and receive their results."""
        parts = dict(self._parts(targets))
        try:
            self._call(self.schedule.first, [*parts.values()], bake)
        except ImagesFailed:
            # Build all images on one builder, which shows the ones that fail
            self.schedule = Schedule({self.schedule.first: tuple(self.steps)}, frozenset(), "", 0.0)
            return
        self._passed_on = frozenset(parts)
        self.results.keep_tags(parts)

    def _parts(self, targets: Mapping[str, buildx.Target]) -> Iterator[tuple[StepKey, buildx.Target]]:
        """Yield a target that ends with a shared step, for each shared step that no other one builds on."""
        shared = {
            step.key: (name, step)
            for name in targets
            for step in self.steps[name]
            if step.key in self.schedule.shared
        }
        below = {key for _, step in shared.values() for key in step.needs if key != step.key}
        last = [(key, name, step) for key, (name, step) in shared.items() if key not in below]
        for number, (key, name, step) in enumerate(last):
            target, cache = targets[name], f"{self._cache('dest', key)},{CACHE_EXPORT}"
            part = part_of(target, target.dockerfile, step, name=f"bakehouse-shared-{number}", cache_to=cache)
            yield key, part

    def _run_share(self, builder: str, targets: Sequence[buildx.Target], bake: Bake, take: Take) -> None:
        """Build the images of one builder."""
        readers = []
        for target in targets:
            keys = {step.key for step in self.steps[target.name]}
            caches = tuple(self._cache("src", key) for key in sorted(self._passed_on & keys))
            readers.append(replace(target, cache_from=caches))
        used, images = self._call(builder, readers, bake)
        take(images)
        for target in targets:
            record_steps(self.directory, used, target.name, self.steps[target.name])

    def _call(
        self, builder: str, targets: Sequence[buildx.Target], bake: Bake
    ) -> tuple[str, dict[str, buildx.BakedImage]]:
        """Build targets on a builder, or another one if it is lost; return the builder and the images."""

        def call(name: str, watched: Watch) -> tuple[str, dict[str, buildx.BakedImage]]:
            def check() -> None:
                watched.require()
                if self._stop.is_set():
                    raise _Stopped

            return name, bake(name, targets, check)

        return self.builders.run(builder, call)

    def _cache(self, direction: str, key: StepKey) -> str:
        return f'type=local,"{direction}={self.results.directory.absolute()}",tag={key}'

    def _run_all(self, calls: Sequence[Callable[[], None]]) -> None:
        """Run functions at the same time, and stop them at an interrupt. Raises one error for all."""
        with ThreadPoolExecutor(len(calls)) as threads:
            results = [threads.submit(call) for call in calls]
            try:
                # Python handles a signal that another thread received only between such calls
                while wait(results, _TICK_SECONDS).not_done:
                    continue
            except BaseException:
                self._stop.set()
                raise
        errors = [error for result in results if (error := result.exception())]
        failures = [error for error in errors if isinstance(error, ImagesFailed)]
        for error in errors:
            if not isinstance(error, ImagesFailed):
                raise error
        if failures:
            raise ImagesFailed(
                *(diagnostic for failure in failures for diagnostic in failure.diagnostics),
                images=frozenset().union(*(failure.images for failure in failures)),
                steps=[step for failure in failures for step in failure.steps],
                is_network_failure=all(failure.is_network_failure for failure in failures),
            )


def distribute(
    steps: Mapping[str, Sequence[BuildStep]],
    builders: RemoteBuilders,
    directory: Path,
    measured: Mapping[tuple[str, str], float],
    report: Reporter,
) -> DistributedBuild:
    """Distribute images over the available builders; `measured` has seconds by image and stage.

    Raises EngineError if no builder is available.
    """
    estimates = Estimates(
        {name: frozenset(step.key for step in of_image) for name, of_image in steps.items()},
        step_seconds(steps, measured),
        recorded_steps(directory),
    )
    schedule = estimates.distribute(builders.available())
    for builder, names in schedule.shares.items() if len(schedule.shares) > 1 else ():
        report(f"`{builder}` builds {format_names(names)}")
    if schedule.first:
        report(f"`{schedule.first}` first runs the steps that these images share")
    return DistributedBuild(steps, schedule, builders, directory, OciLayout(directory / "shared"))


def record_steps(directory: Path, builder: str, image: str, steps: Sequence[BuildStep]) -> None:
    """Record that the cache of a builder has the steps of an image."""
    content = {"builder": builder, "steps": [step.key for step in steps]}
    write_whole(directory / "built" / f"{image}.json", json.dumps(content) + "\n")


def recorded_steps(directory: Path) -> dict[str, set[StepKey]]:
    """Return the steps in the cache of each builder, as recorded by the last build of each image."""
    steps: dict[str, set[StepKey]] = {}
    for path in matching_paths(directory / "built", "*.json"):
        try:
            content = parse_json(read_bytes(path))
            steps.setdefault(str(content["builder"]), set()).update(map(StepKey, content["steps"]))
        except (OSError, ValueError, KeyError, TypeError):
            # It is only used for an estimate, and the next build replaces it
            continue
    return steps
