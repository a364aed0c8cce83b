"""Reader of Debian package files."""

import io
import lzma
import tarfile
import zlib
from typing import BinaryIO, Literal

from debian.arfile import ArError, ArFile

DAMAGED = (
    ArError,
    tarfile.TarError,
    lzma.LZMAError,
    zlib.error,
    EOFError,
    ValueError,
    LookupError,
    TypeError,
)
"""Exceptions that damaged packages raise."""


def open_files(deb: BinaryIO) -> tarfile.TarFile:
    """Open the archive of the files that a package installs. Raises ArError for other files."""
    return tarfile.open(fileobj=io.BytesIO(unpacked(deb, "data.tar")))


def unpacked(deb: BinaryIO, name: Literal["control.tar", "data.tar"]) -> bytes:
    """Return an uncompressed archive of a package. Raises ArError for other files."""
    for member in ArFile(fileobj=deb).getmembers():
        if member.name.startswith(name):
            return _decompressed(member.name, member.read())
    message = f"the package has no `{name}`"
    raise ArError(message)


def _decompressed(name: str, data: bytes) -> bytes:
    match name.rpartition(".")[2]:
        case "xz":
            return lzma.decompress(data)
        case "gz":
            return zlib.decompress(data, wbits=31)
        case "zst":
            import zstandard

            # python-debian would start `unzstd`
            return zstandard.ZstdDecompressor().decompressobj().decompress(data)
        case _:
            return data
