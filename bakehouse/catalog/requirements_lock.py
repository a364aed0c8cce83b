"""Locks of requirements: one file for all images that use a requirements file.

Each image has its own packages, because it has its own Python, platform, base and components. Lines that all
images share come first. The others follow in sections.

Format 1 (Bakehouse 0.1.0) names no images: its packages are those of all images that use the file, and its
sha256 is that of the joined requirements files. Format 2 has no number, either. Later formats begin with a
line such as `# format 3`.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from hashlib import sha256
from pathlib import Path

from bakehouse.catalog.python_lock import BUILT_WITH, conflict_marker, section_images, section_line
from bakehouse.util.files import read_text

_HEADING = re.compile(r"# of (?P<name>.+) sha256:(?P<sha256>[0-9a-f]{64}) for (?P<images>.+)")
_FIRST_HEADING = re.compile(r"# of (?P<name>.+) sha256:(?P<sha256>[0-9a-f]{64})")
"""First line of format 1."""
_FORMAT = re.compile(r"# format ([3-9]|[1-9][0-9]+)\b")
_DIGEST = "# packages sha256:"


class LockState(Enum):
    """States of the lock of an image's requirements."""

    MISSING = "missing"
    CONFLICTED = "contains conflict markers"
    UNKNOWN = "has an unknown format"
    NEWER = "was written by a newer Bakehouse"
    OLDER = "older than its requirements"
    EDITED = "changed after `bake lock` wrote it"
    CURRENT = "current"


FOREIGN = {
    LockState.UNKNOWN: "remove the file or restore it from git, then run `bake lock`",
    LockState.NEWER: "upgrade Bakehouse",
}
"""Hints for files that no command may replace."""


@dataclass(frozen=True)
class RequirementsLock:
    """The text of a lock, by image."""

    name: str
    """Name of the requirements file."""
    sums: Mapping[str, str] = field(default_factory=dict)
    """The sha256 of the requirements of each image."""
    lines: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The packages of each image, sorted."""

    @property
    def text(self) -> str:
        """Return the content of the file."""
        images: dict[str, list[str]] = {}
        for image in sorted(self.sums):
            images.setdefault(self.sums[image], []).append(image)
        headings = [lock_heading(self.name, digest, *names) for digest, names in images.items()]
        sections: dict[tuple[str, ...], list[str]] = {}
        for line in sorted({line for lines in self.lines.values() for line in lines}, key=_order):
            sections.setdefault(
                tuple(image for image in sorted(self.lines) if line in self.lines[image]), []
            ).append(line)
        body = sections.pop(tuple(sorted(self.lines)), [])
        for names in sorted(sections):
            body += (section_line(names), *sections[names])
        return "".join(f"{line}\n" for line in (*headings, digest_line(body), *body))


def _order(line: str) -> tuple[str, str]:
    """Return the sort key of a line: the name first, because `-` is before `=` in a line."""
    return re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0], line


def lock_heading(name: str, digest: str, *images: str) -> str:
    """Return the line of a lock that identifies the requirements of some images, by their sha256."""
    return f"# of {name} sha256:{digest} for {', '.join(images)}"


def is_format_1(path: Path) -> bool:
    """Return whether Bakehouse 0.1.0 wrote a lock; the next `bake lock` writes it in the present format."""
    text = _text(path) or ""
    return bool(_sums(text, ("",))) and not _sums(text)


def read_lock(path: Path, images: Iterable[str] = ()) -> RequirementsLock:
    """Read a lock without checks; empty if it is missing or has conflict markers.

    `images` are those that use the requirements, for format 1.
    """
    text = _text(path)
    name = path.name.removesuffix(".lock")
    if text is None or conflict_marker(text):
        return RequirementsLock(name)
    sums = _sums(text, images)
    lines: dict[str, list[str]] = {image: [] for image in sums}
    section: Iterable[str] = sums
    for line in text.splitlines():
        if images := section_images(line):
            section = [image for image in images if image in lines]
        elif line.startswith(BUILT_WITH):
            # Build requirements belong to the package before them
            for image in section:
                lines[image][-1:] = [f"{before}\n{line}" for before in lines[image][-1:]]
        elif line and not line.startswith("#"):
            for image in section:
                lines[image].append(line)
    return RequirementsLock(
        name, sums, {image: tuple(sorted(rows, key=_order)) for image, rows in lines.items()}
    )


def state_of(path: Path, image: str, *digests: str) -> LockState:
    """Return the state of a lock for an image whose requirements have these digests, one for each format."""
    text = _text(path)
    if not text:
        return LockState.MISSING
    if conflict_marker(text):
        return LockState.CONFLICTED
    sums = _sums(text, (image,))
    if not sums:
        return LockState.NEWER if _FORMAT.match(text) else LockState.UNKNOWN
    if image not in sums:
        return LockState.MISSING
    if sums[image] not in digests:
        return LockState.OLDER
    return LockState.EDITED if _is_edited(text) else LockState.CURRENT


def digest_line(lines: Iterable[str]) -> str:
    """Return the line with the digest of the packages, which reveals later changes to them."""
    text = "\n".join(lines)
    return f"{_DIGEST}{sha256(text.encode()).hexdigest()}"


def _sums(text: str, images: Iterable[str] = ()) -> dict[str, str]:
    """Return the sha256 of each image's requirements; `images` are those of format 1."""
    sums: dict[str, str] = {}
    for line in text.splitlines():
        match = _HEADING.fullmatch(line)
        if match is None:
            break
        sums |= dict.fromkeys(match["images"].split(", "), match["sha256"])
    first = None if sums else _FIRST_HEADING.fullmatch(text.partition("\n")[0])
    return dict.fromkeys(images, first["sha256"]) if first else sums


def _is_edited(text: str) -> bool:
    """Return whether the packages of a lock differ from those that its digest line states."""
    lines = text.splitlines()
    stated = next((number for number, line in enumerate(lines) if line.startswith(_DIGEST)), None)
    return stated is not None and lines[stated] != digest_line(lines[stated + 1 :])


def _text(path: Path) -> str | None:
    try:
        return read_text(path, errors="replace")
    except (OSError, ValueError):
        return None
