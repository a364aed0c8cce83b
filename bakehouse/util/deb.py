"""Reader of Debian package files."""

import io
import tarfile
from typing import BinaryIO, Literal

from debian.arfile import ArError, ArFile

from bakehouse.util import archive_reader

DAMAGED = (ArError, tarfile.TarError, EOFError, ValueError, LookupError, TypeError)
"""Exceptions that damaged packages raise."""


def open_files(deb: BinaryIO) -> tarfile.TarFile:
    """Open the archive of the files that a package installs. Raises ArError for other files."""
    return tarfile.open(fileobj=io.BytesIO(unpacked(deb, "data.tar")))


def unpacked(deb: BinaryIO, name: Literal["control.tar", "data.tar"]) -> bytes:
    """Return an uncompressed archive of a package. Raises ArError for other files."""
    for member in ArFile(fileobj=deb).getmembers():
        if member.name.startswith(name):
            data = member.read()
            content = archive_reader.decompress([data], archive_reader.compression_of(data))
            return b"".join(archive_reader.limited(content, archive_reader.unpacked_limit(len(data))))
    message = f"the package has no `{name}`"
    raise ArError(message)
