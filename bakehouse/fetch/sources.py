"""Sources of each file: mirrors first, then its URL, the indexes, apt's mirrors."""

import os
import re
import subprocess
import sys
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

from bakehouse.fetch import apt_config, s3, simple_index
from bakehouse.fetch.connection import PORTS, ConnectionSettings, Proxies, origin_of, redacted
from bakehouse.fetch.http_client import HttpClient, SourceError, SourceResponse
from bakehouse.fetch.pip_config import PipConfig
from bakehouse.fetch.required_files import RequiredFile
from bakehouse.fetch.s3 import S3Files
from bakehouse.util.deadline import OverdueError, bounded

_MOST_PAGE = 64 * 10**6
_APT_LOGINS = Path("/etc/apt/auth.conf")
_PYTHON = ("wheel", "sdist")
_APT_SECONDS = 15.0
"""apt fetches its lists where it has none, and knows no bounds where nobody answers."""

T = TypeVar("T")


def _once(make: Callable[["DownloadConfig"], T]) -> cached_property[T]:
    """`cached_property` with a lock: since Python 3.12 the standard one may run in several threads."""
    lock, name = threading.RLock(), make.__name__

    def made(machine: "DownloadConfig") -> T:
        with lock:
            if name not in machine.__dict__:
                machine.__dict__[name] = make(machine)
            found: T = machine.__dict__[name]
            return found

    made.__name__ = name
    return cached_property(made)


@dataclass(frozen=True, slots=True)
class Offer:
    """A source that may have a file."""

    name: str
    """Name in messages, without credentials."""
    place: str
    """Server of the source: sources on one server fail together."""
    open: Callable[[int, str], AbstractContextManager[SourceResponse]]
    """Gives the bytes from a position on, where they are still those of a validator. Raises SourceError."""


@dataclass(frozen=True)
class DownloadConfig:
    """Sources of files: mirrors, pip's indexes, apt's mirrors."""

    mirrors: tuple[str, ...]
    """Folders, and URL prefixes under which a file lies at `<sha256>/<name>`."""
    pip: PipConfig
    certificates: Path | None
    environment: Mapping[str, str]

    @_once
    def folders(self) -> tuple[Path, ...]:
        """Folders whose files are found by their sha256."""
        found = (folder_of(one) for one in (*self.mirrors, *self.pip.find_links))
        return tuple(dict.fromkeys(one for one in found if one))

    @_once
    def indexes(self) -> tuple[str, ...]:
        """pip's indexes, as pip asks them."""
        if self.pip.no_index:
            return ()
        return tuple(filter(None, (self.pip.index_url or default_index(), *self.pip.extra_index_urls)))

    def offers(self, file: RequiredFile) -> Iterator[Offer]:
        """All sources outside this machine, in the order in which they are asked."""
        name = f"{file.sha256}/{quote(file.file)}"
        for prefix in self.mirrors:
            if _is_web(prefix):
                yield _at(self._web, _below(prefix, name), f"mirror `{redacted(prefix)}`")
            elif prefix.startswith("s3://"):
                yield self._in_s3(prefix, f"{file.sha256}/{file.file}")
        if file.kind == "url":
            yield _at(self._web, file.address, f"`{redacted(file.address)}`")
        elif file.kind == "deb" and _is_web(file.address):
            yield _at(self._apt_web, file.address, f"`{redacted(file.address)}`")
        elif file.kind in _PYTHON:
            yield from self._in_indexes(file)
        else:
            yield from self._in_archives(file)

    def _in_s3(self, prefix: str, name: str) -> Offer:
        files = self._s3.setdefault(prefix, S3Files(prefix))

        @contextmanager
        def opened(start: int, validator: str) -> Iterator[SourceResponse]:
            with files.open(name, start, validator) as found:
                yield found

        return Offer(f"mirror `{prefix.rstrip('/')}`", prefix, opened)

    def _in_indexes(self, file: RequiredFile) -> Iterator[Offer]:
        for index in self.indexes:
            page = f"{index.rstrip('/')}/{canonicalize_name(file.project)}/"
            if _is_web(index):
                yield Offer(f"index `{redacted(index)}`", origin_of(index), partial(self._linked, page, file))
        for links in self.pip.find_links:
            if _is_web(links):
                yield Offer(
                    f"links `{redacted(links)}`", origin_of(links), partial(self._linked, links, file)
                )

    def size(self, address: str) -> int | None:
        """Return the size of a file at a URL; None if its server does not send it. Raises SourceError."""
        with self._pip_web.open(address) as reply:
            return reply.total

    def here(self, file: RequiredFile) -> Iterator[Path]:
        """Yield paths in local indexes that may be the file; the caller compares the bytes."""
        if file.kind not in _PYTHON:
            return
        for index in self.indexes:
            folder = folder_of(index)
            page = folder / canonicalize_name(file.project) / "index.html" if folder else None
            if page and page.is_file():
                for link in simple_index.links(page.read_text(errors="replace"), "", page.as_uri()):
                    url = urlsplit(link.url)
                    if link.file == file.file and url.scheme == "file":
                        yield Path(url2pathname(url.path))

    @contextmanager
    def _linked(self, page: str, file: RequiredFile, start: int, validator: str) -> Iterator[SourceResponse]:
        """Open the file that an index page links to."""
        with self._pip_web.open(page, accept=simple_index.ACCEPT) as answer:
            found = simple_index.links(answer.text(_MOST_PAGE), answer.kind, answer.address)
        named = [link for link in found if link.file == file.file]
        if not named:
            reason = "does not have the file"
            raise SourceError(reason)
        same = [link for link in named if link.sha256 in ("", file.sha256)]
        if not same:
            reason = "has a different file of that name"
            raise SourceError(reason)
        with self._pip_web.open(same[0].url, start=start, validator=validator) as reply:
            yield reply

    def _in_archives(self, file: RequiredFile) -> Iterator[Offer]:
        if self._archives is None:
            yield Offer("apt's mirrors", "apt", _untold)
        for root in self._archives or ():
            url = f"{root}/{quote(_pool_path(file))}"
            yield _at(self._apt_web, url, f"apt's mirror `{redacted(root)}`")

    @_once
    def _archives(self) -> tuple[str, ...] | None:
        """The roots of what this machine's apt asks; other kinds of addresses than HTTP are apt's alone.

        None where apt doesn't tell in time.
        """
        try:
            found = bounded(apt_config.sources, time.monotonic() + _APT_SECONDS)
        except OverdueError:
            return None
        roots = (source.url.rstrip("/") for source in found)
        return tuple(dict.fromkeys(root for root in roots if urlsplit(root).scheme in ("http", "https")))

    @_once
    def _s3(self) -> dict[str, S3Files]:
        return {}

    @_once
    def _web(self) -> HttpClient:
        proxies = Proxies.of_environment(self.environment)
        return HttpClient(ConnectionSettings(proxies, self.certificates), self.environment)

    @_once
    def _pip_web(self) -> HttpClient:
        pip = self.pip
        proxies = Proxies.of_environment(self.environment)
        if pip.proxy:
            proxies = Proxies({"http": pip.proxy, "https": pip.proxy})
        settings = ConnectionSettings(
            proxies,
            self.certificates,
            unchecked=pip.trusted_hosts,
            addresses=(*self.indexes, *pip.find_links),
            keyring=pip.keyring,
        )
        return HttpClient(settings, self.environment)

    @_once
    def _apt_web(self) -> HttpClient:
        own = ConnectionSettings(Proxies.of_environment(self.environment), self.certificates)
        return HttpClient(apt_settings(apt_config.settings(), own), self.environment)


