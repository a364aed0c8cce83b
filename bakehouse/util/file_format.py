"""Format numbers of the files that Bakehouse writes."""

from collections.abc import Mapping
from typing import Any

from bakehouse import __version__

KEY, WRITER = "format", "bakehouse"
"""Fields with the number of the format, and with the version of Bakehouse that wrote the file."""
UPGRADE = "upgrade Bakehouse; nothing was written"


class NewerFormatError(ValueError):
    """A file has a format of a newer Bakehouse."""


def numbered(document: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Return a document with its format and this version of Bakehouse."""
    return {**document, KEY: number, WRITER: __version__}


def require_known(document: object, number: int, key: str = KEY) -> None:
    """Raise NewerFormatError for a format above `number`. Files without a number have format 1."""
    written = document.get(key, 1) if isinstance(document, dict) else 1
    if isinstance(written, int) and written > number:
        assert isinstance(document, dict)
        writer = document.get(WRITER)
        by = f"Bakehouse {writer}" if isinstance(writer, str) else "a newer Bakehouse"
        message = f"{by} wrote it in format {written}; Bakehouse {__version__} reads formats up to {number}"
        raise NewerFormatError(message)
