"""`docker load` of images whose archive is written while the engine reads it."""

import contextlib
import subprocess
import tarfile
from collections.abc import Callable
from typing import IO

from bakehouse.engine.buildkit_events import Tail
from bakehouse.errors import BuildError
from bakehouse.util import process


def load(write: Callable[[tarfile.TarFile], object], message: str, hint: str = "") -> None:
    """Load an archive into the engine of this machine. Raises BuildError with `message` if that fails."""
    tail = Tail()
    with process.running(["docker", "load", "--quiet"], stdin=subprocess.PIPE) as docker:
        assert docker.stdin
        assert docker.stderr
        # The output contains the reason of a broken pipe.
        with contextlib.suppress(BrokenPipeError), tarfile.open(mode="w|", fileobj=docker.stdin) as archive:
            write(archive)
        with contextlib.suppress(BrokenPipeError):
            docker.stdin.close()
        process.read({docker.stderr: lambda data: tail.add(data.decode(errors="replace"))}, lambda: None)
        if docker.wait() != 0:
            raise BuildError(message, tail=tail.lines(), hint=hint)


def add_entry(archive: tarfile.TarFile, name: str, content: IO[bytes], size: int) -> None:
    """Add a file with fixed attributes."""
    entry = tarfile.TarInfo(name)
    entry.size = size
    archive.addfile(entry, content)
