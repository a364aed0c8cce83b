"""Brings together all files that builds need: into the cache, into a folder, or from what is here alone."""

import contextlib
import errno
import os
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from bakehouse.build.build_inputs import Downloads
from bakehouse.catalog.apt_lock import Deb
from bakehouse.catalog.project import Project
from bakehouse.engine.protocol import Engine
from bakehouse.errors import BakehouseError, BuildError, Diagnostic, Reason, Table, UsageError
from bakehouse.fetch import pip_config
from bakehouse.fetch.cache import FileCache
from bakehouse.fetch.certificates import bundle_of
from bakehouse.fetch.connection import redacted
from bakehouse.fetch.downloader import Fetcher, MissingError, Transfer
from bakehouse.fetch.local_mirror import HashCache, LocalMirrors
from bakehouse.fetch.required_files import KINDS, RequiredFile, RequiredFiles, debs, required_files
from bakehouse.fetch.sources import DownloadConfig, folder_of, is_mirror
from bakehouse.plan.model import BootstrappedBase, Image, RegistryBase
from bakehouse.util.format import format_bytes, format_count, format_table
from bakehouse.util.terminal import Reporter

_MOST_FILES = 20
_POLL_SECONDS = 0.2


@contextlib.contextmanager
def start_downloads(
    images: Sequence[Image], project: Project, engine: Engine, report: Reporter, *, source: str, offline: bool
) -> Iterator[Downloads]:
    """What steps of a build are served from; `source` is a mirror to look into first.

    Raises UsageError where `source` is nothing to look into, BuildError where a build is to ask no network
    and something is missing here.
    """
    if source and not is_mirror(source):
        message = f"`{redacted(source)}` is no folder, and no address of a mirror"
        raise UsageError(Diagnostic(message, hint="`./bake fetch IMAGE --to FOLDER` fills one"))
    with open_fetcher(project, report, source=source, offline=offline) as found:
        if offline:
            require_here(images, engine, found, source)
        yield Downloads(required_files(images), found, "build without `--offline`" if offline else "")


@contextlib.contextmanager
def open_fetcher(
    project: Project,
    report: Reporter,
    *,
    source: str = "",
    to: Path | None = None,
    offline: bool = False,
    environment: Mapping[str, str] = os.environ,
) -> Iterator[Fetcher]:
    """What fetches for a build, as this machine is set up.

    `to` is a folder that gets a copy of every file, instead of the cache; `offline`, nothing is asked of any
    network.
    """
    pip = pip_config.read(environment)
    mirrors = [*filter(None, [source]), *project.mirrors]
    for one in mirrors:
        if not is_mirror(one):
            report(f"mirror `{redacted(one)}` is no folder, and no address of a mirror: left out")
    mirrors = [one for one in mirrors if is_mirror(one)]
    machine = DownloadConfig(tuple(mirrors), pip, bundle_of(project.ca, pip, environment), environment)
    hashes = HashCache(project.state / "hashes.json")
    folders = [*machine.folders, *([project.cache] if to else [])]
    found = Fetcher(
        FileCache(to or project.cache, report, aside=project.cache),
        LocalMirrors(folders, hashes),
        offers=(lambda _: ()) if offline else machine.offers,
        here=machine.here,
        copies=bool(to),
    )
    with found:
        try:
            yield found
        finally:
            with contextlib.suppress(OSError):
                hashes.save()


def download_packages(downloads: Downloads, packages: Sequence[Deb], folder: Path) -> None:
    """Put packages of a base into a folder. Raises BuildError for those that can't be had."""
    folder.mkdir(parents=True, exist_ok=True)
    transfers = [downloads.fetcher.ask(one) for one in debs(packages)]
    for one in transfers:
        one.done.wait()
    downloads.fetcher.take_failures()
    require_downloaded(transfers, downloads.wanted)
    for one in transfers:
        assert one.path
        shutil.copyfile(one.path, folder / one.file.file)


def download_all(
    needed: RequiredFiles, fetcher: Fetcher, show: Callable[[Fetcher], None]
) -> tuple[Transfer, ...]:
    """Have every file here. Raises BuildError for all that can't be had; UsageError for unknown ones."""
    require_known(needed)
    transfers = tuple(fetcher.ask(one) for one in needed.files)
    for one in transfers:
        while not one.done.wait(_POLL_SECONDS):
            show(fetcher)
    show(fetcher)
    require_downloaded(transfers, needed)
    return transfers


def require_known(needed: RequiredFiles) -> None:
    """Refuse what can't be looked for by its sha256."""
    if needed.unknown:
        rows = tuple((one.file, ", ".join(needed.images[one])) for one in needed.unknown)
        message = f"nobody knows the sha256 of {format_count(len(rows), 'file')}"
        hint = "`./bake lock` finds it out and writes it down"
        raise UsageError(Diagnostic(message, tables=(Table("wanted by", rows[:_MOST_FILES]),), hint=hint))


