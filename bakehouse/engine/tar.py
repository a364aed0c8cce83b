"""Tar archives of files, as the engine's API sends and receives them."""

import contextlib
import io
import shutil
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bakehouse.errors import EngineError
from bakehouse.util import archive_reader
from bakehouse.util.files import make_directory
from bakehouse.util.format import format_bytes
from bakehouse.util.tempdir import temporary_directory

_CHUNK_BYTES = 2**20
_MAX_READ_BYTES = 1_000_000_000


@dataclass(frozen=True, slots=True)
class TarEntry:
    """Regular file of an archive."""

    name: str
    """Path relative to the requested directory; the file name if a file was requested."""
    size: int
    _archive: tarfile.TarFile
    _member: tarfile.TarInfo

    def read(self) -> bytes:
        if self.size > _MAX_READ_BYTES:
            raise EngineError(
                f"`{self.name}` of the container has more than {format_bytes(_MAX_READ_BYTES)}",
                hint="make the file smaller",
            )
        file = self._archive.extractfile(self._member)
        return file.read(_MAX_READ_BYTES) if file else b""

    def write_below(self, directory: Path) -> None:
        """Write the file below a directory, unless its name leads out of the directory."""
        target = directory / self.name
        file = self._archive.extractfile(self._member)
        if file and target.resolve().is_relative_to(directory.resolve()):
            make_directory(target.parent)
            with target.open("wb") as copy:
                shutil.copyfileobj(file, copy)


def pack(files: Mapping[str, bytes]) -> bytes:
    """Return an archive of files, given by their absolute paths."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path, content in sorted(files.items()):
            member = tarfile.TarInfo(path.lstrip("/"))
            # Files have no mode here, but a job may start a script, and a probe a program.
            is_program = content.startswith((b"#!", b"\x7fELF"))
            member.size, member.mode = len(content), 0o755 if is_program else 0o644
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def stream(directory: Path) -> Iterator[bytes]:
    """Yield an archive of a directory's files in chunks, as a training job gets them from S3.

    It contains the targets of links instead of links, and no owners. Raises EngineError for a broken link,
    a link to a directory above itself, and a file that becomes shorter.
    """
    for path in _walk(directory, ()):
        status = path.stat()
        member = tarfile.TarInfo(path.relative_to(directory).as_posix())
        member.mtime = int(status.st_mtime)
        if path.is_dir():
            member.type, member.mode = tarfile.DIRTYPE, 0o755
            yield member.tobuf()
            continue
        member.size, member.mode = status.st_size, 0o755 if status.st_mode & 0o111 else 0o644
        yield member.tobuf()
        left = member.size
        with path.open("rb") as file:
            while chunk := file.read(min(left, _CHUNK_BYTES)):
                left -= len(chunk)
                yield chunk
        if left:
            raise EngineError(
                f"`{path}` was shortened while it was copied", hint="run the same command again"
            )
        yield bytes(-member.size % tarfile.BLOCKSIZE)
    yield bytes(2 * tarfile.BLOCKSIZE)


def _walk(directory: Path, above: tuple[Path, ...]) -> Iterator[Path]:
    """Yield the directories and regular files below a directory, each directory before its files."""
    above = (*above, directory.resolve())
    for path in sorted(directory.iterdir()):
        if path.is_dir():
            if path.resolve() in above:
                raise EngineError(f"`{path}` is a link to a directory above it", hint="remove the link")
            yield path
            yield from _walk(path, above)
        elif path.is_file():
            yield path
        elif path.is_symlink():
            raise EngineError(f"`{path}` is a link to a file that does not exist", hint="remove the link")


@contextlib.contextmanager
def unpacked(chunks: Iterable[bytes]) -> Iterator[Iterable[TarEntry]]:
    """Yield the regular files of an archive that arrives in chunks; none for an empty stream.

    Each can be read until the next one.
    """
    with tempfile.TemporaryFile(dir=temporary_directory()) as file:
        file.writelines(chunks)
        if not file.tell():
            yield ()
            return
        file.seek(0)
        # The names in the archive start with the last part of the requested path.
        yield (
            TarEntry(member.name.partition("/")[2] or member.name, member.size, archive, member)
            for member, archive in archive_reader.tar_members(file)
            if member.isfile()
        )
