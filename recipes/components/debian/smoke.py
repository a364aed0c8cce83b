"""Version of Debian."""

from pathlib import Path


def installed() -> str:
    release = dict(
        line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line
    )
    return release["VERSION_ID"].strip('"')
