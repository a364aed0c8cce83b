"""Another clock for the steps of a build: the kernel has but one, so a library tells programs another time.

A program that is static, or linked against musl, doesn't hear it, nor does what the kernel itself writes,
such as the times of files.
"""

import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from bakehouse.engine import dockerd, runc_wrapper
from bakehouse.errors import Diagnostic, EngineError

COMPILER = "gcc"
AHEAD_DAYS = 40
"""Into another month, and often another year."""
_SOURCE = Path(__file__).parents[1] / "probes/fake_clock.c"


@dataclass(frozen=True, slots=True)
class FakeClock:
    """How far it is ahead."""

    days: int = AHEAD_DAYS

    def programs(self, folder: Path) -> Path:
        """Write a `runc` to stand on PATH before the real one; raises EngineError where there is no gcc."""
        folder.mkdir(exist_ok=True)
        library = folder / "clock.so"
        compile_library(library, self.days)
        real = shutil.which("runc", path=dockerd.program_path()) or "runc"
        words = [sys.executable, "-I", "-S", runc_wrapper.__file__, real, str(library)]
        program = folder / "runc"
        program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        program.chmod(0o755)
        return folder


def compile_library(library: Path, days: int) -> None:
    """Make the library that programs believe."""
    command = [
        *(COMPILER, "-O1", "-shared", "-fPIC", f"-DAHEAD={days * 86400}"),
        *("-o", str(library), str(_SOURCE), "-ldl"),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        message = "the second clock is a library that gcc makes, which is not on this machine"
        raise EngineError(Diagnostic(message, hint="`apt-get install gcc libc6-dev`")) from error
    if done.returncode:
        message = "the second clock could not be made"
        tail = tuple(done.stderr.splitlines()[-5:])
        raise EngineError(Diagnostic(message, tail=tail, hint="`apt-get install gcc libc6-dev`"))
