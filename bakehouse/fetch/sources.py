"""Sources of each file: mirrors first, then its URL, the package indexes and Debian's mirrors."""

import hashlib
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, urlsplit
from urllib.request import url2pathname

from packaging.utils import canonicalize_name
from uv import find_uv_bin

from bakehouse.fetch import apt_config, s3, simple_index, wheel_metadata
from bakehouse.fetch.connection import PORTS, ConnectionSettings, Proxies, origin_of, redacted
from bakehouse.fetch.debian_mirrors import DebianMirrors, apt_connection
from bakehouse.fetch.faults import Fault, SourceError, status_error
from bakehouse.fetch.http_client import HttpClient, SourceResponse, TransferSpeed
from bakehouse.fetch.pip_config import PipConfig
from bakehouse.fetch.required_files import RequiredFile
from bakehouse.fetch.s3 import S3Files
from bakehouse.util import git
from bakehouse.util.deadline import OverdueError, bounded
from bakehouse.util.files import expand_home
from bakehouse.util.format import format_bytes, format_count

_MAX_PAGE_BYTES = 64 * 10**6
_PYTHON = ("wheel", "sdist")
NO_PROJECT = "no index has the project"
_ON_EVERY_INDEX = "pip"
"""A project that every index for `pip install` should have."""
_MIRROR_SECONDS = 15.0
"""Time limit for the mirrors of apt's configuration, which may belong to other distributions."""

T = TypeVar("T")


def _once(make: Callable[["DownloadConfig"], T]) -> cached_property[T]:
    """Return a `cached_property` with a lock, which the standard one lacks since Python 3.12."""
    lock, name = threading.RLock(), make.__name__

    def locked(config: "DownloadConfig") -> T:
        with lock:
            if name not in config.__dict__:
                config.__dict__[name] = make(config)
            value: T = config.__dict__[name]
            return value

    locked.__name__ = name
    return cached_property(locked)


@dataclass(frozen=True, slots=True)
class Offer:
    """A source that may have a file."""

    name: str
    """Name in messages, without credentials."""
    place: str
    """Server of the source: sources on one server fail together."""
    open: Callable[[int, str], AbstractContextManager[SourceResponse]]
    """Opens the file at a position if it still matches a validator, otherwise at 0. Raises SourceError."""


