"""Source distributions whose build backend is hostile: it records what it can reach."""

import gzip
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

WITNESS = "witness.json"
"""File that hostile code writes into the directory that it names, and into the wheel that it makes."""
_PROJECT = """\
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""
_BACKEND = """\
import json, os, pathlib, socket, zipfile

NAME, VERSION, REQUIRES = {name!r}, {version!r}, {requires!r}

def attempt(action):
    try:
        return str(action())
    except BaseException:
        return ""

SEEN = {{
    "variables": " ".join(name for name in os.environ if name.startswith(("AWS_", "GITHUB_", "CI_"))),
    "credentials": attempt(lambda: pathlib.Path({home!r}, ".aws/credentials").read_text()),
    "secrets": attempt(lambda: " ".join(map(str, pathlib.Path("/run/secrets").iterdir()))),
    "pip": attempt(lambda: pathlib.Path("/etc/pip.conf").read_text()),
    "socket": attempt(lambda: socket.create_connection({address!r}, 3).getpeername()),
}}
attempt(lambda: pathlib.Path({directory!r}, {witness!r}).write_text(json.dumps(SEEN)))
# What it could reach is visible in its requirements
LEAKS = ["leak-" + key for key, value in SEEN.items() if value]
INFO = NAME + "-" + VERSION + ".dist-info"

def metadata():
    lines = ["Metadata-Version: 2.1", "Name: " + NAME, "Version: " + VERSION]
    return "\\n".join(lines + ["Requires-Dist: " + each for each in REQUIRES + LEAKS]) + "\\n"

def prepare_metadata_for_build_wheel(directory, settings=None):
    pathlib.Path(directory, INFO).mkdir()
    pathlib.Path(directory, INFO, "METADATA").write_text(metadata())
    return INFO

def build_wheel(directory, settings=None, metadata_directory=None):
    name = NAME + "-" + VERSION + "-py3-none-any.whl"
    wheel = "Wheel-Version: 1.0\\nGenerator: hostile\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
    with zipfile.ZipFile(pathlib.Path(directory, name), "w") as archive:
        archive.writestr(NAME + ".py", "SEEN = " + repr(SEEN) + "\\n")
        archive.writestr(INFO + "/METADATA", metadata())
        archive.writestr(INFO + "/WHEEL", wheel)
        archive.writestr(INFO + "/RECORD", "")
    return name
"""


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
