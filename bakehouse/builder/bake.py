"""Bake images while this machine serves their files to the build steps."""

from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from pathlib import Path

from bakehouse.builder import prefetch
from bakehouse.builder.build_context import BuildContext
from bakehouse.builder.code_copies import CODE, code_directory
from bakehouse.engine import buildx
from bakehouse.engine.buildkit_errors import ImagesFailed
from bakehouse.engine.buildkit_events import Event
from bakehouse.engine.buildx_builders import variables_of
from bakehouse.errors import BuildError
from bakehouse.plan.model import Image


def target_of(image: Image, output: Path) -> buildx.Target:
    """Return the target of a rendered image, with the files that its stages were rendered from.

    `output` has the copies of its training code.
    """
    sources = {
        name: stage.source / "install.j2"
        for stage in image.stages
        for name in (stage.name, stage.wheels_stage)
        if name
    }
    return buildx.Target(
        image.name,
        image.target,
        Path("images", image.name, "docker-bake.json"),
        sources,
        contexts={CODE: str(code_directory(output, image.name).absolute())} if image.content.code else {},
        tags=image.names,
    )


def bake_with_inputs(
    targets: Sequence[buildx.Target],
    context: BuildContext,
    *,
    first: Collection[str] = (),
    builder: str = "",
    check: Callable[[], None] = lambda: None,
) -> dict[str, buildx.BakedImage]:
    """Build all targets as one graph, as `buildx.bake` does, and report the downloads meanwhile.

    `builder` builds instead of the engine. `check` is called repeatedly, and may raise an exception to stop
    the build. Raises ImagesFailed as soon as a download fails; the images that do not need the file can
    still be built.
    """
    names = {target.name for target in targets}

    def report_event(event: Event) -> None:
        context.progress(event, builder)
        check()
        require_files(context, names)

    project, inputs, cache = context.project, context.inputs, context.cache
    environment = {**context.environment, **(variables_of(builder) if builder else {})}
    options = buildx.BakeOptions(
        project.root, project.state, report_event, inputs.secrets, inputs.arguments, environment
    )
    try:
        with cache.extended(targets) if cache else nullcontext(targets) as extended:
            return buildx.bake(extended, options, first)
    except BuildError:
        # A step that did not get its file fails too, with a less helpful message.
        require_files(context, names)
        raise


def require_files(context: BuildContext, names: Collection[str]) -> None:
    """Report the downloads. Raises ImagesFailed for the images of these names that need a failed one."""
    downloads = context.downloads
    for line in downloads.fetcher.lines():
        context.progress.report(line)
    users = downloads.required.images
    # Files that only other images need do not matter here.
    failed = [
        transfer
        for transfer in downloads.fetcher.take_failures()
        if {*users.get(transfer.file, ())} & {*names}
    ]
    if failed:
        images = {name for transfer in failed for name in users[transfer.file]} & {*names}
        raise ImagesFailed(prefetch.missing_files_error(failed, downloads.required), images=frozenset(images))