@dataclass(frozen=True)
class DownloadConfig:
    """Sources of files: mirrors, pip's indexes, Debian's mirrors."""

    mirrors: tuple[str, ...]
    """Directories, and URL prefixes with files at `<sha256>/<name>`."""
    pip: PipConfig
    certificates: Path | None
    environment: Mapping[str, str]
    debian_mirrors: tuple[str, ...] = ()

    @_once
    def folders(self) -> tuple[Path, ...]:
        """Directories whose files are found by sha256."""
        return tuple(dict.fromkeys(filter(None, map(directory_of, (*self.mirrors, *self.pip.find_links)))))

    @_once
    def indexes(self) -> tuple[str, ...]:
        """pip's indexes, in pip's order."""
        if self.pip.no_index:
            return ()
        return tuple(filter(None, (self.pip.index_url or default_index(), *self.pip.extra_index_urls)))

    def offers(self, file: RequiredFile) -> Iterator[Offer]:
        """Yield all sources outside this machine, in the order of use."""
        name = f"{file.sha256}/{quote(file.file)}"
        for prefix in self.mirrors:
            if _is_web(prefix):
                yield _at(self._web, _below(prefix, name), f"mirror `{redacted(prefix)}`")
            elif prefix.startswith("s3://"):
                files = self._s3.setdefault(prefix, S3Files(prefix))
                path = f"{file.sha256}/{file.file}"
                yield Offer(f"mirror `{prefix.rstrip('/')}`", prefix, partial(files.open, path))
        if file.kind == "url":
            yield _at(self._web, file.address, f"`{redacted(file.address)}`")
        elif file.kind == "deb" and _is_web(file.address):
            yield _at(self._apt_web, file.address, f"`{redacted(file.address)}`")
        elif file.kind in _PYTHON:
            if _is_web(file.origin):
                yield _at(self._pip_web, file.origin, f"`{redacted(file.origin)}`")
            if file.origin.startswith(git.PREFIX):
                source = git.parse(file.origin)
                yield Offer(f"`{source.url}`", source.url, partial(_committed, source))
            yield from self._in_indexes(file)
        else:
            yield from self._in_archives(file)

    def _in_indexes(self, file: RequiredFile) -> Iterator[Offer]:
        for index in self.indexes:
            page = _project_page(index, file.project)
            if _is_web(index):
                yield Offer(f"index `{redacted(index)}`", origin_of(index), partial(self._linked, page, file))
        for links in self.pip.find_links:
            if _is_web(links):
                yield Offer(
                    f"links `{redacted(links)}`", origin_of(links), partial(self._linked, links, file)
                )

    def check_mirror(self, address: str) -> str:
        """Return a description of a mirror, for display. Raises SourceError if it does not serve files."""
        if not _is_web(address) and not s3.ADDRESS.fullmatch(address):
            return _entries(address)
        # The files of a mirror are unknown, so request one that does not exist.
        name = "0" * 64 + "/bakehouse"
        try:
            if _is_web(address):
                with self._web.open(_below(address, name)):
                    pass
            else:
                with S3Files(address).open(name, 0, ""):
                    pass
        except SourceError as error:
            if error.fault is not Fault.MISSING:
                raise
        return "answers"

    def check_index(self, index: str) -> str:
        """Return a description of an index, for display. Raises SourceError if it does not serve packages.

        The first index must have `pip`. The others may contain only other projects.
        """
        if not _is_web(index):
            return _entries(index)
        page = f"{index.rstrip('/')}/{_ON_EVERY_INDEX}/"
        try:
            count = self._count_links(page)
        except SourceError as error:
            if error.fault is not Fault.MISSING or index == self.indexes[0]:
                raise
            return "answers"
        if not count:
            reason = f"its page of `{_ON_EVERY_INDEX}` lists no file"
            raise SourceError(reason)
        return f"{format_count(count, 'file')} of `{_ON_EVERY_INDEX}`"

    def check_links(self, address: str) -> str:
        """Return a description of a `find-links` directory or page. Raises SourceError if it has no files."""
        if not _is_web(address):
            return _entries(address)
        count = self._count_links(address)
        if not count:
            reason = "it lists no file"
            raise SourceError(reason)
        return format_count(count, "file")

    def _count_links(self, page: str) -> int:
        with self._pip_web.open(page, accept=simple_index.ACCEPT) as response:
            return len(simple_index.links(response.text(_MAX_PAGE_BYTES), response.kind, response.address))

    def check_suite(self, url: str, suite: str) -> None:
        """Raise SourceError if an apt mirror does not have a suite."""
        release = f"{url.rstrip('/')}/dists/{suite}/Release"
        if _is_web(url):
            with self._apt_web.open(release):
                return
        _read(Path(url2pathname(urlsplit(release).path)), Path.read_bytes)

    @property
    def web_indexes(self) -> tuple[str, ...]:
        """The indexes that are not directories, without duplicates."""
        return tuple(dict.fromkeys(filter(_is_web, self.indexes)))

    def project(self, name: str) -> tuple[simple_index.IndexFile, ...]:
        """Return the files of a project in the first index that has it. Raises SourceError."""
        for index in self.web_indexes:
            try:
                return self._page(_project_page(index, name))
            except SourceError as error:
                if error.fault is not Fault.MISSING:
                    raise
        raise SourceError(NO_PROJECT, Fault.MISSING)

    def pages(self, name: str) -> dict[str, tuple[simple_index.IndexFile, ...]]:
        """Return the files of a project in each index; none if an index lacks it. Raises SourceError."""
        links: dict[str, tuple[simple_index.IndexFile, ...]] = {}
        for index in self.web_indexes:
            try:
                links[index] = self._page(_project_page(index, name))
            except SourceError as error:
                # Indexes in S3 deny access to a missing project.
                if error.fault not in (Fault.MISSING, Fault.DENIED):
                    reason = f"{redacted(index)} {error.reason}"
                    raise SourceError(reason, error.fault) from error
                links[index] = ()
        return links

    def linked_pages(self) -> list[tuple[simple_index.IndexFile, ...]]:
        """Return the files of each page of `find-links`. Raises SourceError."""
        return [self._page(links) for links in self.pip.find_links if _is_web(links)]

    def _page(self, url: str) -> tuple[simple_index.IndexFile, ...]:
        with self._pip_web.open(url, accept=simple_index.ACCEPT) as response:
            return simple_index.links(response.text(_MAX_PAGE_BYTES), response.kind, response.address)

    def wheel_metadata(self, link: simple_index.IndexFile) -> str:
        """Return the METADATA of a wheel without downloading the wheel. Raises SourceError."""
        return wheel_metadata.read(self._pip_web, link)

    def page(self, url: str, limit: int) -> str:
        """Return the text of a page outside the package indexes. Raises SourceError."""
        with self._web.open(url, accept="application/json, text/html;q=0.9, text/plain;q=0.8") as response:
            return response.text(limit)

    def sha256(self, url: str, limit: int) -> str:
        """Return the sha256 of a file outside the package indexes. Raises SourceError."""
        digest, count, speed = hashlib.sha256(), 0, TransferSpeed()
        with self._web.open(url) as response:
            if response.kind == "text/html":
                reason = "answered with a page instead of a file"
                raise SourceError(reason)
            if (response.total or 0) > limit:
                reason = f"has a file larger than {format_bytes(limit)}"
                raise SourceError(reason)
            for chunk in response.chunks():
                speed.add(len(chunk))
                digest.update(chunk)
                if (count := count + len(chunk)) > limit:
                    reason = f"has a file larger than {format_bytes(limit)}"
                    raise SourceError(reason)
            if response.total is not None and count != response.total:
                reason = f"was cut off after {count} of {response.total} bytes"
                raise SourceError(reason, Fault.CUT_OFF)
        return digest.hexdigest()

    def size(self, address: str) -> int | None:
        """Return the size of a file at a URL; None if its server does not send it. Raises SourceError."""
        with self._pip_web.open(address) as reply:
            return reply.total

    def here(self, file: RequiredFile) -> Iterator[Path]:
        """Yield paths in local indexes that may be the file; the caller verifies the sha256."""
        if file.kind not in _PYTHON:
            return
        if file.origin and "://" not in file.origin:
            yield Path(file.origin)
        for index in self.indexes:
            folder = directory_of(index)
            page = folder / canonicalize_name(file.project) / "index.html" if folder else None
            if page and page.is_file():
                for link in simple_index.links(page.read_text(errors="replace"), "", page.as_uri()):
                    url = urlsplit(link.url)
                    if link.file == file.file and url.scheme == "file":
                        yield Path(url2pathname(url.path))

    @contextmanager
    def _linked(self, page: str, file: RequiredFile, start: int, validator: str) -> Iterator[SourceResponse]:
        """Open the file that an index page links to."""
        with self._pip_web.open(page, accept=simple_index.ACCEPT) as response:
            links = simple_index.links(response.text(_MAX_PAGE_BYTES), response.kind, response.address)
        links = tuple(link for link in links if link.file == file.file)
        if not links:
            raise status_error(404)
        matches = [link for link in links if link.sha256 in ("", file.sha256)]
        if not matches:
            reason = "has a different file of that name"
            raise SourceError(reason)
        with self._pip_web.open(matches[0].url, start=start, validator=validator) as response:
            yield response

    def _in_archives(self, file: RequiredFile) -> Iterator[Offer]:
        if self._archives is None:
            yield Offer("Debian mirrors", "Debian", _overdue)
        for root in self._archives or ():
            url = f"{root}/{quote(_pool_path(file))}"
            yield _at(self._apt_web, url, f"Debian mirror `{redacted(root)}`")

    @_once
    def _archives(self) -> tuple[str, ...] | None:
        """Root URLs of Debian's mirrors, if they use HTTP; None if they do not answer in time."""
        try:
            roots = bounded(self.debian.roots, time.monotonic() + _MIRROR_SECONDS)
        except OverdueError:
            return None
        return tuple(dict.fromkeys(root for root in roots if urlsplit(root).scheme in ("http", "https")))

    @_once
    def _s3(self) -> dict[str, S3Files]:
        return {}

    @_once
    def _web(self) -> HttpClient:
        return HttpClient(self._connection, self.environment)

    @_once
    def _pip_web(self) -> HttpClient:
        pip = self.pip
        settings = replace(
            self._connection,
            unchecked=pip.trusted_hosts,
            addresses=(*self.indexes, *pip.find_links),
            keyring=pip.keyring,
        )
        if pip.proxy:
            settings = replace(settings, proxies=Proxies({"http": pip.proxy, "https": pip.proxy}))
        return HttpClient(settings, self.environment)

    @_once
    def _apt_web(self) -> HttpClient:
        return HttpClient(apt_connection(apt_config.settings(), self._connection), self.environment)

    @_once
    def debian(self) -> DebianMirrors:
        """The mirrors of Debian."""
        return DebianMirrors(self._apt_web, self.debian_mirrors)

    @property
    def _connection(self) -> ConnectionSettings:
        certificates = (self.certificates,) if self.certificates else ()
        return ConnectionSettings(Proxies.of_environment(self.environment), certificates)


