"""Reader of package index pages in HTML and JSON (PEP 503 and 691)."""

import json
from dataclasses import dataclass
from html.parser import HTMLParser
from urllib.parse import unquote, urljoin, urlsplit

ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
JSON = "application/vnd.pypi.simple.v1+json"


@dataclass(frozen=True, slots=True)
class Link:
    """A file that a page names."""

    url: str
    sha256: str
    """Empty where the page doesn't say."""

    @property
    def file(self) -> str:
        return unquote(urlsplit(self.url).path.rpartition("/")[2])


def links(text: str, kind: str, address: str) -> tuple[Link, ...]:
    """Return the links of an index page; `address` is its URL. Empty if it is not an index page."""
    found = _in_json(text) if kind == JSON else _in_html(text)
    return tuple(Link(whole, sha256) for url, sha256 in found if (whole := _whole(address, url)))


def _whole(address: str, url: str) -> str:
    """Empty for what is no address: a page may have anything, and some other file is wanted."""
    try:
        whole = urljoin(address, url)
        urlsplit(whole)
    except ValueError:
        return ""
    return whole


def _in_json(text: str) -> list[tuple[str, str]]:
    try:
        files = json.loads(text)["files"]
        return [(str(one["url"]), str(one.get("hashes", {}).get("sha256", ""))) for one in files]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return []


def _in_html(text: str) -> list[tuple[str, str]]:
    anchors = Anchors()
    anchors.feed(text)
    found = []
    for attributes, _ in anchors.found:
        url, _, fragment = (dict(attributes).get("href") or "").partition("#")
        found.append((url, fragment.removeprefix("sha256=") if fragment.startswith("sha256=") else ""))
    return found


class Anchors(HTMLParser):
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
