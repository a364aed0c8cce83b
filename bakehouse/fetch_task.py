"""The task `fetch`: every file that images need, into the cache or a folder."""

from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from bakehouse import gathering
from bakehouse.fetch_progress import FetchProgress
from bakehouse.plan import RegistryBase
from bakehouse.wanted import wanted
from bakehouse.workspace import Say, Workspace, plan_images


def run(workspace: Workspace, patterns: Sequence[str], say: Say, stream: TextIO, to: str) -> str:
    """Have all that images need; tells counts and bytes of each kind, and where it lies."""
    images = plan_images(workspace, patterns).images
    needed = wanted(images)
    gathering.require_known(needed)
    folder = Path(to).expanduser().absolute() if to else None
    with (
        gathering.fetcher(workspace.project, say, to=folder) as fetcher,
        FetchProgress(stream, len(needed.files)) as progress,
    ):
        transfers = gathering.gather(needed, fetcher, progress.show)
    where = folder or workspace.project.cache
    pulled = sorted({image.base.pinned for image in images if isinstance(image.base, RegistryBase)})
    told = "".join(
        f"not among them: {one}, which the engine pulls, and what its mirrors add to it\n" for one in pulled
    )
    return f"{gathering.summary(transfers)}{len(transfers)} files are in {where}\n{told}"
