"""Has images built on this machine: those that nothing changed of are known again, the rest is one graph."""

import contextlib
from collections.abc import Sequence
from functools import partial

from bakehouse.build import graph, prefetch, registry_auth, up_to_date
from bakehouse.build import verify as checks
from bakehouse.build.build_inputs import supplies
from bakehouse.build.graph import BuiltImage
from bakehouse.build.progress import Progress
from bakehouse.catalog.project import Project
from bakehouse.engine import provision
from bakehouse.engine.protocol import Engine
from bakehouse.plan.model import BootstrappedBase, Image
from bakehouse.util.terminal import Reporter

_RELATIVE_UNPACKED = 3.2
"""How much more a wheel's files take on disk than the wheel: torch 2.13 with CUDA 13.0, measured."""
_SYSTEM_BYTES = 600_000_000
"""What an image has besides wheels: the base, and the distribution's packages."""


def build_images(
    project: Project,
    images: Sequence[Image],
    engine: Engine,
    progress: Progress,
    *,
    source: str,
    offline: bool,
) -> tuple[BuiltImage, ...]:
    """The images, in their order, each found to hold what it declares; `source` and `offline` as a feed's.

    Raises BuildError with all that went wrong, once what could be built is built.
    """

    def verify(one: BuiltImage) -> None:
        checks.verify(engine, one.image, one.digest, project.state)

    def verify_new(one: BuiltImage) -> None:
        verify(one)
        up_to_date.remember(one, project.root, project.state)

    known = up_to_date.recall(images, project.root, project.state, engine)
    names = {one.image.name for one in known}
    left = [image for image in images if image.name not in names]
    new: tuple[BuiltImage, ...] = ()
    if left:
        present = [one.image for one in known]
        new = _build(project, left, present, engine, progress, verify_new, source=source, offline=offline)
    # Last, so that one that differs keeps no other from being built
    graph.verify_all(known, verify)
    made = {one.image.name: one for one in (*known, *new)}
    return tuple(made[image.name] for image in images)


def _build(
    project: Project,
    images: Sequence[Image],
    present: Sequence[Image],
    engine: Engine,
    progress: Progress,
    verify: graph.Verify,
    *,
    source: str,
    offline: bool,
) -> tuple[BuiltImage, ...]:
    bases = [image.base for image in images if isinstance(image.base, BootstrappedBase)]
    with contextlib.ExitStack() as stack:
        if bases:
            provision.ensure_tools(provision.ask_at_terminal, progress.say, "mmdebstrap")
        fed = prefetch.feed(images, project, engine, progress.say, source=source, offline=offline)
        feed = stack.enter_context(fed)
        given = supplies(
            state=project.state,
            mirrors=project.mirrors,
            ca=project.ca,
            say=progress.say,
            suites=() if offline else [one.suite for one in bases],
            feed=feed,
        )
        logged_in = registry_auth.of_bases(registry_auth.pulled(images), project, progress.say)
        return graph.build(
            images,
            root=project.root,
            state=project.state,
            engine=engine,
            feed=feed,
            supplies=stack.enter_context(given),
            progress=progress,
            verify=verify,
            expected_bytes=partial(expected_bytes, present=present),
            restart=partial(restart, progress.say),
            environment=stack.enter_context(logged_in),
        )


def restart(say: Reporter) -> bool:
    """Start an engine anew that lost a layer, where that does no harm to anything else; whether it could."""
    if not provision.restart(say):
        return False
    say("the engine lost a layer, a fault of BuildKit: restarted it, building again")
    return True


def expected_bytes(images: Sequence[Image], present: Sequence[Image] = ()) -> int:
    """What images will weigh unpacked, beside those that are here: each stage once, as engines keep it."""
    here = {stage.key for image in present for stage in image.stages}
    stages = {stage.key: stage for image in images for stage in image.stages if stage.key not in here}
    wheels = sum(one.bytes for stage in stages.values() for one in (*stage.wheels, *stage.sdists))
    return int(wheels * _RELATIVE_UNPACKED) + _SYSTEM_BYTES * len(images)
