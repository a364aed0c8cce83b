"""Python as the image has it."""

import platform
import subprocess
import sys


def installed() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def provided() -> dict[str, str]:
    """Empty for the distribution's own."""
    return {} if sys.base_prefix == "/usr" else {"python-standalone": platform.python_version()}


def check_packages_fit_together() -> None:
    """Every package finds what it asks for, in a version that it accepts."""
    ended = subprocess.run(
        [sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout.strip()
