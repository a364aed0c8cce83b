"""Format numbers of the files that Bakehouse writes."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bakehouse import __version__
from bakehouse.errors import Location, RecipeError

KEY, WRITER = "format", "bakehouse"
"""Fields with the number of the format, and with the version of Bakehouse that wrote the file."""
UPGRADE = "upgrade Bakehouse; nothing was written"
RESTORE = "restore the committed file, or remove it"
_LINE = re.compile(r"\bformat ([^\s:,;]+)")


class NewerFormatError(ValueError):
    """A file has a format of a newer Bakehouse."""


def numbered(document: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Return a document with its format and this version of Bakehouse."""
    return {**document, KEY: number, WRITER: __version__}


def require_known(document: object, number: int, key: str = KEY) -> None:
    """Raise NewerFormatError for a format above `number`. Files without one have format 1."""
    written = document.get(key, 1) if isinstance(document, dict) else 1
    if type(written) is not int or written < 1:
        message = f"it has the unknown format {written!r}"
        raise ValueError(message)
    if written > number:
        assert isinstance(document, dict)
        writer = document.get(WRITER)
        by = f"Bakehouse {writer}" if isinstance(writer, str) else "a newer Bakehouse"
        message = f"{by} wrote it in format {written}; Bakehouse {__version__} reads formats up to {number}"
        raise NewerFormatError(message)


def require_known_line(content: str, number: int) -> None:
    """Raise NewerFormatError if the first line of a text, such as `# format 2`, has one above `number`."""
    match = _LINE.search(content.partition("\n")[0])
    require_known({KEY: int(match[1]) if match[1].isdecimal() else match[1]} if match else None, number)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn the ValueError of an unreadable committed file into a RecipeError."""
    try:
        yield
    except ValueError as error:
        is_newer = isinstance(error, NewerFormatError)
        raise RecipeError(
            f"cannot read `{path.name}`" if is_newer else f"`{path.name}` is damaged",
            Location(path, 1, 1),
            facts=(("because", str(error)),),
            hint=UPGRADE if is_newer else RESTORE,
        ) from error
