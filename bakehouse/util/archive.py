"""Archives with the same bytes on every machine."""

import io
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import PurePosixPath

from bakehouse.util.oci import EPOCH

Tree = dict[str, tuple[bytes, int]]
"""Content and mode of files by path; a link has mode 0 and its target as content."""


def tar(tree: Mapping[str, tuple[bytes, int]]) -> bytes:
    """Return an archive of a tree with all its directories."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        directories = sorted({str(parent) for path in tree for parent in PurePosixPath(path).parents} - {"."})
        for path in directories:
            _add(archive, path, b"", 0o755, tarfile.DIRTYPE)
        for path, (data, mode) in sorted(tree.items()):
            _add(archive, path, data, mode or 0o777, tarfile.REGTYPE if mode else tarfile.SYMTYPE)
    return buffer.getvalue()


def gzip(data: bytes) -> bytes:
    """Pack without compression, so that all versions of zlib return the same bytes."""
    packer = zlib.compressobj(0, zlib.DEFLATED, 31)
    return packer.compress(data) + packer.flush()


def _add(archive: tarfile.TarFile, path: str, data: bytes, mode: int, kind: bytes) -> None:
    entry = tarfile.TarInfo(path)
    entry.type, entry.mode, entry.mtime = kind, mode, EPOCH
    if kind == tarfile.SYMTYPE:
        entry.linkname, data = data.decode(errors="surrogateescape"), b""
    entry.size = len(data)
    archive.addfile(entry, io.BytesIO(data))
