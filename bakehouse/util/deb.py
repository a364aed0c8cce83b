"""Reader of Debian package files."""

import io
import tarfile
from typing import BinaryIO

from debian.arfile import ArError, ArFile


def open_files(deb: BinaryIO) -> tarfile.TarFile:
    """Open the archive of the files that a package installs. Raises ArError for other files."""
    for member in ArFile(fileobj=deb).getmembers():
        if member.name.startswith("data.tar"):
            data = io.BytesIO(member.read())
            if member.name.endswith(".zst"):
                import zstandard

                # python-debian would start `unzstd`
                return tarfile.open(fileobj=zstandard.ZstdDecompressor().stream_reader(data), mode="r|")
            return tarfile.open(fileobj=data, mode="r:*")
    message = "the package has no `data.tar`"
    raise ArError(message)
