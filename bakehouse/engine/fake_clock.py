"""Fake clock for build steps: a preloaded library returns another time to programs.

It has no effect on static programs, on programs linked against musl, and on times that the kernel writes,
such as those of files.
"""

import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from bakehouse.engine import dockerd, runc_wrapper
from bakehouse.errors import EngineError
from bakehouse.util.process import MISSING_PROGRAM

COMPILER = "gcc"
AHEAD_DAYS = 40
"""Enough for another month, and often another year."""
_SOURCE = Path(__file__).parents[1] / "probes/fake_clock.c"


@dataclass(frozen=True, slots=True)
class FakeClock:
    """Clock that is some days ahead."""

    days: int = AHEAD_DAYS

    def programs(self, directory: Path) -> Path:
        """Write a `runc` wrapper for the front of PATH; raises EngineError without gcc."""
        directory.mkdir(exist_ok=True)
        library = directory / "clock.so"
        compile_library(library, self.days)
        real = shutil.which("runc", path=dockerd.program_path()) or "runc"
        command = [sys.executable, "-I", "-S", runc_wrapper.__file__, real, str(library)]
        program = directory / "runc"
        program.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        program.chmod(0o755)
        return directory


def compile_library(library: Path, days: int) -> None:
    """Compile the library that returns another time."""
    command = [
        *(COMPILER, "-O1", "-shared", "-fPIC", f"-DAHEAD={days * 86400}"),
        *("-o", str(library), str(_SOURCE), "-ldl"),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except MISSING_PROGRAM as error:
        raise EngineError(
            "the fake clock is a library that needs gcc, which is not installed",
            hint="run `apt-get install gcc libc6-dev`",
        ) from error
    if done.returncode:
        message = "the library of the fake clock could not be compiled"
        tail = tuple(done.stderr.splitlines()[-5:])
        raise EngineError(message, tail=tail, hint="run `apt-get install gcc libc6-dev`")
