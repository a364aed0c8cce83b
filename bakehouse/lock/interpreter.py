"""The Python and the environment that uv gets when it resolves requirements.

uv runs the build backends of source distributions whose metadata is not static. To prevent this, it gets a
Python that runs nothing. uv's option `--no-build` would silently select older versions that have wheels.
"""

import functools
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from uv import find_uv_bin

from bakehouse.errors import BuildError
from bakehouse.util.files import read_text
from bakehouse.util.tempdir import scratch_directory

MAX_LINES = 20
"""Length of the tail of a program's output in an error."""
_PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy")
_INHERITED = (
    *("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "LANG", "LC_ALL", "NETRC"),
    *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    *("UV_CACHE_DIR", "UV_PYTHON_INSTALL_DIR", "UV_PYTHON_INSTALL_MIRROR"),
    *(*_PROXIES, *map(str.upper, _PROXIES)),
)
_RECORDER = """\
#!/bin/sh
{python} "$@" > {answer} && cat {answer}
"""
_POWERLESS = """\
#!/bin/sh
read -r answer < {answer}
printf '%s\\n' "$answer"
"""


def environment() -> dict[str, str]:
    """Return the variables that uv gets: none with credentials of clouds or CI systems."""
    return {name: os.environ[name] for name in _INHERITED if name in os.environ}


@functools.cache
def find(version: str) -> str:
    """Return the path of a Python of a version, else of the Python of this process.

    Otherwise uv searches in each run, and downloads a Python that the machine lacks.
    """
    command = [find_uv_bin(), "python", "find", "--quiet", "--no-project", "--no-python-downloads", version]
    process = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    return process.stdout.strip() or sys.executable


def write_powerless(python: str, directory: Path) -> str:
    """Write a program that describes itself as a Python but runs nothing, and return its path.

    uv runs build backends with the Python that it gets, or with a virtual environment of it. Whatever its
    arguments are, the program only prints the description.
    """
    program, answer = directory / "python", directory / "answer"

    def own(value: Any) -> Any:
        """Replace the paths of the real Python by the program's."""
        if isinstance(value, dict):
            return {key: own(item) for key, item in value.items()}
        if isinstance(value, list):
            return [own(item) for item in value]
        return str(program) if isinstance(value, str) and value.startswith("/") else value

    answer.write_text(f"{json.dumps(own(json.loads(_description(python))))}\n")
    program.write_text(_POWERLESS.format(answer=shlex.quote(str(answer))))
    program.chmod(0o755)
    return str(program)


@functools.cache
def _description(python: str) -> str:
    """Return what a Python tells uv about itself, as JSON."""
    with scratch_directory() as directory:
        program, answer = directory / "python", directory / "answer"
        program.write_text(_RECORDER.format(python=shlex.quote(python), answer=shlex.quote(str(answer))))
        program.chmod(0o755)
        # Without requirements nothing is built
        command = [find_uv_bin(), "pip", "compile", "--quiet", "--no-config", "--no-index", "-"]
        # With `--no-cache`, uv needs a usable TMPDIR
        words = [*command, "--python", str(program), "--cache-dir", str(directory / "cache")]
        result = subprocess.run(
            words, input="", env=environment(), capture_output=True, text=True, check=False
        )
        if result.returncode:
            raise BuildError(
                f"uv cannot use the Python `{python}`", tail=tuple(result.stderr.splitlines()[-MAX_LINES:])
            )
        return read_text(answer)
