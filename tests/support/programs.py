"""Programs that tests run: `bake` of this checkout or of an installed wheel, and the docker client."""

import subprocess
import sys
from pathlib import Path

from uv import find_uv_bin

BAKE = (sys.executable, "-P", "-c", "from bakehouse.cli.main import main; main()")


def docker(*arguments: str) -> str:
    """Run the docker client and return its output."""
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, check=True).stdout


def install(directory: Path, wheel: Path, *options: str, python: str = sys.executable) -> Path:
    """Install a wheel into a new environment; return the directory of its programs."""
    subprocess.run([find_uv_bin(), "venv", "--quiet", "--python", python, directory], check=True)
    programs = directory / "bin"
    into = ("--python", programs / "python")
    subprocess.run([find_uv_bin(), "pip", "install", "--quiet", *into, *options, wheel], check=True)
    return programs
