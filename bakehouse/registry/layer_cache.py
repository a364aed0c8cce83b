"""Compressed layers by the digest of their content, kept from one publication to the next."""

import contextlib
import hashlib
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bakehouse.registry.compression import compressed, compressor, identifier
from bakehouse.util.files import named_errors, temporary_file
from bakehouse.util.oci import Digest

LAYERS = "layers"
"""Directory of compressed layers in the cache."""


@dataclass(frozen=True, slots=True)
class CompressedLayer:
    """A layer as a file that can be uploaded."""

    diff_id: Digest
    """Digest of its uncompressed content."""
    digest: Digest
    bytes: int
    path: Path


class LayerCache:
    """Directory of compressed layers.

    A file's name contains both digests and its size; a file of another size was damaged and counts as absent.
    """

    def __init__(self, directory: Path, compression: str) -> None:
        self._directory = directory / identifier(compression)
        self._compress = compressor(compression)

    def get(self, diff_id: Digest) -> CompressedLayer | None:
        """Return a layer that was compressed before."""
        for path in self._directory.glob(f"{diff_id.removeprefix('sha256:')}.*.*"):
            _, digest, size = path.name.split(".")
            # Another process may remove it.
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_size == int(size):
                    # Mark the layer as used, for `bake clean`.
                    with contextlib.suppress(PermissionError):
                        os.utime(path)
                    return CompressedLayer(diff_id, Digest(f"sha256:{digest}"), int(size), path)
        return None

    def add(self, content: Iterable[bytes]) -> CompressedLayer:
        """Compress a layer into the cache; its digests are those of the content that was read."""
        plain, packed = hashlib.sha256(), hashlib.sha256()

        def hashed() -> Iterator[bytes]:
            for chunk in content:
                plain.update(chunk)
                yield chunk

        with named_errors(self._directory), temporary_file(self._directory) as file:
            for block in compressed(hashed(), self._compress):
                packed.update(block)
                file.write(block)
            file.flush()
            size = file.tell()
            path = self._directory / f"{plain.hexdigest()}.{packed.hexdigest()}.{size}"
            Path(file.name).replace(path)
        diff_id, digest = Digest(f"sha256:{plain.hexdigest()}"), Digest(f"sha256:{packed.hexdigest()}")
        return CompressedLayer(diff_id, digest, size, path)


def remove_unused(directory: Path, seconds: float) -> int:
    """Remove layers that no push has used for `seconds`, and files of killed pushes; return their bytes."""
    removed = 0
    for path in directory.glob("*/*"):
        # Another process may remove it, too.
        with contextlib.suppress(FileNotFoundError):
            status = path.stat()
            if time.time() - status.st_mtime > seconds:
                path.unlink()
                removed += status.st_size
    return removed
