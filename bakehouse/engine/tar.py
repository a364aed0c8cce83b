"""Packs files into the tar archives that the engine takes and gives, and unpacks them."""

import contextlib
import io
import shutil
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class TarEntry:
    """A regular file of an archive."""

    name: str
    """Relative to the folder that was asked for; its own name where a file was asked for."""
    size: int
    _archive: tarfile.TarFile
    _member: tarfile.TarInfo

    def read(self) -> bytes:
        file = self._archive.extractfile(self._member)
        return file.read() if file else b""

    def write_below(self, folder: Path) -> None:
        """Write it to its name below a folder, which it can't leave."""
        target = folder / self.name
        file = self._archive.extractfile(self._member)
        if file and target.resolve().is_relative_to(folder.resolve()):
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as copy:
                shutil.copyfileobj(file, copy)


def pack(files: Mapping[str, bytes]) -> bytes:
    """An archive of files by their absolute paths."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path, content in sorted(files.items()):
            member = tarfile.TarInfo(path.lstrip("/"))
            # A script may be what a job starts, and there is no mode to keep: code comes as bytes.
            member.size, member.mode = len(content), 0o755 if content.startswith(b"#!") else 0o644
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


@contextlib.contextmanager
def unpacked(chunks: Iterable[bytes]) -> Iterator[Iterable[TarEntry]]:
    """The regular files of an archive that comes in pieces; none when nothing comes."""
    with tempfile.TemporaryFile() as file:
        file.writelines(chunks)
        if not file.tell():
            yield ()
            return
        file.seek(0)
        with tarfile.open(fileobj=file) as archive:
            # The engine names everything after the last part of the path that was asked for.
            yield (
                TarEntry(member.name.partition("/")[2] or member.name, member.size, archive, member)
                for member in archive.getmembers()
                if member.isfile()
            )
