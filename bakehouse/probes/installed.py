"""Lists, inside the image, the packages that are really installed: the distribution's, and Python's.

Prints one JSON object. Runs in the image with nothing but the standard library (3.8 or later).
"""

from __future__ import annotations

import importlib.metadata
import json
import os
from pathlib import Path

DPKG = Path("/var/lib/dpkg")
NOT_OF_THE_IMAGE = {"proc", "sys", "dev", "run"}


def system() -> dict[str, str]:
    """What /etc/os-release says of the distribution."""
    found = {}
    path = Path("/etc/os-release")
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        name, _, value = line.partition("=")
        if name in ("ID", "VERSION_ID"):
            found[name] = value.strip().strip("\"'")
    return found


def debian() -> list[dict[str, str]] | None:
    """What dpkg holds for installed; None in an image without dpkg."""
    # Images without a shell have a file for each package.
    files = [path for path in (DPKG / "status", *sorted((DPKG / "status.d").glob("*"))) if path.is_file()]
    if not files:
        return None
    found = []
    for path in files:
        for entry in path.read_text(encoding="utf-8", errors="replace").split("\n\n"):
            lines = (line.partition(": ") for line in entry.splitlines())
            fields = {name: value.strip() for name, _, value in lines}
            if "Package" not in fields or fields.get("Status", "installed").split()[-1] != "installed":
                continue
            found.append(
                {
                    "name": fields["Package"],
                    "version": fields.get("Version", ""),
                    "architecture": fields.get("Architecture", ""),
                }
            )
    return found


def python() -> list[dict[str, str]]:
    """Every distribution of every site-packages, whichever interpreter it belongs to."""
    found = []
    for folder, names, _ in os.walk("/"):
        if folder == "/":
            names[:] = [name for name in names if name not in NOT_OF_THE_IMAGE]
        if Path(folder).name not in ("site-packages", "dist-packages"):
            continue
        for one in importlib.metadata.distributions(path=[folder]):
            name, version = one.metadata["Name"], one.metadata["Version"]
            # Damaged metadata names nothing.
            if name and version:
                found.append({"name": name, "version": version, "folder": folder})
    return found


def main() -> None:
    print(json.dumps({"system": system(), "debian": debian(), "python": python()}, sort_keys=True))


if __name__ == "__main__":
    main()
