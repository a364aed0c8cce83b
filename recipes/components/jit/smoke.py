"""The compilers that a job may call, as the image has them."""

import subprocess
import sysconfig
from pathlib import Path


def installed() -> str:
    version = subprocess.run(["gcc", "-dumpfullversion"], capture_output=True, text=True, check=True).stdout
    return ".".join(version.strip().split(".")[:2])


def check_python_headers_are_there() -> None:
    assert Path(sysconfig.get_path("include"), "Python.h").is_file()
