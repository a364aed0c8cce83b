"""Entries of a layer, and the differences between two layers that should be identical."""

import hashlib
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import IO

_CHUNK = 1 << 20
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
    entries = {}
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        while member := archive.next():
            # Without this, the archive keeps every member in memory
            archive.members.clear()  # type: ignore[attr-defined]
            entries["/" + member.name.removeprefix("./").strip("/")] = _entry(member, archive)
    while stream.read(_CHUNK):
        pass
    return entries


def differences(
    first: Mapping[str, LayerEntry], second: Mapping[str, LayerEntry]
) -> tuple[EntryDifference, ...]:
    """Return the paths that differ; if only the order of entries differs, the first one out of order."""
    found = []
    for path in sorted({*first, *second}):
        one, other = first.get(path), second.get(path)
        if one is None or other is None:
            found.append(
                EntryDifference(path, ("only in the second" if one is None else "only in the first",))
            )
        elif one != other:
            found.append(EntryDifference(path, tuple(_aspects(one, other)), one.sha256 != other.sha256))
    if not found and list(first) != list(second):
        pairs = zip(first, second, strict=True)
        path = next(one for one, other in pairs if one != other)
        found.append(EntryDifference(path, ("another position in the archive",)))
    return tuple(found)


def _entry(member: tarfile.TarInfo, archive: tarfile.TarFile) -> LayerEntry:
    digest = hashlib.sha256()
    if member.isreg():
        content = archive.extractfile(member)
        assert content is not None
        while chunk := content.read(_CHUNK):
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


def _aspects(one: LayerEntry, other: LayerEntry) -> Iterator[str]:
    if one.kind != other.kind:
        yield f"{one.kind} and {other.kind}"
    if one.sha256 != other.sha256 and one.sha256 and other.sha256:
        sizes = f"{one.bytes:,} and {other.bytes:,} bytes"
        size = sizes if one.bytes != other.bytes else f"{one.bytes:,} bytes"
        yield f"content {one.sha256[:12]} and {other.sha256[:12]}, {size}"
    if one.link != other.link:
        yield f"link to {one.link or 'nothing'} and {other.link or 'nothing'}"
    if one.mode != other.mode:
        yield f"mode {one.mode:04o} and {other.mode:04o}"
    if one.owner != other.owner:
        yield f"owner {_owner(one)} and {_owner(other)}"
    if one.mtime != other.mtime:
        yield f"time {_time(one.mtime)} and {_time(other.mtime)}"
    if one.attributes != other.attributes:
        yield "extended attributes"


def _owner(entry: LayerEntry) -> str:
    return f"{entry.owner[0]}:{entry.owner[1]}"


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
