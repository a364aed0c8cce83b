"""Python as the image has it."""

import subprocess
import sys


def installed() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def check_packages_fit_together() -> None:
    """Every package finds what it asks for, in a version that it accepts."""
    ended = subprocess.run(
        [sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout.strip()
