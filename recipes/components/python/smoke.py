"""Checks of Python."""

import platform
import sys


def installed() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def provided() -> dict[str, str]:
    """Return the standalone build's version; empty for Debian's Python."""
    return {} if sys.base_prefix == "/usr" else {"python-standalone": platform.python_version()}
