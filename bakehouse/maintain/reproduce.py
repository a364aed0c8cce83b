"""The `reproduce` task: builds images again on a new engine and compares them."""

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path

from bakehouse.builder.built_image import BuiltImage
from bakehouse.engine import daemon_info, docker, provision
from bakehouse.engine.daemon_paths import CONTAINERD, DaemonPaths
from bakehouse.engine.protocol import Engine
from bakehouse.errors import (
    BuildError,
    Diagnostic,
    DifferenceError,
    EngineError,
    Problems,
    StaleError,
)
from bakehouse.maintain import compare
from bakehouse.maintain.compare import Reproduction, Side
from bakehouse.maintain.isolated_engine import FakeClock, isolated_engine
from bakehouse.pipeline.build import build_plan, manifest_digests, record_layers, runnable_plan
from bakehouse.plan.model import Image
from bakehouse.plan.workspace import Selection, Workspace, select
from bakehouse.publish import signing
from bakehouse.publish.attest import Bundler
from bakehouse.util import process
from bakehouse.util.tempdir import private_directory
from bakehouse.util.terminal import Reporter

STORES = ("overlay2", CONTAINERD)
_SAME_CLOCK = "the same clock, minutes later"


def reproduce(
    selection: Selection, report: Reporter, stores: Sequence[str] = STORES
) -> tuple[Reproduction, ...]:
    """Build images here and on a new engine of each image store; return the differences."""
    plan = runnable_plan(selection, selection.plan, report)
    for image in plan.images:
        for reason in compare.unlocked(image):
            report(f"note: {image.name} is not fully locked: {reason}")
    build_plan(selection, plan, report)
    here = daemon_info.inspect()
    clock = _clock(report)
    reproductions: list[Reproduction] = []
    with contextlib.closing(docker.connect()) as engine:
        first = Side(engine, CONTAINERD if here.containerd_store else here.store)
        for store in dict.fromkeys(stores):
            reproductions += _on(store, clock, first, selection.workspace, plan.images, report)
    return tuple(reproductions)


def require_same(reproductions: Sequence[Reproduction]) -> None:
    """Raise DifferenceError for images that differ."""
    different = [
        compare.diagnostic(reproduction) for reproduction in reproductions if not reproduction.is_same
    ]
    if different:
        raise DifferenceError.of(*different)


def sign(
    workspace: Workspace, reproductions: Sequence[Reproduction], bundler: Bundler, report: Reporter
) -> None:
    """Sign, for each published image, that it was built again with the same digest."""
    names = dict.fromkeys(reproduction.image for reproduction in reproductions)
    for built, digest in manifest_digests(select(workspace, names), report):
        stores = [
            reproduction.store for reproduction in reproductions if reproduction.image == built.image.name
        ]
        signing.sign_rebuild(workspace.project, built.image, digest, stores, bundler, report)


def _clock(report: Reporter) -> FakeClock | None:
    try:
        provision.ensure_compiler(provision.ask_at_terminal, report)
    except EngineError as error:
        report(f"note: the second build uses the same clock: {error}")
        return None
    return FakeClock()


def _on(
    store: str,
    clock: FakeClock | None,
    first: Side,
    workspace: Workspace,
    images: Sequence[Image],
    report: Reporter,
) -> list[Reproduction]:
    clock_text = f"{clock.days} days ahead" if clock else _SAME_CLOCK
    with (
        private_directory(workspace.project.state) as directory,
        isolated_engine(store, report, clock) as paths,
    ):
        report(f"building again on an engine with the {store} store, its clock {clock_text}")
        _build_again(paths, workspace.project.root, directory, [image.name for image in images])
        with contextlib.closing(docker.connect(paths.endpoint)) as engine:
            require_same_recipes(images, engine)
            state = workspace.project.state
            stored = [(image, engine.image(image.reference)) for image in images]
            again = [BuiltImage.stored_as(found, image, engine, state) for image, found in stored if found]
            # Another layer of a step makes its images not reproducible, on all pages
            record_layers(workspace.project, again, engine)
            return [
                compare.compare(
                    image,
                    first,
                    Side(engine, store),
                    clock=f"clock {clock_text}" if clock else clock_text,
                    templates=workspace.templates,
                    directory=directory / "differing" / image.name,
                )
                for image in images
            ]


def require_same_recipes(images: Sequence[Image], engine: Engine) -> None:
    """Raise StaleError for images that the second build made from other recipes than the first."""
    problems = Problems()
    for image in images:
        if engine.image(image.reference) is None:
            message = f"the recipe of `{image.name}` changed between the two builds"
            problems.add(Diagnostic(message, hint=f"run `bake reproduce {image.name}` again"))
    problems.raise_as(StaleError)


def _build_again(paths: DaemonPaths, root: Path, directory: Path, names: Sequence[str]) -> None:
    """Build in a new process, which shares no state with this one."""
    command = [sys.executable, "-P", "-c", "from bakehouse.cli.main import main; main()", "build", *names]
    environment = {
        "DOCKER_HOST": paths.endpoint,
        "BAKEHOUSE_STATE": str(directory / "state"),
        "NO_COLOR": "1",
    }

    def forward(output: bytes) -> None:
        sys.stderr.write(output.decode(errors="replace"))
        sys.stderr.flush()

    with process.running(command, cwd=root, environment=environment) as bake:
        assert bake.stderr
        process.read({bake.stderr: forward}, lambda: None)
        if bake.wait():
            raise BuildError(
                f"{', '.join(f'`{name}`' for name in names)} could not be built again on another engine",
                hint="see the error above",
            )
