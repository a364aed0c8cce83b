"""Debian packages with documentation files."""

import gzip
import subprocess
from pathlib import Path


def deb(directory: Path, name: str, version: str, files: dict[str, str]) -> Path:
    """Make a Debian package with documentation files."""
    tree = directory / f"{name}-{version}"
    documents = tree / "usr/share/doc" / name
    documents.mkdir(parents=True)
    for file, text in files.items():
        (documents / file).write_bytes(
            gzip.compress(text.encode()) if file.endswith(".gz") else text.encode()
        )
    (tree / "DEBIAN").mkdir()
    control = f"Package: {name}\nVersion: {version}\nArchitecture: amd64\nMaintainer: a test <t@e.st>\n"
    (tree / "DEBIAN/control").write_text(f"{control}Description: made for a test\n")
    package = directory / f"{name}_{version}_amd64.deb"
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "--build", tree, package], check=True, capture_output=True
    )
    return package
