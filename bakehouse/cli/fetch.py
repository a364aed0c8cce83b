"""The task `fetch`: every file that images need, into the cache or a folder."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from bakehouse.build import prefetch
from bakehouse.cli.fetch_progress import FetchProgress
from bakehouse.errors import Diagnostic, UsageError
from bakehouse.fetch.required_files import required_files
from bakehouse.plan.model import Image, RegistryBase
from bakehouse.plan.workspace import Workspace, plan_images
from bakehouse.util.terminal import Reporter

_MOST_NAMES = 3


def run(workspace: Workspace, patterns: Sequence[str], say: Reporter, stream: TextIO, to: str) -> str:
    """Have all that images need; tells counts and bytes of each kind, and where it lies."""
    images, left = known(plan_images(workspace, patterns).images, patterns)
    needed = required_files(images)
    prefetch.require_known(needed)
    folder = _writable(Path(to).expanduser().absolute()) if to else None
    with (
        prefetch.open_fetcher(workspace.project, say, to=folder) as fetcher,
        FetchProgress(stream, len(needed.files)) as progress,
    ):
        transfers = prefetch.download_all(needed, fetcher, progress.show)
    where = folder or workspace.project.cache
    pulled = sorted({image.base.pinned for image in images if isinstance(image.base, RegistryBase)})
    told = "".join(
        f"not among them: {one}, which the engine pulls, and what its mirrors add to it\n" for one in pulled
    )
    return f"{prefetch.summary(transfers)}{len(transfers)} files are in {where}\n{told}{left}"


def known(images: Sequence[Image], patterns: Sequence[str]) -> tuple[tuple[Image, ...], str]:
    """The images that are named, or whose files can all be looked for; and what is told of the others.

    Where none can be, they are all given: that is one error.
    """
    chosen = tuple(image for image in images if image.name in patterns or not required_files([image]).unknown)
    left = [image.name for image in images if image not in chosen]
    if not chosen or not left:
        return tuple(images), ""
    names = ", ".join(left[:_MOST_NAMES])
    more = f" and {len(left) - _MOST_NAMES} more" if len(left) > _MOST_NAMES else ""
    return chosen, f"left out, as nobody knows the sha256 of some file: {names}{more}; `./bake lock` first\n"


def _writable(folder: Path) -> Path:
    """A folder that is made where it isn't there. Raises UsageError where nothing can be put into it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        reason = "" if os.access(folder, os.W_OK | os.X_OK) else "we may not write there"
    except FileExistsError:
        reason = "it is a file"
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
    if reason:
        message = f"can't put files into `{folder}`: {reason}"
        raise UsageError(Diagnostic(message, hint="`--to` names a folder; it is made where it isn't there"))
    return folder
