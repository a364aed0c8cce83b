"""Comparison of Python locks with the package indexes, because a commit can change a lock and its digests."""

import contextlib
import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from bakehouse.catalog.apt_lock import DIRECTORY, SUFFIX
from bakehouse.catalog.pins import FILE as PINS
from bakehouse.catalog.python_lock import Package, load_lock
from bakehouse.catalog.requirements_file import PYTORCH_INDEX, Requirements
from bakehouse.errors import Diagnostic, Location, Problems, Reason
from bakehouse.fetch import pip_config
from bakehouse.fetch.faults import SourceError
from bakehouse.fetch.pip_config import PipConfig
from bakehouse.fetch.sources import DownloadConfig
from bakehouse.lock.drift import Drift, DriftKind
from bakehouse.lock.python import Index
from bakehouse.lock.requirements_options import with_options
from bakehouse.plan.workspace import Workspace, is_own
from bakehouse.resolve.candidate import Candidate
from bakehouse.resolve.resolver import Resolution
from bakehouse.util import git
from bakehouse.util.files import matching_paths, read_bytes, read_text
from bakehouse.util.terminal import Reporter

_MAX_CONCURRENT_REQUESTS = 8
_MAX_DOWNLOAD = 200_000_000
"""Size of files outside indexes that a comparison downloads."""
_HOST = re.compile(rb"(?:https?|ssh)://(?:[^/\s\"'@]*@)?([A-Za-z0-9.-]+)")
_GIT = re.compile(rb"git\+[a-z]+://[^\s;,'\"]+")
_SITE = "Site:"
"""Field of an apt lock with the mirror of a package that not every mirror has."""
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


def foreign_sites(workspace: Workspace) -> Iterator[Diagnostic]:
    """Yield packages of the project's apt locks from hosts that no mirror, recipe or component names."""
    project = workspace.project
    roots = [root for root in project.recipe_roots if is_own(workspace, root)]
    named = [
        (Location(path, number, 1, len(line), line), _host(line.removeprefix(_SITE).strip()))
        for root in roots
        for path in matching_paths(root / DIRECTORY, f"*{SUFFIX}")
        for number, line in enumerate(read_text(path, errors="replace").splitlines(), 1)
        if line.startswith(_SITE)
    ]
    if not named:
        return
    downloads = DownloadConfig((), PipConfig(), None, os.environ, project.debian_mirrors)
    specs = (spec for item in workspace.catalog.components.values() for spec in item.specs)
    urls = (artifact.source for spec in specs for artifact in spec.artifacts)
    known = {_host(url) for url in (*downloads.debian.roots(), *urls)}
    for root in roots:
        for path in matching_paths(root / "images", "*.y*ml"):
            known |= {name.decode().lower() for name in _HOST.findall(_text(path))}
    for location, host in named:
        if host not in known:
            message = f"packages come from `{host}`, which neither a mirror nor a recipe names"
            hint = f"{_RESTORE}; if the base has this mirror, name its URL in a comment of the recipe"
            yield Diagnostic(message, location, hint=hint)


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


def pinned_files(candidates: Iterable[Candidate], certificates: Path | None) -> Iterator[Drift]:
    """Yield files whose sha256 in `pins.yaml` is not that of the publisher's file, or was not compared."""
    artifacts = {
        artifact.pin_name: (candidate, artifact)
        for candidate in candidates
        for artifact in candidate.spec.artifacts
        if artifact.sha256 and artifact.location.path.name == PINS
    }
    downloads = DownloadConfig((), pip_config.read(), certificates, os.environ)
    for name, (candidate, artifact) in artifacts.items():
        try:
            if artifact.kind == "url":
                found = {downloads.sha256(artifact.source, _MAX_DOWNLOAD)}
            else:
                pages = downloads.pages(artifact.source.partition("==")[0]).values()
                found = {link.sha256 for page in pages for link in page if link.file == artifact.file}
        except (SourceError, OSError) as error:
            reason = error.reason if isinstance(error, SourceError) else str(error)
            yield Drift(DriftKind.NOT_COMPARED, str(candidate), f"{name}: {reason}")
            continue
        if artifact.sha256 not in found:
            message = f"`{name}` in `{PINS}` is not the file of its publisher"
            facts = (("pinned", artifact.sha256 or ""), *(("published", item) for item in sorted(found)))
            problem = Diagnostic(message, artifact.location, facts=facts, hint=_RESTORE)
            yield Drift(DriftKind.FOREIGN, str(candidate), f"{artifact.file} has another sha256", problem)


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
        return _compared_commit(lock, git.parse(origin))
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


def _compared_commit(lock: LockedFiles, locked: git.GitSource) -> _Answer:
    """Compare a commit with the commit, branch or tag of the requirements."""
    named = []
    for match in _GIT.findall(lock.sources):
        with contextlib.suppress(ValueError):
            named.append(git.parse(match.decode(errors="replace")))
    sources = [item for item in named if item.url.removesuffix(".git") == locked.url.removesuffix(".git")]
    if not sources:
        return DriftKind.FOREIGN, "comes from another repository"
    try:
        for source in sources:
            if source.revision == locked.revision or git.commit_of(source) == locked.revision:
                return None, ""
            if not source.is_commit and git.has_commit(source, locked.revision):
                return None, ""
    except git.GitError as error:
        return DriftKind.NOT_COMPARED, f"`{locked.url}` {error}"
    names = " or ".join(f"`{source.revision or 'HEAD'}`" for source in sources)
    return DriftKind.FOREIGN, f"is of a commit that is not in the history of {names}"


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
