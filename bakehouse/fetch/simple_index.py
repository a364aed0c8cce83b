"""Reader of package index pages in HTML and JSON (PEP 503, 592, 658, 691 and 700)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

from bakehouse.util.json_reader import parse_json

ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
JSON = "application/vnd.pypi.simple.v1+json"


@dataclass(frozen=True, slots=True)
class IndexFile:
    """A file on an index page."""

    url: str
    sha256: str
    """Empty if it is not on the page."""
    size: int | None = None
    uploaded: str = ""
    """Date of the upload, such as `2026-11-23`; empty if it is not on the page, as in HTML."""
    yanked: str | None = None
    """Reason why the file was yanked, which may be empty; None if it was not yanked."""
    requires_python: str = ""
    has_metadata: bool = False
    """The metadata of the wheel is at the URL with `.metadata` appended."""
    metadata_sha256: str = ""

    @property
    def file(self) -> str:
        return unquote(urlsplit(self.url).path.rpartition("/")[2])


def links(text: str, kind: str, address: str) -> tuple[IndexFile, ...]:
    """Return the links of an index page; `address` is its URL. Empty if it is not an index page."""
    listed = _in_json(text) if kind == JSON else _in_html(text)
    absolute = ((link, _absolute(address, link.url)) for link in listed)
    return tuple(replace(link, url=url) for link, url in absolute if url)


def _absolute(address: str, url: str) -> str:
    """Return an absolute URL; empty if it is invalid, so that the other links can still be used."""
    try:
        absolute = urljoin(address, url)
        urlsplit(absolute)
    except ValueError:
        return ""
    return absolute


def _in_json(text: str) -> list[IndexFile]:
    try:
        return [_link(file) for file in parse_json(text)["files"]]
    except (ValueError, KeyError, TypeError, AttributeError):
        return []


def _link(file: Mapping[str, Any]) -> IndexFile:
    yanked, metadata = file.get("yanked"), file.get("core-metadata", False)
    size = file.get("size")
    return IndexFile(
        str(file["url"]),
        str(file.get("hashes", {}).get("sha256", "")),
        size if isinstance(size, int) and size >= 0 else None,
        str(file.get("upload-time") or "")[:10],
        (yanked if isinstance(yanked, str) else "") if yanked else None,
        str(file.get("requires-python") or ""),
        bool(metadata),
        str(metadata.get("sha256", "")) if isinstance(metadata, dict) else "",
    )


def _in_html(text: str) -> list[IndexFile]:
    page = _Page()
    try:
        page.feed(text)
    except AssertionError:
        # Before Python 3.13, HTMLParser raises this error for an unknown `<![…`
        return []
    return page.links


class _Page(HTMLParser):
    """Collector of the links of a page, each with its sha256."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[IndexFile] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            values = dict(attrs)
            url, _, fragment = (values.get("href") or "").partition("#")
            metadata = values.get("data-core-metadata") or ""
            self.links.append(
                IndexFile(
                    url,
                    _sha256(fragment),
                    yanked=(values["data-yanked"] or "") if "data-yanked" in values else None,
                    requires_python=values.get("data-requires-python") or "",
                    has_metadata="data-core-metadata" in values,
                    metadata_sha256=_sha256(metadata),
                )
            )


def _sha256(text: str) -> str:
    return text.removeprefix("sha256=") if text.startswith("sha256=") else ""
