"""Members of an uncompressed layer in the engine's store, read without their contents."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

_BLOCK = 512
_MAX_HEADER = 1 << 20


@dataclass(frozen=True, slots=True)
class Member:
    """A regular file."""

    mode: int
    size: int
    offset: int


@dataclass(frozen=True, slots=True)
class StoredLayer:
    """A layer as a file of this machine."""

    path: Path
    members: Mapping[str, Member]

    def has_any(self, names: Iterable[str]) -> bool:
        """Return whether the layer has a file with one of these names."""
        return not self.members.keys().isdisjoint(names)

    def read(self, *names: str) -> dict[str, bytes]:
        """Return the contents of those files that the layer has."""
        contents = {}
        with self.path.open("rb") as file:
            for name in names:
                if member := self.members.get(name):
                    file.seek(member.offset)
                    contents[name] = file.read(member.size)
        return contents


def read_layer(path: Path) -> StoredLayer:
    """Return a layer in the format that BuildKit writes. Raises ValueError for another one, OSError."""
    members: dict[str, Member] = {}
    with path.open("rb") as file:
        long_name = ""
        while (header := file.read(_BLOCK)).strip(b"\0"):
            if header[257:262] != b"ustar":
                message = f"{path} is not an archive"
                raise ValueError(message)
            size, kind = int(header[124:135], 8), header[156:157]
            offset = file.tell()
            if kind == b"x" and size <= _MAX_HEADER:
                long_name = _pax_path(file.read(size))
            elif kind == b"0":
                prefix, name = (_text(field) for field in (header[345:500], header[:100]))
                full = long_name or (f"{prefix}/{name}" if prefix else name)
                members[full] = Member(int(header[100:107], 8), size, offset)
            if kind != b"x":
                long_name = ""
            file.seek(offset + size + -size % _BLOCK)
    return StoredLayer(path, members)


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode()


def _pax_path(records: bytes) -> str:
    """Return the path in the records of an extended header; empty if they have none."""
    while records:
        size, _, rest = records.partition(b" ")
        key, _, value = rest[: int(size) - len(size) - 2].partition(b"=")
        if key == b"path":
            return value.decode()
        records = records[int(size) :]
    return ""
