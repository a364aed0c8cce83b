"""Tar archives of files, as the engine's API sends and receives them."""

import contextlib
import io
import shutil
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bakehouse.util.tempdir import temporary_directory


@dataclass(frozen=True, slots=True)
class TarEntry:
    """Regular file of an archive."""

    name: str
    """Path relative to the requested directory; the file name if a file was requested."""
    size: int
    _archive: tarfile.TarFile
    _member: tarfile.TarInfo

    def read(self) -> bytes:
        file = self._archive.extractfile(self._member)
        return file.read() if file else b""

    def write_below(self, directory: Path) -> None:
        """Write the file below a directory; a name that leads out of it is skipped."""
        target = directory / self.name
        file = self._archive.extractfile(self._member)
        if file and target.resolve().is_relative_to(directory.resolve()):
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as copy:
                shutil.copyfileobj(file, copy)


def pack(files: Mapping[str, bytes]) -> bytes:
    """Return an archive of files, given by their absolute paths."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path, content in sorted(files.items()):
            member = tarfile.TarInfo(path.lstrip("/"))
            # Files have no mode here, but a job may start a script.
            member.size, member.mode = len(content), 0o755 if content.startswith(b"#!") else 0o644
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


@contextlib.contextmanager
def unpacked(chunks: Iterable[bytes]) -> Iterator[Iterable[TarEntry]]:
    """Yield the regular files of an archive that arrives in chunks; none for an empty stream."""
    with tempfile.TemporaryFile(dir=temporary_directory()) as file:
        file.writelines(chunks)
        if not file.tell():
            yield ()
            return
        file.seek(0)
        with tarfile.open(fileobj=file) as archive:
            # The names in the archive start with the last part of the requested path.
            yield (
                TarEntry(member.name.partition("/")[2] or member.name, member.size, archive, member)
                for member in archive.getmembers()
                if member.isfile()
            )
