"""Checks of Python."""

import platform
import subprocess
import sys


def installed() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def provided() -> dict[str, str]:
    """Return the standalone build's version; empty for Debian's Python."""
    return {} if sys.base_prefix == "/usr" else {"python-standalone": platform.python_version()}


def check_packages_fit_together() -> None:
    """The requirements of all packages are met."""
    process = subprocess.run(
        [sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stdout.strip()
