"""The `fetch` task: downloads the files of images into the cache or a directory."""

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


def run(workspace: Workspace, patterns: Sequence[str], report: Reporter, stream: TextIO, to: str) -> str:
    """Download the files of images; return counts and bytes of each kind, and the location."""
    images, left = known(plan_images(workspace, patterns).images, patterns)
    needed = required_files(images)
    prefetch.require_known(needed)
    folder = _writable(Path(to).expanduser().absolute()) if to else None
    with (
        prefetch.open_fetcher(workspace.project, report, to=folder) as fetcher,
        FetchProgress(stream, len(needed.files)) as progress,
    ):
        transfers = prefetch.download_all(needed, fetcher, progress.show)
    location = folder or workspace.project.cache
    pulled = sorted({image.base.pinned for image in images if isinstance(image.base, RegistryBase)})
    excluded = "".join(
        f"not included: {base}, which the engine pulls, and packages from its mirrors\n" for base in pulled
    )
    return f"{prefetch.summary(transfers)}{len(transfers)} files are in {location}\n{excluded}{left}"


def known(images: Sequence[Image], patterns: Sequence[str]) -> tuple[tuple[Image, ...], str]:
    """Return the images that are named or whose files all have a checksum, and a line about the others.

    If no image qualifies, return all: the caller reports that as one error.
    """
    chosen = tuple(image for image in images if image.name in patterns or not required_files([image]).unknown)
    left = [image.name for image in images if image not in chosen]
    if not chosen or not left:
        return tuple(images), ""
    names = ", ".join(left[:_MOST_NAMES])
    more = f" and {len(left) - _MOST_NAMES} more" if len(left) > _MOST_NAMES else ""
    return chosen, f"skipped, because files have no checksum: {names}{more}; run `bake lock` first\n"


def _writable(folder: Path) -> Path:
    """Create a directory if it does not exist. Raises UsageError if it is not writable."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        reason = "" if os.access(folder, os.W_OK | os.X_OK) else "permission denied"
    except FileExistsError:
        reason = "it is a file"
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
    if reason:
        message = f"cannot write to `{folder}`: {reason}"
        raise UsageError(Diagnostic(message, hint="`--to` takes a directory, which is created if needed"))
    return folder
