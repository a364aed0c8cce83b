"""The task `fetch`: every file that images need, into the cache or a folder."""

from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from bakehouse import gathering
from bakehouse.fetch_progress import FetchProgress
from bakehouse.wanted import wanted
from bakehouse.workspace import Say, Workspace, plan_images


def run(workspace: Workspace, patterns: Sequence[str], say: Say, stream: TextIO, to: str) -> str:
    """Have all that images need; tells counts and bytes of each kind, and where it lies."""
    needed = wanted(plan_images(workspace, patterns).images)
    gathering.require_known(needed)
    folder = Path(to).expanduser().absolute() if to else None
    with (
        gathering.fetcher(workspace.project, say, to=folder) as fetcher,
        FetchProgress(stream, len(needed.files)) as progress,
    ):
        transfers = gathering.gather(needed, fetcher, progress.show)
    where = folder or workspace.project.cache
    return f"{gathering.summary(transfers)}{len(transfers)} files are in {where}\n"