def _entries(address: str) -> str:
    """Return the number of entries of a local directory. Raises SourceError if it is missing or empty."""
    path = Path(url2pathname(urlsplit(address).path) if address.startswith("file:") else address)
    count = len(_read(expand_home(str(path)), os.listdir))
    if not count:
        reason = "the directory is empty"
        raise SourceError(reason)
    return f"{count} entries" if count > 1 else "1 entry"


def _read(path: Path, read: Callable[[Path], T]) -> T:
    try:
        return read(path)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise SourceError(reason) from None


@dataclass
class _Archive:
    """Archive of a commit, as a response."""

    content: bytes
    total: int | None
    start: int = 0
    validator: str = ""

    def chunks(self) -> Iterator[bytes]:
        yield self.content


@contextmanager
def _committed(source: git.GitSource, start: int, validator: str) -> Iterator[SourceResponse]:
    """Make the archive of a commit."""
    try:
        content = git.archive(git.files_of(source))
    except git.GitError as error:
        raise SourceError(str(error)) from error
    yield _Archive(content, len(content))


@contextmanager
def _overdue(start: int, validator: str) -> Iterator[SourceResponse]:
    reason = f"the mirrors of apt's configuration did not answer within {_MIRROR_SECONDS:.0f} s"
    raise SourceError(reason, Fault.SETTINGS)
    yield


