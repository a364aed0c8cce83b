"""Comparison of Python locks with the package indexes, because a commit can change a lock and its digests."""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from bakehouse.catalog.python_lock import Package, load_lock
from bakehouse.catalog.requirements_file import PYTORCH_INDEX, Requirements
from bakehouse.errors import Diagnostic, Problems, Reason
from bakehouse.fetch.faults import SourceError
from bakehouse.fetch.pip_config import PipConfig
from bakehouse.fetch.sources import DownloadConfig
from bakehouse.lock.drift import Drift, DriftKind
from bakehouse.lock.python import Index
from bakehouse.lock.requirements_options import with_options
from bakehouse.resolve.candidate import Candidate
from bakehouse.resolve.resolver import Resolution
from bakehouse.util import git
from bakehouse.util.files import read_bytes
from bakehouse.util.terminal import Reporter

_MAX_CONCURRENT_REQUESTS = 8
_MAX_DOWNLOAD = 200_000_000
"""Size of files outside indexes that a comparison downloads."""
_HOST = re.compile(rb"(?:https?|ssh)://(?:[^/\s\"'@]*@)?([A-Za-z0-9.-]+)")
_Answer = tuple[DriftKind | None, str]
_RESTORE = "restore the lock, or run `bake lock` and review the change"


@dataclass(frozen=True, slots=True)
class LockedFiles:
    """The files of a lock, and where its packages may come from."""

    where: str
    """The image or the component."""
    packages: tuple[Package, ...]
    sources: bytes
    """Texts that the packages were locked from."""
    pip: PipConfig
    has_torch: bool = False
    """Its requirements name an index of PyTorch, which has two hosts."""

    @property
    def files(self) -> Iterator[Package]:
        """The packages that a build downloads, with their build requirements."""
        for package in self.packages:
            yield from (item for item in (package, *(package.build or ())) if item.file)


def of_requirements(resolution: Resolution, requirements: Requirements, pip: PipConfig) -> LockedFiles:
    """Return the files of the lock of an image's requirements."""
    recipe = resolution.recipe
    assert recipe.requirements
    packages = load_lock(recipe.requirements.lock, recipe.location, Problems(), recipe.name)
    searched = with_options(Index(pip, None), requirements, resolution).pip
    return LockedFiles(
        recipe.name, packages, b"\n".join(requirements.contents), searched, bool(requirements.torch_indexes)
    )


def of_component(candidate: Candidate, pip: PipConfig) -> LockedFiles | None:
    """Return the files of the lock of a component; None without one."""
    lock = candidate.spec.lock
    if lock is None or not lock.is_readable:
        return None
    return LockedFiles(str(candidate), lock.packages, _text(candidate.component.location.path), pip)


def foreign_hosts(locks: Iterable[LockedFiles]) -> Iterator[Diagnostic]:
    """Yield packages that come from hosts that neither their requirements nor this machine's indexes name."""
    for lock in locks:
        known = {name.decode().lower() for name in _HOST.findall(lock.sources)}
        known |= {
            _host(url) for url in (lock.pip.index_url, *lock.pip.extra_index_urls, *lock.pip.find_links)
        }
        for package in lock.files:
            host = _host(package.origin)
            if host and host not in known and not (lock.has_torch and PYTORCH_INDEX.match(package.origin)):
                message = f"`{package.name}` comes from `{host}`, which its requirements do not name"
                hint = f"{_RESTORE}; if an index links to files on this host, name its URL in a comment"
                yield Diagnostic(message, package.location, hint=hint)


