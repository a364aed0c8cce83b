"""Text of web pages without markup."""

import re
from html.parser import HTMLParser

_IS_HTML = re.compile(r"\s*<(!doctype html|html)\b", re.IGNORECASE)
_INLINE = frozenset(
    {"a", "abbr", "b", "code", "em", "i", "kbd", "s", "samp", "small", "span", "strong", "tt", "u"}
)
"""Elements that do not end a line."""
_HIDDEN = frozenset({"script", "style"})


class _Lines(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self._hidden += tag in _HIDDEN
        self._end_line(tag)

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in _HIDDEN and self._hidden > 0
        self._end_line(tag)

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.parts.append(re.sub(r"\s+", " ", data))

    def _end_line(self, tag: str) -> None:
        if tag not in _INLINE:
            self.parts.append("\n")


def plain(page: str) -> str:
    """Return the text of an HTML page, each paragraph, item and cell on a line; other pages as they are."""
    if not _IS_HTML.match(page):
        return page
    parser = _Lines()
    parser.feed(page)
    parser.close()
    lines = (line.strip() for line in "".join(parser.parts).split("\n"))
    return "".join(f"{line}\n" for line in lines if line)
