"""List the installed Debian, RPM and Python packages from inside the image.

It prints one JSON object and only needs the standard library of Python 3.8 or later.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
from pathlib import Path

DPKG = Path("/var/lib/dpkg")
NOT_IN_THE_IMAGE = {"proc", "sys", "dev", "run"}


def system() -> dict[str, str]:
    """Return ID and VERSION_ID of /etc/os-release."""
    fields = {}
    path = Path("/etc/os-release")
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        name, _, value = line.partition("=")
        if name in ("ID", "VERSION_ID"):
            fields[name] = value.strip().strip("\"'")
    return fields


def debian() -> list[dict[str, str]] | None:
    """Return the packages that dpkg lists as installed; None in an image without dpkg."""
    # Distroless images have a file for each package.
    files = [path for path in (DPKG / "status", *sorted((DPKG / "status.d").glob("*"))) if path.is_file()]
    if not files:
        return None
    packages = []
    for path in files:
        for entry in path.read_text(encoding="utf-8", errors="replace").split("\n\n"):
            lines = (line.partition(": ") for line in entry.splitlines())
            fields = {name: value.strip() for name, _, value in lines}
            if "Package" not in fields or fields.get("Status", "installed").split()[-1] != "installed":
                continue
            packages.append(
                {
                    "name": fields["Package"],
                    "version": fields.get("Version", ""),
                    "architecture": fields.get("Architecture", ""),
                }
            )
    return packages


def rpm() -> list[dict[str, str]] | None:
    """Return the packages in the database of rpm; None in an image without rpm."""
    if shutil.which("rpm") is None:
        return None
    command = ["rpm", "--query", "--all", "--queryformat", "%{NAME}\t%{EVR}\t%{ARCH}\n"]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = (line.split("\t") for line in output.splitlines())
    # The keys that sign packages are listed too, without an architecture.
    return [
        {"name": name, "version": version, "architecture": architecture}
        for name, version, architecture in rows
        if architecture != "(none)"
    ]


def python() -> list[dict[str, str]]:
    """Return the distributions in all site-packages directories, of any interpreter."""
    packages = []
    for directory, names, _ in os.walk("/"):
        if directory == "/":
            names[:] = [name for name in names if name not in NOT_IN_THE_IMAGE]
        if Path(directory).name not in ("site-packages", "dist-packages"):
            continue
        for distribution in importlib.metadata.distributions(path=[directory]):
            name, version = distribution.metadata["Name"], distribution.metadata["Version"]
            # Damaged metadata has no name.
            if name and version:
                packages.append({"name": name, "version": version, "folder": directory})
    return packages


def main() -> None:
    packages = {"debian": debian(), "rpm": rpm(), "python": python()}
    print(json.dumps({"system": system(), **packages}, sort_keys=True))


if __name__ == "__main__":
    main()
