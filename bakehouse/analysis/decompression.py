"""Opens a compressed layer as a stream of what is in it."""

import contextlib
import gzip
import importlib
import shutil
import subprocess
import threading
from collections.abc import Iterator
from typing import IO, Literal

from bakehouse.errors import Diagnostic, EngineError

Compression = Literal["gzip", "zstd", "none"]
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_TAR_AT, _TAR = 257, b"ustar"
_BLOCK = 512


def compression_of(head: bytes) -> Compression | None:
    """How a tar archive that begins so is compressed; None where this is no archive."""
    if head.startswith(_GZIP):
        return "gzip"
    if head.startswith(_ZSTD):
        return "zstd"
    is_empty = len(head) >= _BLOCK and not any(head[:_BLOCK])
    return "none" if is_empty or head[_TAR_AT:].startswith(_TAR) else None


@contextlib.contextmanager
def opened(file: IO[bytes], compression: Compression) -> Iterator[IO[bytes]]:
    """What is in a compressed file, to be read from the beginning to the end."""
    if compression == "gzip":
        with gzip.GzipFile(fileobj=file) as inner:
            yield inner  # type: ignore[misc]  # reads as any file does
    elif compression == "zstd":
        with _zstd(file) as inner:
            yield inner
    else:
        yield file


@contextlib.contextmanager
def _zstd(file: IO[bytes]) -> Iterator[IO[bytes]]:
    # Python has it from 3.14 on.
    with contextlib.suppress(ImportError):
        with importlib.import_module("compression.zstd").open(file) as inner:
            yield inner
        return
    program = shutil.which("zstd")
    if program is None:
        message = "layers compressed with zstd can't be read here"
        raise EngineError(Diagnostic(message, hint="install the program `zstd`: `apt-get install zstd`"))
    with subprocess.Popen(
        [program, "--decompress", "--stdout", "--quiet"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdin
        assert process.stdout
        unread: list[Exception] = []
        feeder = threading.Thread(target=_feed, args=(file, process.stdin, unread), daemon=True)
        feeder.start()
        try:
            yield process.stdout
        except BaseException as error:
            process.kill()
            feeder.join()
            if unread and isinstance(error, Exception):
                # What was read is half an archive.
                raise unread[0] from error
            raise
        feeder.join()
    if unread:
        raise unread[0]
    if process.returncode:
        message = f"zstd ended with {process.returncode}"
        raise EOFError(message)


def _feed(file: IO[bytes], program: IO[bytes], unread: list[Exception]) -> None:
    """Give a program a file; what keeps that from being read is put beside."""
    with contextlib.suppress(BrokenPipeError), program:
        try:
            shutil.copyfileobj(file, program, 1 << 20)
        except BrokenPipeError:
            raise
        except Exception as error:
            unread.append(error)
