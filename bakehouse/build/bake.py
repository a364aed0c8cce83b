"""Bakes images whose steps are fed, and says which of them lack a file that can't be had."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from bakehouse.build import prefetch
from bakehouse.build.build_inputs import BuildInputs, Downloads
from bakehouse.build.progress import Progress
from bakehouse.engine import buildx
from bakehouse.engine.buildkit_errors import ImagesFailed
from bakehouse.engine.buildkit_events import Event
from bakehouse.errors import BuildError


def bake_with_inputs(
    targets: Sequence[buildx.Target],
    *,
    cwd: Path,
    state: Path,
    downloads: Downloads,
    inputs: BuildInputs,
    progress: Progress,
    environment: Mapping[str, str] | None = None,
    first: Collection[str] = (),
) -> dict[str, str]:
    """Build all targets as one graph, as `buildx.bake` does; what is fetched meanwhile is told.

    Raises ImagesFailed as soon as a file can't be had: others may be built without those that want it.
    """
    names = {target.name for target in targets}

    def heard(event: Event) -> None:
        progress(event)
        _require_files(downloads, names, progress)

    try:
        return buildx.bake(
            targets,
            cwd=cwd,
            state=state,
            secrets=inputs.secrets,
            arguments=inputs.arguments,
            on_event=heard,
            environment=environment,
            first=first,
        )
    except BuildError:
        # A step that was not given its file fails too, and says less.
        _require_files(downloads, names, progress)
        raise


def _require_files(downloads: Downloads, names: Collection[str], progress: Progress) -> None:
    for line in downloads.fetcher.lines():
        progress.report(line)
    wanting = downloads.wanted.images
    # What only images want that are not built now is nobody's loss yet.
    failed = [one for one in downloads.fetcher.take_failures() if {*wanting.get(one.file, ())} & {*names}]
    if failed:
        images = {name for one in failed for name in wanting[one.file]} & {*names}
        raise ImagesFailed(prefetch.missing_files_error(failed, downloads.wanted), images=frozenset(images))
