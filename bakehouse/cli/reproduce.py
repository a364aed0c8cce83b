"""Builds images a second time from the same lock, on an engine that knows nothing yet, and compares."""

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path

from bakehouse.analysis import compare
from bakehouse.analysis.compare import Reproduction, Side
from bakehouse.cli import workflow
from bakehouse.engine import daemon_info, docker, dockerd, fake_clock, provision
from bakehouse.engine.fake_clock import FakeClock
from bakehouse.engine.isolated_engine import isolated_engine
from bakehouse.errors import BuildError, Diagnostic, DifferenceError, EngineError, UsageError
from bakehouse.plan.model import Image
from bakehouse.plan.workspace import Workspace, plan_images, select
from bakehouse.util import process as processes
from bakehouse.util.tempdir import private_directory
from bakehouse.util.terminal import Reporter

STORES = ("overlay2", dockerd.CONTAINERD)
_SAME_CLOCK = "the same clock, minutes later"


def reproduce(
    workspace: Workspace, patterns: Sequence[str], say: Reporter, stores: Sequence[str]
) -> tuple[Reproduction, ...]:
    """Build images here, then once more on an engine of each store; where they differ, that is an answer."""
    for store in stores or ("",):
        if store not in STORES:
            hint = f"it is one of {', '.join(f'`{one}`' for one in STORES)}"
            message = f"there is no store `{store}`" if store else "`--image-store` names none"
            raise UsageError(Diagnostic(message, hint=hint))
    if not patterns:
        message = "`./bake reproduce` builds everything anew, and wants to be told which images"
        raise UsageError(Diagnostic(message, hint="`./bake reproduce pytorch-cpu`"))
    images = plan_images(workspace, [one.name for one in select(workspace, patterns)]).images
    for image in images:
        for reason in compare.unlocked(image):
            say(f"note: {image.name} is not locked as a whole: {reason}")
    workflow.build_images(workspace, [one.name for one in images], say, workflow.RunOptions())
    here = daemon_info.inspect()
    clock = _clock(say)
    found = []
    with contextlib.closing(docker.connect()) as engine:
        first = Side(engine, dockerd.CONTAINERD if here.containerd_store else here.store)
        for store in dict.fromkeys(stores):
            found += _on(store, clock, first, workspace, images, say)
    return tuple(found)


def require_same(found: Sequence[Reproduction]) -> None:
    """Raise DifferenceError for those that are not the same."""
    different = [compare.diagnostic(one) for one in found if not one.is_same]
    if different:
        raise DifferenceError(*different)


def _clock(say: Reporter) -> FakeClock | None:
    try:
        provision.ensure_tools(provision.ask_at_terminal, say, fake_clock.COMPILER)
    except EngineError as error:
        say(f"note: the second build will have the same clock: {error}")
        return None
    return FakeClock()


def _on(
    store: str,
    clock: FakeClock | None,
    first: Side,
    workspace: Workspace,
    images: Sequence[Image],
    say: Reporter,
) -> list[Reproduction]:
    told = f"{clock.days} days ahead" if clock else _SAME_CLOCK
    with (
        private_directory(workspace.project.state) as folder,
        isolated_engine(store, say, clock) as place,
    ):
        say(f"building again on an engine with the {store} store, its clock {told}")
        _build_again(place, workspace.project.root, folder, [one.name for one in images])
        with contextlib.closing(docker.connect(place.endpoint)) as engine:
            return [
                compare.compare(
                    image,
                    first,
                    Side(engine, store),
                    clock=f"clock {told}" if clock else told,
                    templates=workspace.templates,
                    folder=folder / "differing" / image.name,
                )
                for image in images
            ]


def _build_again(place: dockerd.DaemonPaths, root: Path, folder: Path, names: Sequence[str]) -> None:
    """Let a process of its own build, which knows nothing of what this one or earlier ones found out."""
    command = [sys.executable, "-P", "-c", "from bakehouse.cli.main import main; main()", "build", *names]
    environment = {"DOCKER_HOST": place.endpoint, "BAKEHOUSE_STATE": str(folder / "state"), "NO_COLOR": "1"}

    def tell(said: bytes) -> None:
        sys.stderr.write(said.decode(errors="replace"))
        sys.stderr.flush()

    with processes.running(command, cwd=root, environment=environment) as process:
        assert process.stderr
        processes.read({process.stderr: tell}, lambda: None)
        if process.wait():
            message = f"{', '.join(f'`{one}`' for one in names)} could not be built again on another engine"
            raise BuildError(Diagnostic(message, hint="what failed is told above"))
