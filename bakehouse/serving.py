"""Serves folders of this machine to the steps of a build, over HTTP, while the build runs.

`sha256/<hash>/<file>` finds a file in the mirror folders by its hash; `index/<n>/<project>/` is a package
index that lies in a folder, `links/<n>/` a folder of packages. Nothing else of the machine can be read.
"""

import contextlib
import html
import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote, urljoin, urlsplit
from urllib.request import url2pathname

from bakehouse import fileserver
from bakehouse.mirrors import Hashes, Mirrors
from bakehouse.simple_index import Anchors, normal

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
def serve(shelves: Shelves, address: str, hashes: Hashes) -> Iterator[str]:
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
    page = folder / normal(project) / "index.html"
    if not _is_plain(project) or not page.is_file() or not _is_below(page, folder):
        return None
    anchors = Anchors()
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


def _at(folders: Sequence[Path], number: str) -> Path | None:
    return folders[int(number)] if re.fullmatch(r"\d{1,3}", number) and int(number) < len(folders) else None


def _is_plain(name: str) -> bool:
    return name not in ("", ".", "..") and not set(name) & {"/", "\\", "\0"}


def _is_below(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())
