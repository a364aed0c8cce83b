"""`build --download-only`: downloads the files of images into the cache or a directory."""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self, TextIO

from bakehouse.builder import prefetch
from bakehouse.builder.progress import Mode, mode_for
from bakehouse.errors import UsageError
from bakehouse.fetch.downloader import Fetcher, FileDownload
from bakehouse.fetch.project_fetcher import open_fetcher
from bakehouse.fetch.required_files import required_files
from bakehouse.lock.locking import require_known_hosts
from bakehouse.plan.model import Image, RegistryBase
from bakehouse.plan.workspace import Selection
from bakehouse.util.files import expand_home, make_directory
from bakehouse.util.format import format_bytes, format_seconds
from bakehouse.util.heartbeat import SILENT_SECONDS
from bakehouse.util.terminal import Redrawn, Reporter

_MAX_NAMES = 3
_MAX_ROWS = 8
_REDRAW_SECONDS = 0.5


class FetchProgress:
    """Prints the progress of downloads."""

    def __init__(
        self,
        stream: TextIO,
        count: int,
        *,
        mode: Mode | None = None,
        width: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream, self._count, self._clock = stream, count, clock
        self._mode = mode or mode_for(stream)
        self._began = self._drawn = clock()
        self._rows = Redrawn(stream, width=width)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._rows.erase()
        self._stream.flush()

    def show(self, fetcher: Fetcher) -> None:
        """Print changes. Call it a few times a second."""
        now, transfers = self._clock(), fetcher.transfers
        for line in fetcher.lines():
            self._write(line, now)
        if self._mode is Mode.TABLE:
            if now - self._drawn >= _REDRAW_SECONDS:
                self._draw(transfers, now)
        elif now - self._drawn >= SILENT_SECONDS:
            self._drawn = now
            self._write(self._summary(transfers, now), now)

    def _summary(self, transfers: Sequence[FileDownload], now: float) -> str:
        present = sum(transfer.path is not None for transfer in transfers)
        fetched = sum(transfer.fetched for transfer in transfers)
        rate = format_bytes(fetched / max(now - self._began, 0.1))
        return f"{present} of {self._count} files are here, {format_bytes(fetched)} fetched, {rate}/s"

    def _draw(self, transfers: Sequence[FileDownload], now: float) -> None:
        self._drawn = now
        running = [transfer for transfer in transfers if transfer.source and not transfer.done.is_set()]
        rows = [f"{format_seconds(now - self._began):>7}  {self._summary(transfers, now)}"]
        for transfer in running[:_MAX_ROWS]:
            of_total = f" of {format_bytes(transfer.total)}" if transfer.total else ""
            received = f"{format_bytes(transfer.received)}{of_total}"
            seconds = format_seconds(now - transfer.began)
            rows.append(f"{seconds:>9}  {transfer.file.file}  {received}  {transfer.source}")
        self._rows.draw(rows)

    def _write(self, text: str, now: float) -> None:
        self._rows.erase()
        self._stream.write(f"{format_seconds(now - self._began):>7}  {text}\n")
        self._stream.flush()


def run(selection: Selection, report: Reporter, stream: TextIO, to: str) -> str:
    """Download the files of images; return counts and bytes of each kind, and the location."""
    workspace = selection.workspace
    require_known_hosts(workspace, selection.resolutions)
    images, skipped = select_fetchable(selection.plan.images, selection.patterns)
    needed = required_files(images)
    prefetch.require_known(needed)
    directory = _writable(expand_home(to).absolute()) if to else None
    with (
        open_fetcher(workspace.project, report, to=directory) as fetcher,
        FetchProgress(stream, len(needed.files)) as progress,
    ):
        transfers = prefetch.download_all(needed, fetcher, progress.show)
    location = directory or workspace.project.cache
    pulled = sorted({image.base.pinned for image in images if isinstance(image.base, RegistryBase)})
    excluded = "".join(
        f"not included: {base}, which the engine pulls, and packages from its mirrors\n" for base in pulled
    )
    return f"{prefetch.summary(transfers)}{len(transfers)} files are in {location}\n{excluded}{skipped}"


def select_fetchable(images: Sequence[Image], patterns: Sequence[str]) -> tuple[tuple[Image, ...], str]:
    """Return the images that are named or whose files all have a checksum, and a line about the others.

    If no image qualifies, return all: the caller reports that as one error.
    """
    chosen = tuple(image for image in images if image.name in patterns or not required_files([image]).unknown)
    skipped = [image.name for image in images if image not in chosen]
    if not chosen or not skipped:
        return tuple(images), ""
    names = ", ".join(skipped[:_MAX_NAMES])
    more = f" and {len(skipped) - _MAX_NAMES} more" if len(skipped) > _MAX_NAMES else ""
    return chosen, f"skipped, because files have no checksum: {names}{more}; run `bake lock` first\n"


def _writable(directory: Path) -> Path:
    """Create a directory if it does not exist. Raises UsageError if it is not writable."""
    try:
        make_directory(directory)
        reason = "" if os.access(directory, os.W_OK | os.X_OK) else "permission denied"
    except FileExistsError:
        reason = "it is a file"
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
    if reason:
        raise UsageError(
            f"cannot write to `{directory}`: {reason}",
            hint="`--to` takes a directory, which is created if needed",
        )
    return directory
