"""Reader of package index pages in HTML and JSON (PEP 503 and 691)."""

import json
from dataclasses import dataclass
from html.parser import HTMLParser
from urllib.parse import unquote, urljoin, urlsplit

ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
JSON = "application/vnd.pypi.simple.v1+json"


@dataclass(frozen=True, slots=True)
class Link:
    """A file on an index page."""

    url: str
    sha256: str
    """Empty if it is not on the page."""

    @property
    def file(self) -> str:
        return unquote(urlsplit(self.url).path.rpartition("/")[2])


def links(text: str, kind: str, address: str) -> tuple[Link, ...]:
    """Return the links of an index page; `address` is its URL. Empty if it is not an index page."""
    files = _in_json(text) if kind == JSON else _in_html(text)
    return tuple(Link(absolute, sha256) for url, sha256 in files if (absolute := _absolute(address, url)))


def _absolute(address: str, url: str) -> str:
    """Return an absolute URL; empty for an invalid one, which must not hide the other links."""
    try:
        absolute = urljoin(address, url)
        urlsplit(absolute)
    except ValueError:
        return ""
    return absolute


def _in_json(text: str) -> list[tuple[str, str]]:
    try:
        files = json.loads(text)["files"]
        return [(str(file["url"]), str(file.get("hashes", {}).get("sha256", ""))) for file in files]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return []


def _in_html(text: str) -> list[tuple[str, str]]:
    page = _Page()
    page.feed(text)
    return page.links


class _Page(HTMLParser):
    """Collector of the links of a page, each with its sha256."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            url, _, fragment = (dict(attrs).get("href") or "").partition("#")
            self.links.append(
                (url, fragment.removeprefix("sha256=") if fragment.startswith("sha256=") else "")
            )
