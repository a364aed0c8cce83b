"""Builds on several builders at the same time. Steps that their images share run only once.

One builder runs the shared steps. Their results travel through the session of buildx to a directory of this
machine, as caches of BuildKit. The other builders read missing results from there. So builders need no route
to each other and no registry.
"""

import json
import math
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from bakehouse.builder.build_steps import CACHE_EXPORT, BuildStep, StepKey, part_of
from bakehouse.builder.remote_builders import RemoteBuilders
from bakehouse.engine import buildx
from bakehouse.engine.builder_watch import Watch
from bakehouse.engine.buildkit_errors import ImagesFailed
from bakehouse.engine.oci_layout import OciLayout
from bakehouse.util.files import matching_paths, read_bytes, write_whole
from bakehouse.util.format import format_names
from bakehouse.util.json_reader import parse_json
from bakehouse.util.terminal import Reporter

PASS_ON_SECONDS = 5.0
"""Estimated time to send the results of shared steps to another builder, after they ran."""
_UNMEASURED_SECONDS = 10.0
"""Estimated time of a stage that no recorded build ran."""

_Shares = Mapping[str, tuple[str, ...]]
"""Names of images by builder."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Images by builder, and the steps that run first because images on several builders share them."""

    shares: Mapping[str, tuple[str, ...]]
    """Names of images by builder, for builders that get any."""
    shared: frozenset[StepKey]
    first: str
    """The builder that runs the shared steps; empty if there are none."""
    seconds: float
    """Estimated time until all images are built."""


@dataclass(frozen=True, slots=True)
class Estimates:
    """Estimated times of builds. A builder runs its steps one after the other.

    In fact steps run in parallel, but they share the builder's processors, disk and network.
    """

    images: Mapping[str, frozenset[StepKey]]
    """The steps of each image, with all steps that they build on."""
    seconds: Mapping[StepKey, float]
    finished: Mapping[str, Collection[StepKey]]
    """Steps in the caches of builders."""

    def distribute(self, builders: Sequence[str]) -> Schedule:
        """Assign each image to a builder, so that the last builder finishes early.

        If estimates are equal, the assignment with the least total work is selected, then the first one by
        the order of `builders`.
        """
        shares: _Shares = {}
        for name in sorted(self.images, key=lambda name: (-self._total(self.images[name]), name)):
            candidates = [{**shares, builder: (*shares.get(builder, ()), name)} for builder in builders]
            shares = min(candidates, key=lambda shares: (self.schedule(shares).seconds, self._work(shares)))
        on_one = [self.schedule({builder: tuple(self.images)}) for builder in builders]
        return min([self.schedule(shares), *on_one], key=lambda schedule: schedule.seconds)

    def schedule(self, shares: _Shares) -> Schedule:
        """Return the schedule of an assignment of images."""
        steps = self._steps(shares)
        users = Counter(step for of_builder in steps.values() for step in of_builder)
        shared = frozenset(step for step, count in users.items() if count > 1)
        first = min(steps, key=lambda builder: self._cost(builder, shared)) if shared else ""
        passed_on = self._cost(first, shared) + PASS_ON_SECONDS if shared else 0.0
        ends = [self._cost(builder, of_builder - shared) for builder, of_builder in steps.items()]
        return Schedule(shares, shared, first, passed_on + max(ends, default=0.0))

    def _steps(self, shares: _Shares) -> dict[str, frozenset[StepKey]]:
        """Return the steps of the images of each builder."""
        return {
            builder: frozenset().union(*(self.images[name] for name in names))
            for builder, names in shares.items()
        }

    def _work(self, shares: _Shares) -> float:
        return sum(self._cost(builder, steps) for builder, steps in self._steps(shares).items())

    def _cost(self, builder: str, steps: frozenset[StepKey]) -> float:
        """Return the time of the steps that a builder does not have."""
        return self._total(steps.difference(self.finished.get(builder, ())))

    def _total(self, steps: frozenset[StepKey]) -> float:
        # `sum` depends on the order of a set, which differs between processes.
        return math.fsum(self.seconds[step] for step in steps)


def step_seconds(
    images: Mapping[str, Sequence[BuildStep]], measured: Mapping[tuple[str, str], float]
) -> dict[StepKey, float]:
    """Estimate the seconds of steps from measured seconds of stages, by image and stage.

    If a stage was not measured for the image, its time in another image is used.
    """
    by_stage = {stage: value for (_, stage), value in sorted(measured.items())}
    seconds: dict[StepKey, float] = {}
    for image, steps in images.items():
        counts = Counter(step.stage for step in steps)
        for step in steps:
            known = measured.get((image, step.stage), by_stage.get(step.stage, _UNMEASURED_SECONDS))
            seconds.setdefault(step.key, known / counts[step.stage])
    return seconds


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
