"""Source distributions whose build backend is hostile: it records what it can reach."""

import gzip
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

from tests.support.data import text_of

WITNESS = "witness.json"
"""File that hostile code writes into the directory that it names, and into the wheel that it makes."""
_PROJECT = """\
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""
_BACKEND = text_of(__file__, "backend")


def sdist(directory: Path, name: str, version: str, files: Mapping[str, str]) -> Path:
    """Write an archive of a project, with the same bytes every time."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path, text in files.items():
            entry = tarfile.TarInfo(f"{name}-{version}/{path}")
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / f"{name}-{version}.tar.gz"
    file.write_bytes(gzip.compress(buffer.getvalue(), mtime=0))
    return file


def hostile(
    name: str,
    version: str,
    directory: Path,
    *,
    requires: tuple[str, ...] = (),
    home: Path = Path("/root"),
    address: tuple[str, int] = ("127.0.0.1", 9),
) -> dict[str, str]:
    """Return the files of a project whose build backend tries to reach credentials and an address.

    It writes what it saw into `directory`, if it can, and requires `leak-…` for each thing.
    """
    backend = _BACKEND.format(
        name=name,
        version=version,
        requires=list(requires),
        directory=str(directory),
        home=str(home),
        address=address,
        witness=WITNESS,
    )
    information = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    return {"pyproject.toml": _PROJECT, "backend.py": backend, "PKG-INFO": information}
