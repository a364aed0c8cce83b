"""Downloads of the files that builds need: into the cache, into a directory, or from local sources only."""

import contextlib
import errno
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from bakehouse.builder.build_inputs import Downloads
from bakehouse.catalog.apt_lock import Deb
from bakehouse.catalog.project import ProjectSettings
from bakehouse.engine.protocol import Engine, EngineHost
from bakehouse.errors import BakehouseError, BuildError, Diagnostic, Reason, Table, UsageError
from bakehouse.fetch.connection import redacted
from bakehouse.fetch.downloader import Fetcher, FileDownload, MissingError
from bakehouse.fetch.project_fetcher import open_fetcher
from bakehouse.fetch.required_files import KINDS, RequiredFile, RequiredFiles, debs, required_files
from bakehouse.fetch.sources import directory_of, is_mirror
from bakehouse.plan.model import BootstrappedBase, Image, RegistryBase
from bakehouse.util.files import make_directory
from bakehouse.util.format import format_bytes, format_count, format_table
from bakehouse.util.terminal import Reporter

_MAX_FILES = 20
_POLL_SECONDS = 0.2


@contextlib.contextmanager
def start_downloads(
    images: Sequence[Image],
    project: ProjectSettings,
    engine: Engine,
    host: EngineHost,
    report: Reporter,
    *,
    source: str,
    offline: bool,
) -> Iterator[Downloads]:
    """Yield the downloads for the steps of a build, served to them at the addresses of `host`.

    `source` is a mirror to try first. Raises UsageError if it is not a mirror, BuildError if an offline build
    lacks files.
    """
    if source and not is_mirror(source):
        raise UsageError(
            f"`{redacted(source)}` is not a directory or a mirror URL",
            hint="create one with `bake build IMAGE --download-only --to DIRECTORY`",
        )
    with open_fetcher(project, report, source=source, offline=offline) as fetcher:
        if offline:
            require_local_files(images, engine, fetcher, source)
        yield Downloads(required_files(images), fetcher, host)


def download_packages(downloads: Downloads, packages: Sequence[Deb], directory: Path) -> None:
    """Download the packages of a base into a directory. Raises BuildError for missing ones."""
    make_directory(directory)
    transfers = [downloads.fetcher.ask(deb) for deb in debs(packages)]
    for transfer in transfers:
        transfer.done.wait()
    downloads.fetcher.take_failures()
    require_downloaded(transfers, downloads.required)
    for transfer in transfers:
        assert transfer.path
        shutil.copyfile(transfer.path, directory / transfer.file.file)


def download_all(
    needed: RequiredFiles, fetcher: Fetcher, show: Callable[[Fetcher], None]
) -> tuple[FileDownload, ...]:
    """Download all files. Raises BuildError for missing files, UsageError for files without sha256."""
    require_known(needed)
    transfers = tuple(fetcher.ask(file) for file in needed.files)
    for transfer in transfers:
        while not transfer.done.wait(_POLL_SECONDS):
            show(fetcher)
    show(fetcher)
    require_downloaded(transfers, needed)
    return transfers


def require_known(needed: RequiredFiles) -> None:
    """Raise UsageError for files without a sha256."""
    if needed.unknown:
        rows = tuple((file.file, ", ".join(needed.images[file])) for file in needed.unknown)
        raise UsageError(
            f"the sha256 of {format_count(len(rows), 'file')} is unknown",
            tables=(Table("needed by", rows[:_MAX_FILES]),),
            hint="run `bake lock` to record it",
        )


def require_downloaded(transfers: Iterable[FileDownload], needed: RequiredFiles) -> None:
    """Raise BuildError for failed downloads."""
    failed = [transfer for transfer in transfers if transfer.failure]
    for transfer in failed:
        if isinstance(transfer.failure, BakehouseError):
            raise transfer.failure
    if failed:
        raise BuildError.of(missing_files_error(failed, needed))


def missing_files_error(failed: Sequence[FileDownload], needed: RequiredFiles) -> Diagnostic:
    """Return the error for missing files: their images, and the answers of the sources, grouped."""
    if all(isinstance(transfer.failure, OSError) for transfer in failed):
        return storage_error([transfer.failure for transfer in failed if transfer.failure])
    by_answers: dict[tuple[tuple[str, str], ...], list[RequiredFile]] = {}
    for transfer in failed:
        by_answers.setdefault(_answers(transfer), []).append(transfer.file)
    tables = []
    for answers, files in by_answers.items():
        tables.append(Table("missing", _rows(files, needed)))
        tables.append(Table("answers of the sources", answers))
    message = f"{format_count(len(failed), 'file')} could not be downloaded"
    hint = "copy them into a directory and add the directory to `mirrors` in [tool.bakehouse]"
    return Diagnostic(message, tables=tuple(tables), hint=hint)


