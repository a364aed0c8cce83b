"""Headings of locks of requirements."""

from hashlib import sha256
from pathlib import Path

from bakehouse.catalog.requirements_file import read_requirements
from bakehouse.catalog.requirements_lock import lock_heading


def locked_heading(requirements: bytes | Path, *images: str, name: str = "requirements.txt") -> str:
    """Return the first line of a lock of a requirements file, or of its content."""
    if isinstance(requirements, Path):
        return lock_heading(name, read_requirements(requirements).digest, *images)
    return lock_heading(name, sha256(requirements).hexdigest(), *images)
