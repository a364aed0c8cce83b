"""Serves folders of this machine to the steps of a build, over HTTP, while the build runs.

`sha256/<hash>/<file>` finds a file in the mirror folders by its hash; `index/<n>/<project>/` is a package
index that lies in a folder, `links/<n>/` a folder of packages. Nothing else of the machine can be read.
"""

import contextlib
import hashlib
import html
import json
import os
import re
import secrets
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urljoin, urlsplit
from urllib.request import url2pathname

from bakehouse import fileserver
from bakehouse.files import write_whole
from bakehouse.plan import Sha256

_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]*\.(?:whl|tar\.gz|tar\.bz2|zip)(?:\.metadata)?")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Shelves:
    """The folders to be served, by kind."""

    mirrors: tuple[Path, ...] = ()
    indexes: tuple[Path, ...] = ()
    links: tuple[Path, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.mirrors or self.indexes or self.links)


@contextlib.contextmanager
def serve(shelves: Shelves, address: str, hashes: "Hashes") -> Iterator[str]:
    """Serve on a free port of `address`, below a prefix nobody can guess; gives the URL of that prefix.

    Raises OSError where this machine doesn't have the address.
    """
    token = secrets.token_urlsafe(24)
    mirrors = Mirrors(shelves.mirrors, hashes)
    handler = type("Handler", (_Handler,), {"shelves": shelves, "token": token, "mirrors": mirrors})
    try:
        with fileserver.serve(handler, address) as url:
            yield f"{url}/{token}"
    finally:
        hashes.save()


class Hashes:
    """The sha256 of files, remembered by path, size and time of change."""

    def __init__(self, memory: Path) -> None:
        self._memory = memory
        self._lock = threading.Lock()
        self._known: dict[str, list[Any]] = {}
        with contextlib.suppress(OSError, ValueError):
            self._known = json.loads(memory.read_text())
        self._is_new = False

    def sha256(self, path: Path) -> Sha256:
        stat = path.stat()
        with self._lock:
            size, changed, known = self._known.get(str(path), (0, 0, ""))
            if (size, changed) != (stat.st_size, stat.st_mtime_ns):
                with path.open("rb") as file:
                    known = hashlib.file_digest(file, "sha256").hexdigest()
                self._known[str(path)] = [stat.st_size, stat.st_mtime_ns, known]
                self._is_new = True
            return Sha256(known)

    def save(self) -> None:
        with self._lock:
            if self._is_new:
                write_whole(self._memory, json.dumps(self._known, sort_keys=True, indent=1) + "\n")


class Mirrors:
    """Folders of files that are known by their hash; read when somebody asks for the first time."""

    def __init__(self, folders: Sequence[Path], hashes: Hashes) -> None:
        self._folders, self._hashes = folders, hashes
        self._lock = threading.Lock()
        self._listing: dict[str, list[Path]] | None = None

    def named(self, name: str) -> tuple[Path, ...]:
        """The files of that name, in the order of the folders."""
        with self._lock:
            if self._listing is None:
                self._listing = {}
                for path in (path for folder in self._folders for path in _files_below(folder)):
                    self._listing.setdefault(unquote(path.name), []).append(path)
        return tuple(self._listing.get(name, ()))

    def sha256(self, path: Path) -> Sha256:
        return self._hashes.sha256(path)

    def find(self, sha256: str, name: str) -> Path | None:
        """The file with those bytes, among those called `name` or as their hash."""
        for path in (*self.named(name), *self.named(sha256)):
            with contextlib.suppress(OSError):
                if self._hashes.sha256(path) == sha256:
                    return path
        return None


class _Handler(fileserver.Handler):
    shelves: Shelves
    mirrors: Mirrors
    token: str

    def find(self, path: str) -> str | Path | None:
        token, *parts = [unquote(part) for part in path.split("/")[1:]] or [""]
        if not secrets.compare_digest(token.encode(), self.token.encode()):
            return None
        match parts:
            case ["sha256", sha256, name] if _SHA256.fullmatch(sha256):
                return self.mirrors.find(sha256, name)
            case ["links", number, name] if folder := _at(self.shelves.links, number):
                return _links(folder) if not name else _file(folder, folder / name)
            case ["index", number, project, name] if folder := _at(self.shelves.indexes, number):
                return _index(folder, project, name)
        return None


def _links(folder: Path) -> str:
    names = sorted(path.name for path in folder.iterdir() if _PACKAGE.fullmatch(path.name) and path.is_file())
    return _page([([("href", quote(name))], name) for name in names])


def _index(folder: Path, project: str, name: str) -> str | Path | None:
    """A project's page with its links made relative to it, or one of the files that the page links to."""
    page = folder / _normal(project) / "index.html"
    if not _is_plain(project) or not page.is_file() or not _is_below(page, folder):
        return None
    anchors = _Anchors()
    anchors.feed(page.read_text(errors="replace"))
    served, files = [], {}
    for attributes, text in anchors.found:
        url = urlsplit(urljoin(page.as_uri(), dict(attributes).get("href") or ""))
        if url.scheme == "file":
            path = Path(url2pathname(url.path))
            files[path.name] = path
            fragment = f"#{url.fragment}" if url.fragment else ""
            attributes = [(key, value) for key, value in attributes if key != "href"]
            attributes.append(("href", quote(path.name) + fragment))
        served.append((attributes, text))
    if not name:
        return _page(served)
    linked = files.get(name) or files.get(name.removesuffix(".metadata"))
    # The usual layout has `files/` beside `simple/`.
    root = folder.parent if folder.parent != Path(folder.anchor) else folder
    return _file(root, linked.with_name(name)) if linked else None


def _file(root: Path, path: Path) -> Path | None:
    return path if _PACKAGE.fullmatch(path.name) and path.is_file() and _is_below(path, root) else None


def _page(links: Sequence[tuple[Sequence[tuple[str, str | None]], str]]) -> str:
    lines = []
    for attributes, text in links:
        given = [key if value is None else f'{key}="{html.escape(value)}"' for key, value in attributes]
        lines.append(f"<a {' '.join(given)}>{html.escape(text)}</a><br>\n")
    return f"<!DOCTYPE html><html><body>\n{''.join(lines)}</body></html>\n"


class _Anchors(HTMLParser):
    """Collects a page's links: their attributes and their text."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[list[tuple[str, str | None]], str]] = []
        self._is_open = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.found.append((attrs, ""))
            self._is_open = True

    def handle_endtag(self, tag: str) -> None:
        self._is_open = self._is_open and tag != "a"

    def handle_data(self, data: str) -> None:
        if self._is_open:
            attributes, text = self.found[-1]
            self.found[-1] = (attributes, text + data.strip())


def _at(folders: Sequence[Path], number: str) -> Path | None:
    return folders[int(number)] if re.fullmatch(r"\d{1,3}", number) and int(number) < len(folders) else None


def _is_plain(name: str) -> bool:
    return name not in ("", ".", "..") and not set(name) & {"/", "\\", "\0"}


def _is_below(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())


def _files_below(folder: Path) -> Iterator[Path]:
    """Every file of a folder, those in hidden folders and links that lead out of it left out."""
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for path in (Path(place, name) for name in sorted(names)):
            if not path.is_symlink() or _is_below(path, folder):
                yield path


def _normal(project: str) -> str:
    return re.sub(r"[-_.]+", "-", project).lower()
