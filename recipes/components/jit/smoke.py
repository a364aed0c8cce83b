"""Checks of the compilers for jobs."""

import subprocess
import sys
import sysconfig
from pathlib import Path


def installed() -> str:
    version = subprocess.run(["gcc", "-dumpfullversion"], capture_output=True, text=True, check=True).stdout
    return ".".join(version.strip().split(".")[:2])


def provided() -> dict[str, str]:
    """Return the Python headers, unless the Python is not Debian's."""
    headers = {"python-headers": f"{sys.version_info.major}.{sys.version_info.minor}"}
    return headers if sys.base_prefix == "/usr" else {}


def check_python_headers_are_there() -> None:
    assert Path(sysconfig.get_path("include"), "Python.h").is_file()


def check_ninja_runs() -> None:
    """torch.utils.cpp_extension compiles with ninja."""
    subprocess.run(["ninja", "--version"], capture_output=True, check=True)
