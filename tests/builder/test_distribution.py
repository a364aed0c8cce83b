"""Builds on several builders, which only record the targets that they get."""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from bakehouse.builder import distribution
from bakehouse.builder.build_steps import read_steps
from bakehouse.builder.distribution import DistributedBuild, recorded_steps
from bakehouse.builder.remote_builders import RemoteBuilders
from bakehouse.engine.builder_watch import Watch, lost
from bakehouse.engine.buildkit_errors import ImagesFailed
from bakehouse.engine.buildx import BakedImage, Target
from bakehouse.errors import BuildError, Diagnostic
from bakehouse.util.oci import Digest

BAKED = BakedImage(Digest("sha256:aa"), Digest("sha256:ac"))
MEASURED = {(name, "own"): 60.0 for name in ("one", "two")}


def dockerfile(name: str) -> str:
    """Return a Dockerfile whose steps are all shared, but the last."""
    return (
        "FROM base AS tools\nRUN a\nFROM tools AS shared\nRUN b\n"
        f"FROM tools AS own\nRUN {name}\nFROM base\n"
        "COPY --link --from=shared / /\nCOPY --link --from=own / /\n"
    )


class Builders:
    """Two builders, `far` and `near`."""

    def __init__(self, directory: Path, names: Sequence[str] = ("one", "two")) -> None:
        self.directory = directory
        self.lines: list[str] = []
        self.calls: list[tuple[str, list[Target]]] = []
        self.built_on: dict[str, str] = {}
        self.taken: dict[str, list[str]] = {}
        """Images by the builder that built them."""
        self.failing: dict[str, Exception] = {}
        """The next error of a builder."""
        self.builders = RemoteBuilders(
            ["far", "near"],
            self.lines.append,
            lambda name: None,
            lambda name: contextlib.nullcontext(Watch(name)),
        )
        self.targets = [Target(name, name, Path(name), dockerfile=dockerfile(name)) for name in names]
        self.steps = {name: read_steps(dockerfile(name), directory, directory) for name in names}

    def distribute(self, measured: Mapping[tuple[str, str], float] = MEASURED) -> DistributedBuild:
        return distribution.distribute(self.steps, self.builders, self.directory, measured, self.lines.append)

    def run(self, distributed: DistributedBuild, targets: Sequence[Target] | None = None) -> None:
        distributed.run(self.targets if targets is None else targets, self.bake, self.take)

    def bake(
        self, builder: str, targets: Sequence[Target], check: Callable[[], None]
    ) -> dict[str, BakedImage]:
        self.calls.append((builder, [*targets]))
        if error := self.failing.pop(builder, None):
            raise error
        if targets[0].part_of:
            (self.directory / "shared").mkdir(exist_ok=True)
            (self.directory / "shared/index.json").write_text('{"manifests": []}')
            return {}
        self.built_on |= {target.name: builder for target in targets}
        return {target.name: BAKED for target in targets}

    def take(self, images: Mapping[str, BakedImage]) -> None:
        for name in images:
            self.taken.setdefault(self.built_on[name], []).append(name)


def failed(name: str) -> ImagesFailed:
    return ImagesFailed(Diagnostic(f"image `{name}` failed"), images=frozenset({name}))


def test_shared_steps_run_on_one_builder_and_the_others_read_their_results(tmp_path: Path) -> None:
    builders = Builders(tmp_path)
    builders.run(builders.distribute())

    (first, [part]), *rest = builders.calls
    shared = builders.steps["one"][1]
    cache = f'"dest={tmp_path}/shared",tag={shared.key}'
    assert first == "far"
    assert (part.stage, part.part_of, part.dockerfile) == (
        "shared",
        "two",
        "FROM base AS tools\nRUN a\nFROM tools AS shared\nRUN b\n",
    )
    assert (
        part.cache_to
        == f"type=local,{cache},mode=max,image-manifest=true,oci-mediatypes=true,compression=zstd"
    )
    assert {builder: [target.name for target in targets] for builder, targets in rest} == builders.taken
    assert builders.taken == {"far": ["one"], "near": ["two"]}
    assert {target.cache_from for _, targets in rest for target in targets} == {
        (f"type=local,{cache.replace('dest', 'src')}",)
    }
    assert builders.lines == [
        "`far` builds `one`",
        "`near` builds `two`",
        "`far` first runs the steps that these images share",
    ]