def require_downloaded(transfers: Iterable[Transfer], needed: RequiredFiles) -> None:
    """Raise BuildError for what could not be had."""
    failed = [one for one in transfers if one.failure]
    for one in failed:
        if isinstance(one.failure, BakehouseError):
            raise one.failure
    if failed:
        raise BuildError(missing_files_error(failed, needed))


def missing_files_error(failed: Sequence[Transfer], needed: RequiredFiles) -> Diagnostic:
    """Which files can't be had, who wants them and what each source said, once where that is the same."""
    if all(isinstance(one.failure, OSError) for one in failed):
        return storage_error([one.failure for one in failed if one.failure])
    same: dict[tuple[tuple[str, str], ...], list[RequiredFile]] = {}
    for one in failed:
        same.setdefault(_said(one), []).append(one.file)
    tables = []
    for said, files in same.items():
        tables.append(Table("missing", _rows(files, needed)))
        tables.append(Table("said of them" if len(files) > 1 else "said of it", said))
    message = f"{format_count(len(failed), 'file')} can't be had"
    hint = "put them into a folder, named as they are, and name that in `mirrors` of [tool.bakehouse]"
    return Diagnostic(message, tables=tuple(tables), hint=hint)


def storage_error(failures: Sequence[Exception]) -> Diagnostic:
    """What keeps files from lying here: which files they are says nothing of it."""
    reasons = tuple(Reason(one) for one in dict.fromkeys(map(_why, failures)))
    message = f"{format_count(len(failures), 'file')} can't be kept on this machine"
    hint = (
        "`fetch --to`, BAKEHOUSE_CACHE or `cache` in [tool.bakehouse] names the folder that has to take them"
    )
    return Diagnostic(message, reasons=reasons, hint=hint)


def require_here(images: Sequence[Image], engine: Engine, fetcher: Fetcher, folder: str) -> None:
    """Refuse a build without network that would miss something. Raises BuildError, once, for all of it."""
    absent = [image for image in images if not engine.image(image.reference)]
    needed = required_files(absent)
    require_known(needed)
    files = [one for one in needed.files if fetcher.local(one) is None]
    bases = {
        reference: image.name
        for image in absent
        for reference in _bases(image)
        if not engine.image(reference)
    }
    if not files and not bases:
        return
    rows = [*_rows(files, needed), *((name, f"the base of {image}") for name, image in bases.items())]
    message = f"what the build needs is not all here: {len(rows)} missing"
    to = shlex.quote(folder) if folder_of(folder) else "FOLDER"
    names = " ".join(sorted(image.name for image in absent))
    hint = f"where there is a network, run `./bake fetch {names} --to {to}`; then `--offline --from {to}`"
    if any(isinstance(image.base, RegistryBase) and {*_bases(image)} & bases.keys() for image in absent):
        hint += "; `docker pull` gets bases"
    raise BuildError(Diagnostic(message, tables=(Table("missing", tuple(rows)),), hint=hint))


def _bases(image: Image) -> tuple[str, ...]:
    """The images that have to be in the engine before a build without a network."""
    if isinstance(image.base, BootstrappedBase):
        return () if image.locks_apt else (image.base.reference,)
    return tuple(filter(None, (image.base.pinned, image.build_base)))


def summary(transfers: Sequence[Transfer]) -> str:
    """Counts and bytes, kind by kind."""
    rows = []
    for kind, name in KINDS.items():
        of_kind = [one for one in transfers if one.file.kind == kind]
        if of_kind:
            size = sum(one.path.stat().st_size for one in of_kind if one.path)
            fetched = sum(one.fetched for one in of_kind)
            new = f", {format_bytes(fetched)} fetched now" if fetched else ""
            rows.append((name, f"{len(of_kind):,}", f"{format_bytes(size)}{new}"))
    return format_table(rows, align="lr")


def _said(one: Transfer) -> tuple[tuple[str, str], ...]:
    if isinstance(one.failure, MissingError):
        return one.failure.missing.said or (("", "no source is known"),)
    return (("", _why(one.failure) if one.failure else ""),)


def _rows(files: Sequence[RequiredFile], needed: RequiredFiles) -> tuple[tuple[str, ...], ...]:
    rows = [(one.file, f"for {', '.join(needed.images.get(one, ()))}") for one in files[:_MOST_FILES]]
    more = [(f"and {len(files) - _MOST_FILES} more", "")] if len(files) > _MOST_FILES else []
    return (*rows, *more)


def _why(error: Exception) -> str:
    """What else than a source keeps a file from coming here."""
    if isinstance(error, OSError):
        if error.errno == errno.ENOSPC:
            return "the disk is full"
        if error.errno == errno.ENOTDIR and error.filename:
            return f"`{_file_above(Path(error.filename))}` is a file, and no folder"
        where = f" in {Path(error.filename).parent}" if error.filename else ""
        return f"{(error.strerror or str(error)).lower()}{where}"
    return str(error)


def _file_above(path: Path) -> Path:
    """What lies in a path where a folder should."""
    return next((one for one in (path, *path.parents) if one.exists() and not one.is_dir()), path)
