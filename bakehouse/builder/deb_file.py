"""Reader of Debian package files: their control fields, and an archive of what they install."""

import io
import lzma
import tarfile
import zlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from bakehouse.catalog.apt_lock import stanzas
from bakehouse.errors import BuildError

_MAGIC = b"!<arch>\n"
_HEADER = 60
_NAME, _SIZE = slice(0, 16), slice(48, 58)
_DAMAGED = (tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, ValueError, LookupError)


@dataclass(frozen=True)
class DebFile:
    """A Debian package file: an `ar` archive of two compressed tar archives."""

    path: Path

    @cached_property
    def fields(self) -> dict[str, str]:
        """The fields of its control file. Raises BuildError."""
        try:
            with tarfile.open(fileobj=io.BytesIO(self._unpacked("control.tar"))) as archive:
                content = archive.extractfile("./control")
                text = content.read().decode(errors="replace") if content else ""
            [(_, fields)] = stanzas(text)
            return fields
        except _DAMAGED as error:
            raise self._damaged() from error

    def installed_files(self) -> tarfile.TarFile:
        """Return the archive of the files that it installs. Raises BuildError."""
        try:
            return tarfile.open(fileobj=io.BytesIO(self._unpacked("data.tar")))
        except _DAMAGED as error:
            raise self._damaged() from error

    def _unpacked(self, name: str) -> bytes:
        """Return the uncompressed member of the package file whose name starts so."""
        data = self.path.read_bytes()
        if not data.startswith(_MAGIC):
            raise ValueError(self.path.name)
        start = len(_MAGIC)
        while start < len(data):
            member, size = data[start : start + _HEADER][_NAME], int(data[start : start + _HEADER][_SIZE])
            start += _HEADER
            if member.startswith(name.encode()):
                return _decompressed(member.decode().strip().rstrip("/"), data[start : start + size])
            start += size + size % 2
        raise LookupError(name)

    def _damaged(self) -> BuildError:
        return BuildError(
            f"`{self.path.name}` is not a Debian package",
            hint="run `bake lock --upgrade` to lock another file of the package",
        )


def _decompressed(name: str, data: bytes) -> bytes:
    match name.rpartition(".")[2]:
        case "xz":
            return lzma.decompress(data)
        case "gz":
            return zlib.decompress(data, 31)
        case "zst":
            import zstandard

            return zstandard.ZstdDecompressor().decompressobj().decompress(data)
        case _:
            return data
