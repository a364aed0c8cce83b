"""Checks of mpi4py."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import unittest
from importlib.metadata import version

LIBRARIES = (
    "torch",
    "tensorflow",
    "jax",
    "horovod.torch",
    "horovod.tensorflow",
    "deepspeed",
    "nvidia.dali",
    "xgboost",
    "lightgbm",
)
"""Modules with native libraries, which training scripts import next to mpi4py."""


def installed() -> str:
    return version("mpi4py")


def check_finds_open_mpi() -> None:
    from mpi4py import MPI

    assert "Open MPI" in MPI.Get_library_version(), MPI.Get_library_version()


def check_ends_well_with_other_libraries() -> str:
    """A process that initializes MPI and imports another library ends with status 0, in both orders."""
    present = [name for name in LIBRARIES if is_present(name) and not ending(f"import {name}")]
    if not present:
        # An image without such libraries: the check does not apply.
        reason = ""
        raise unittest.SkipTest(reason)
    for name in present:
        for code in (f"from mpi4py import MPI; import {name}", f"import {name}; from mpi4py import MPI"):
            error = ending(code)
            assert not error, f"`{code}` ends with {error}"
    return f"both orders end with status 0: {', '.join(present)}"


def is_present(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False


def ending(code: str) -> str:
    """Run Python code; return its exit status and last line, or nothing if the status is 0."""
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    lines = process.stderr.strip().splitlines()
    return f"status {process.returncode}{f': {lines[-1]}' if lines else ''}" if process.returncode else ""