def test_images_that_one_builder_builds_share_nothing_with_others(tmp_path: Path) -> None:
    builders = Builders(tmp_path)
    builders.run(
        builders.distribute({(name, "tools"): 500.0 for name in ("one", "two")} | {("one", "own"): 1.0})
    )

    assert [(builder, [target.name for target in targets]) for builder, targets in builders.calls] == [
        ("far", ["one", "two"])
    ]
    assert builders.lines == []


def test_one_builder_builds_all_if_a_shared_step_fails(tmp_path: Path) -> None:
    builders = Builders(tmp_path)
    builders.failing["far"] = failed("one")
    builders.run(builders.distribute())

    assert builders.taken == {"far": ["one", "two"]}


def test_a_failed_image_does_not_stop_the_others_and_shared_steps_run_once(tmp_path: Path) -> None:
    builders = Builders(tmp_path)
    distributed = builders.distribute()
    builders.failing["near"] = failed("two")
    with pytest.raises(ImagesFailed) as error:
        builders.run(distributed)
    assert error.value.images == {"two"}
    assert builders.taken == {"far": ["one"]}

    builders.run(distributed, builders.targets[1:])
    assert builders.taken == {"far": ["one"], "near": ["two"]}
    assert [bool(targets[0].part_of) for _, targets in builders.calls] == [True, False, False, False]


def test_the_failures_of_all_builders_are_reported_together(tmp_path: Path) -> None:
    builders = Builders(tmp_path)
    distributed = builders.distribute()
    distributed._passed_on = frozenset({builders.steps["one"][1].key})
    builders.failing = {"far": failed("one"), "near": failed("two")}

    with pytest.raises(ImagesFailed) as error:
        builders.run(distributed)

    assert error.value.images == {"one", "two"}
    assert sorted(diagnostic.message for diagnostic in error.value.diagnostics) == [
        "image `one` failed",
        "image `two` failed",
    ]


def test_another_error_is_raised_after_all_builders_ended(tmp_path: Path) -> None:
    builders = Builders(tmp_path)
    distributed = builders.distribute()
    distributed._passed_on = frozenset({builders.steps["one"][1].key})
    builders.failing = {"far": BuildError("out of order")}

    with pytest.raises(BuildError, match="out of order"):
        builders.run(distributed)

    assert builders.taken == {"near": ["two"]}


def test_the_share_of_a_lost_builder_moves_and_is_recorded_there(tmp_path: Path) -> None:
    builders = Builders(tmp_path)
    distributed = builders.distribute()
    distributed._passed_on = frozenset({builders.steps["one"][1].key})
    builders.failing = {"near": lost("near", "no answer")}
    builders.run(distributed)

    assert builders.lines[-1] == "builder `near` stopped answering; continuing on `far`"
    assert {*recorded_steps(tmp_path)} == {"far"}


def test_the_next_build_prefers_the_builders_that_have_the_steps(tmp_path: Path) -> None:
    builders = Builders(tmp_path)
    builders.run(builders.distribute())
    (tmp_path / "built/damaged.json").write_text("{")
    assert recorded_steps(tmp_path) == {
        builder: {step.key for step in builders.steps[name]}
        for builder, name in (("far", "one"), ("near", "two"))
    }

    builders.builders = RemoteBuilders(
        ["near", "far"],
        builders.lines.append,
        lambda name: None,
        lambda name: contextlib.nullcontext(Watch(name)),
    )
    builders.taken.clear()
    builders.run(builders.distribute({("one", "own"): 60.0, ("two", "own"): 61.0}))
    assert builders.taken == {"far": ["one"], "near": ["two"]}


def test_an_interrupt_stops_all_builders(tmp_path: Path) -> None:
    builders = Builders(tmp_path)
    distributed = builders.distribute()
    distributed._passed_on = frozenset({builders.steps["one"][1].key})
    running = threading.Barrier(2)
    stopped: list[str] = []

    def bake(builder: str, targets: Sequence[Target], check: Callable[[], None]) -> dict[str, BakedImage]:
        running.wait(10)
        if builder == "far":
            signal.raise_signal(signal.SIGINT)
        end = time.monotonic() + 20
        try:
            while time.monotonic() < end:
                check()
                time.sleep(0.01)
        finally:
            stopped.append(builder)
        return {}

    with pytest.raises(KeyboardInterrupt):
        distributed.run(builders.targets, bake, builders.take)

    assert sorted(stopped) == ["far", "near"]
    assert builders.taken == {}