def directory_of(address: str) -> Path | None:
    """Return the directory of a path or a file:// URL; None for other URLs and missing directories."""
    try:
        url = urlsplit(address)
    except ValueError:
        return None
    if url.scheme not in ("", "file") or not address:
        return None
    path = expand_home(url2pathname(url.path) if url.scheme else address)
    return path.absolute() if path.is_dir() else None


def _project_page(index: str, name: str) -> str:
    return f"{index.rstrip('/')}/{canonicalize_name(name)}/"


def default_index() -> str:
    """Return pip's default index, from uv."""
    command = [
        find_uv_bin(),
        "pip",
        "compile",
        "--quiet",
        "--no-config",
        "--emit-index-url",
        "--no-header",
        "-",
    ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("UV_")}
    process = subprocess.run(command, input="", env=environment, capture_output=True, text=True, check=False)
    match = re.search(r"^--index-url (\S+)$", process.stdout, re.MULTILINE)
    return match[1] if match else ""


def is_mirror(address: str) -> bool:
    """Return whether a text is the URL of a supported mirror."""
    return bool(origin_of(address) or s3.ADDRESS.fullmatch(address) or directory_of(address))


def _is_web(address: str) -> bool:
    return address.partition("://")[0].lower() in PORTS


def _below(prefix: str, name: str) -> str:
    """Append to the path of a URL and keep its query, in which some servers expect a signature."""
    path, mark, query = prefix.partition("?")
    return f"{path.rstrip('/')}/{name}{mark}{query}"


def _pool_path(file: RequiredFile) -> str:
    """Return the path of a Debian file, which is the same on all mirrors."""
    if file.kind == "deb":
        return file.address
    package = file.address.partition("=")[0]
    letter = package[:4] if package.startswith("lib") else package[:1]
    return f"pool/main/{letter}/{package}/{file.file}"


def _at(web: HttpClient, address: str, name: str) -> Offer:
    return Offer(
        name, origin_of(address), lambda start, validator: web.open(address, start=start, validator=validator)
    )