def storage_error(failures: Sequence[Exception]) -> Diagnostic:
    """Return the error for files that cannot be stored; the reason does not depend on the files."""
    reasons = tuple(Reason(reason) for reason in dict.fromkeys(map(_reason, failures)))
    message = f"{format_count(len(failures), 'file')} could not be stored on this machine"
    hint = "check the directory of `fetch --to`, BAKEHOUSE_CACHE or `cache` in [tool.bakehouse]"
    return Diagnostic(message, reasons=reasons, hint=hint)


def require_local_files(images: Sequence[Image], engine: Engine, fetcher: Fetcher, directory: str) -> None:
    """Raise BuildError with all files and bases that an offline build lacks."""
    absent = [image for image in images if not engine.image(image.reference)]
    needed = required_files(absent)
    require_known(needed)
    files = [file for file in needed.files if fetcher.local(file) is None]
    bases = {
        reference: image.name
        for image in absent
        for reference in _bases(image)
        if not engine.image(reference)
    }
    if not files and not bases:
        return
    rows = [*_rows(files, needed), *((name, f"base of {image}") for name, image in bases.items())]
    message = f"{len(rows)} files or bases of the build are missing on this machine"
    to = shlex.quote(directory) if directory_of(directory) else "DIRECTORY"
    names = " ".join(sorted(image.name for image in absent))
    command = f"bake build {names} --download-only --to {to}"
    hint = f"run `{command}` with a network, then use `--offline --from {to}`"
    if any(isinstance(image.base, RegistryBase) and {*_bases(image)} & bases.keys() for image in absent):
        hint += "; pull bases with `docker pull`"
    raise BuildError(message, tables=(Table("missing", tuple(rows)),), hint=hint)


def _bases(image: Image) -> tuple[str, ...]:
    """Return the images that an offline build needs in the engine."""
    if isinstance(image.base, BootstrappedBase):
        return () if image.locks_apt else (image.base.reference,)
    return tuple(filter(None, (image.base.pinned, image.build_base)))


def summary(transfers: Sequence[FileDownload]) -> str:
    """Return counts and sizes of the files by kind, as a table."""
    rows = []
    for kind, name in KINDS.items():
        of_kind = [transfer for transfer in transfers if transfer.file.kind == kind]
        if of_kind:
            size = sum(transfer.path.stat().st_size for transfer in of_kind if transfer.path)
            fetched = sum(transfer.fetched for transfer in of_kind)
            new = f", {format_bytes(fetched)} fetched now" if fetched else ""
            rows.append((name, f"{len(of_kind):,}", f"{format_bytes(size)}{new}"))
    return format_table(rows, align="lr")


def _answers(transfer: FileDownload) -> tuple[tuple[str, str], ...]:
    if isinstance(transfer.failure, MissingError):
        return transfer.failure.failures or (("", "there is no source for it"),)
    return (("", _reason(transfer.failure) if transfer.failure else ""),)


def _rows(files: Sequence[RequiredFile], needed: RequiredFiles) -> tuple[tuple[str, ...], ...]:
    rows = [(file.file, f"for {', '.join(needed.images.get(file, ()))}") for file in files[:_MAX_FILES]]
    more = [(f"and {len(files) - _MAX_FILES} more", "")] if len(files) > _MAX_FILES else []
    return (*rows, *more)


def _reason(error: Exception) -> str:
    """Return the reason of a failed download that is not the answer of a source."""
    if isinstance(error, OSError):
        if error.errno == errno.ENOSPC:
            return "the disk is full"
        if error.errno == errno.ENOTDIR and error.filename:
            return f"`{_file_above(Path(error.filename))}` is a file, not a directory"
        location = f" in {Path(error.filename).parent}" if error.filename else ""
        return f"{(error.strerror or str(error)).lower()}{location}"
    return str(error)


def _file_above(path: Path) -> Path:
    """Return the part of a path that is a file instead of a directory."""
    return next((part for part in (path, *path.parents) if part.exists() and not part.is_dir()), path)