@contextmanager
def _untold(start: int, validator: str) -> Iterator[SourceResponse]:
    failure = f"apt has no package lists and did not download them within {_APT_SECONDS:.0f} s"
    reason = f"{failure}; run `apt-get update`"
    raise SourceError(reason, is_down=True)
    yield


def apt_settings(given: Mapping[str, str], own: ConnectionSettings) -> ConnectionSettings:
    """Return the connection settings that apt's configuration sets."""
    by_scheme, by_host = dict(own.proxies.by_scheme), dict[str, str]()
    certificates, unchecked = own.certificates, own.unchecked
    for key, value in given.items():
        match key.lower().split("::") if value else ():
            case ["acquire", "http", "proxy"]:
                # apt goes through it for https too, unless that has one of its own.
                by_scheme = {"https": value, **by_scheme, "http": value}
            case ["acquire", "https", "proxy"]:
                by_scheme["https"] = value
            case ["acquire", "http" | "https", "proxy", host]:
                by_host[host] = value
            case ["acquire", "https", "cainfo", *_]:
                certificates = Path(value)
            case ["acquire", "https", "verify-peer"] if value.lower() in ("false", "no", "0", "off"):
                unchecked = ("*",)
    proxies = replace(own.proxies, by_scheme=by_scheme, by_host=by_host)
    logins = (_APT_LOGINS, *sorted(_APT_LOGINS.with_name("auth.conf.d").glob("*.conf")))
    return replace(own, proxies=proxies, certificates=certificates, unchecked=unchecked, apt_logins=logins)


def folder_of(address: str) -> Path | None:
    """A folder given as a path or a file:// URL; None for other URLs, and for folders that aren't there."""
    try:
        url = urlsplit(address)
    except ValueError:
        return None
    if url.scheme not in ("", "file") or not address:
        return None
    path = Path(url2pathname(url.path) if url.scheme else address).expanduser()
    return path.absolute() if path.is_dir() else None


def default_index() -> str:
    """The index that pip asks where nobody has set another; uv knows it."""
    uv = Path(sys.executable).with_name("uv")
    command = [str(uv), "pip", "compile", "--quiet", "--no-config", "--emit-index-url", "--no-header", "-"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("UV_")}
    try:
        ended = subprocess.run(
            command, input="", env=environment, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return ""
    found = re.search(r"^--index-url (\S+)$", ended.stdout, re.MULTILINE)
    return found[1] if found else ""


def is_mirror(address: str) -> bool:
    """Return whether a text is the URL of a supported mirror."""
    return bool(origin_of(address) or s3.ADDRESS.fullmatch(address) or folder_of(address))


def _is_web(address: str) -> bool:
    return address.partition("://")[0].lower() in PORTS


def _below(prefix: str, name: str) -> str:
    """A place below an address, before its `?`: some stores take a signature there."""
    path, mark, query = prefix.partition("?")
    return f"{path.rstrip('/')}/{name}{mark}{query}"


def _pool_path(file: RequiredFile) -> str:
    """Below every mirror of Debian the same."""
    if file.kind == "deb":
        return file.address
    package = file.address.partition("=")[0]
    letter = package[:4] if package.startswith("lib") else package[:1]
    return f"pool/main/{letter}/{package}/{file.file}"


def _at(web: HttpClient, address: str, name: str) -> Offer:
    @contextmanager
    def opened(start: int, validator: str) -> Iterator[SourceResponse]:
        with web.open(address, start=start, validator=validator) as reply:
            yield reply

    return Offer(name, origin_of(address), opened)
