"""Entries of a layer, and the differences between two layers that should be identical."""

import hashlib
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import IO

from bakehouse.analysis import layers

_KINDS = {
    tarfile.REGTYPE: "file",
    tarfile.AREGTYPE: "file",
    tarfile.DIRTYPE: "directory",
    tarfile.SYMTYPE: "symbolic link",
    tarfile.LNKTYPE: "hard link",
}


@dataclass(frozen=True, slots=True)
class LayerEntry:
    """The properties of a file that affect the digest of its layer."""

    kind: str
    mode: int
    owner: tuple[int, int]
    mtime: float
    link: str = ""
    bytes: int = 0
    sha256: str = ""
    attributes: tuple[tuple[str, str], ...] = ()
    """Extended attributes, such as capabilities."""


@dataclass(frozen=True, slots=True)
class EntryDifference:
    """A path that differs between two layers."""

    path: str
    aspects: tuple[str, ...]
    """Texts with both values, such as `mode 0644 and 0755`."""
    has_other_content: bool = False


def read(stream: IO[bytes]) -> dict[str, LayerEntry]:
    """Return the entries of an uncompressed layer by path, in order; the stream is read to its end."""
    return {path: _entry(member, archive) for path, member, archive in layers.members(stream)}


def differences(
    first: Mapping[str, LayerEntry], second: Mapping[str, LayerEntry]
) -> tuple[EntryDifference, ...]:
    """Return the paths that differ; if only the order of entries differs, the first one out of order."""
    different = []
    for path in sorted({*first, *second}):
        before, after = first.get(path), second.get(path)
        if before is None or after is None:
            side = "second" if before is None else "first"
            different.append(EntryDifference(path, (f"only in the {side}",)))
        elif before != after:
            has_other_content = before.sha256 != after.sha256
            different.append(EntryDifference(path, tuple(_aspects(before, after)), has_other_content))
    if not different and list(first) != list(second):
        path = next(path for path, other in zip(first, second, strict=True) if path != other)
        different.append(EntryDifference(path, ("another position in the archive",)))
    return tuple(different)


def _entry(member: tarfile.TarInfo, archive: tarfile.TarFile) -> LayerEntry:
    digest = hashlib.sha256()
    if member.isreg():
        content = archive.extractfile(member)
        assert content is not None
        while chunk := content.read(layers.CHUNK):
            digest.update(chunk)
    headers = member.pax_headers.items()
    return LayerEntry(
        kind=_KINDS.get(member.type, "device"),
        mode=member.mode,
        owner=(member.uid, member.gid),
        mtime=float(member.mtime),
        link=member.linkname if member.issym() or member.islnk() else "",
        bytes=member.size,
        sha256=digest.hexdigest() if member.isreg() else "",
        attributes=tuple(sorted((key, value) for key, value in headers if "xattr" in key)),
    )


def _aspects(first: LayerEntry, second: LayerEntry) -> Iterator[str]:
    if first.kind != second.kind:
        yield f"{first.kind} and {second.kind}"
    if first.sha256 != second.sha256 and first.sha256 and second.sha256:
        sizes = f"{first.bytes:,} and {second.bytes:,} bytes"
        size = sizes if first.bytes != second.bytes else f"{first.bytes:,} bytes"
        yield f"content {first.sha256[:12]} and {second.sha256[:12]}, {size}"
    if first.link != second.link:
        yield f"link to {first.link or 'nothing'} and {second.link or 'nothing'}"
    if first.mode != second.mode:
        yield f"mode {first.mode:04o} and {second.mode:04o}"
    if first.owner != second.owner:
        yield f"owner {_owner(first)} and {_owner(second)}"
    if first.mtime != second.mtime:
        yield f"time {_time(first.mtime)} and {_time(second.mtime)}"
    if first.attributes != second.attributes:
        yield "extended attributes"


def _owner(entry: LayerEntry) -> str:
    return f"{entry.owner[0]}:{entry.owner[1]}"


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