def differences(locks: Iterable[LockedFiles], certificates: Path | None, report: Reporter) -> Iterator[Drift]:
    """Yield files that package indexes do not have, withdrew, or could not be asked for."""
    answers: dict[object, _Answer] = {}
    for lock in locks:
        files = {(lock.pip, file.file, file.sha256, file.origin): file for file in lock.files}
        new = {key: file for key, file in files.items() if key not in answers}
        if new:
            report(f"comparing {len(new)} Python packages of {lock.where} with the package index")
        downloads = DownloadConfig((), lock.pip, certificates, os.environ)
        with ThreadPoolExecutor(_MAX_CONCURRENT_REQUESTS) as pool:
            answers |= zip(new, pool.map(partial(_answer, lock, downloads), new.values()), strict=True)
        reasons = set()
        for key, package in files.items():
            kind, text = answers[key]
            if kind is DriftKind.FOREIGN:
                message = f"`{package.file}` in the lock of `{lock.where}` {text}"
                facts = (("locked", package.sha256),)
                error = Diagnostic(message, package.location, facts=facts, hint=_RESTORE)
                yield Drift(kind, lock.where, f"{package.name} {package.version} {text}", error)
            elif kind is DriftKind.YANKED:
                yield Drift(kind, lock.where, f"{package.name} {package.version}{text}")
            elif kind is DriftKind.NOT_COMPARED and text not in reasons:
                reasons.add(text)
                message = f"the lock of `{lock.where}` was not compared with the package index"
                hint = "run `bake lock --check` again when the index answers"
                error = Diagnostic(message, package.location, reasons=(Reason(text),), hint=hint)
                yield Drift(kind, lock.where, text, error)


def _answer(lock: LockedFiles, downloads: DownloadConfig, package: Package) -> _Answer:
    """Return the kind of difference of a file, with a text; None for the same file."""
    try:
        return _compared(lock, downloads, package)
    except SourceError as error:
        return DriftKind.NOT_COMPARED, error.reason
    except OSError as error:
        return DriftKind.NOT_COMPARED, str(error)


def _compared(lock: LockedFiles, downloads: DownloadConfig, package: Package) -> _Answer:
    origin = package.origin
    if origin.startswith(git.PREFIX):
        is_named = git.parse(origin).url.removesuffix(".git").encode() in lock.sources
        return (None, "") if is_named else (DriftKind.FOREIGN, "comes from another repository")
    if origin and "://" not in origin:
        is_same = _sha256(Path(origin)) == package.sha256
        return (None, "") if is_same else (DriftKind.FOREIGN, "differs from the file of the project")
    for folder in downloads.folders:
        path = folder / package.file
        if path.is_file() and _sha256(path) == package.sha256:
            return None, ""
    pages = [*downloads.pages(package.name).values(), *downloads.linked_pages()]
    links = [link for page in pages for link in page if link.file == package.file]
    for link in links:
        if link.sha256 == package.sha256:
            reason = f": {link.yanked}" if link.yanked else ""
            return (None, "") if link.yanked is None else (DriftKind.YANKED, reason)
    if any(link.sha256 for link in links):
        return DriftKind.FOREIGN, "has another sha256 than in the package index"
    if origin.encode() in lock.sources and package.sha256.encode() in lock.sources and origin:
        return None, ""
    url = links[0].url if links else origin if origin and origin.encode() in lock.sources else ""
    if not url:
        if not origin and not any(pages):
            return DriftKind.NOT_COMPARED, f"no package index of this machine has `{package.name}`"
        return DriftKind.FOREIGN, "is not in the package index"
    # Neither the index nor the requirements state its sha256
    is_same = downloads.sha256(url, _MAX_DOWNLOAD) == package.sha256
    return (None, "") if is_same else (DriftKind.FOREIGN, f"differs from {url}")


def _host(origin: str) -> str:
    """Return the host of a URL; empty for paths."""
    try:
        return (urlsplit(origin.removeprefix("git+")).hostname or "") if "://" in origin else ""
    except ValueError:
        return origin


def _text(path: Path) -> bytes:
    try:
        return read_bytes(path)
    except OSError:
        return b""


def _sha256(path: Path) -> str:
    return hashlib.sha256(read_bytes(path)).hexdigest()
