"""Reader of JSON documents that other tools wrote; a value of a wrong type is an error with its path."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Never

from bakehouse.errors import Location, RecipeError
from bakehouse.util.files import display_path, read_bytes
from bakehouse.util.format import format_bytes
from bakehouse.util.json_reader import parse_json
from bakehouse.util.terminal import printable

MAX_BYTES = 256_000_000
_DAY = re.compile(r"\d{4}-\d\d-\d\d")


class DocumentError(Exception):
    """A document that does not follow its format, with the reason."""


@dataclass(frozen=True, slots=True)
class DocumentValue:
    """A value of a document, with its path for messages."""

    value: Any
    path: str = ""

    def __getitem__(self, key: str) -> "DocumentValue":
        """Return the value at a key; null if there is none."""
        if self.value is None:
            return DocumentValue(None, self._path(key))
        if not isinstance(self.value, dict):
            self._reject("an object")
        return DocumentValue(self.value.get(key), self._path(key))

    def __contains__(self, key: str) -> bool:
        return isinstance(self.value, dict) and key in self.value

    def __iter__(self) -> Iterator["DocumentValue"]:
        """Yield the items of a list; none for null."""
        if self.value is None:
            return
        if not isinstance(self.value, list):
            self._reject("a list")
        for index, item in enumerate(self.value):
            yield DocumentValue(item, f"{self.path}[{index}]")

    @property
    def text(self) -> str:
        """The text without control characters, which a terminal would interpret; empty for null."""
        if self.value is None:
            return ""
        if not isinstance(self.value, str):
            self._reject("a string")
        return printable(self.value).strip()

    @property
    def needed(self) -> str:
        """The text, which must not be empty."""
        text = self.text
        if not text:
            self._reject("a string that is not empty")
        return text

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(item.text for item in self)

    @property
    def day(self) -> str:
        """The day of a time, such as `2026-11-20`; empty for null."""
        match = _DAY.match(text := self.text)
        if text and not match:
            self._reject("a time in RFC 3339")
        return match[0] if match else ""

    def _path(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def _reject(self, kind: str) -> Never:
        message = f"`{self.path}` must be {kind}" if self.path else f"it must be {kind}"
        raise DocumentError(message)


def parse(content: bytes) -> DocumentValue:
    """Return the document in a text. Raises DocumentError."""
    try:
        return DocumentValue(parse_json(content))
    except ValueError as error:
        message = f"it is not valid JSON: {error}"
        raise DocumentError(message) from error


def read(path: Path) -> bytes:
    """Return the content of a file that the user names. Raises RecipeError."""
    try:
        if (size := path.stat().st_size) > MAX_BYTES:
            raise RecipeError(
                f"`{display_path(path)}` has {format_bytes(size)}",
                hint=f"use a file below {format_bytes(MAX_BYTES)}",
            )
        return read_bytes(path)
    except OSError as error:
        raise RecipeError(f"`{display_path(path)}` cannot be read: {error.strerror}") from error


def invalid(path: Path, kind: str, error: DocumentError, hint: str = "") -> RecipeError:
    """Return the error for a file that is not a document of this kind."""
    message = f"`{display_path(path)}` is not {kind}: {error}"
    return RecipeError(message, Location(path, 1, 1), hint=hint)
