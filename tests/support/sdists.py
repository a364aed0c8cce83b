"""Source distributions whose build backend is hostile: it records what it can reach."""

import gzip
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

WITNESS = "witness.json"
"""File that hostile code writes next to its setup.py, and into the directory that it names."""
_SETUP = """\
import json, os, pathlib, socket
from setuptools import setup

def attempt(action):
    try:
        return str(action())
    except BaseException as error:
        return ""

seen = {{
    "environment": dict(os.environ),
    "credentials": attempt(lambda: pathlib.Path({home!r}, ".aws/credentials").read_text()),
    "socket": attempt(lambda: socket.create_connection({address!r}, 3).getpeername()),
    "secrets": attempt(lambda: [str(path) for path in pathlib.Path("/run/secrets").iterdir()]),
    "pip": attempt(lambda: pathlib.Path("/etc/pip.conf").read_text()),
}}
text = json.dumps(seen)
for directory in ({directory!r}, os.path.dirname(os.path.abspath(__file__))):
    attempt(lambda: pathlib.Path(directory, {witness!r}).write_text(text))
setup(name={name!r}, version={version!r}, py_modules=[{name!r}], install_requires={requires!r}, {more})
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
    more: str = "",
) -> dict[str, str]:
    """Return the files of a project whose setup.py tries to reach credentials, and a socket at an address.

    It writes what it saw into its own directory and into `directory`, if it can.
    """
    setup = _SETUP.format(
        name=name,
        version=version,
        requires=list(requires),
        directory=str(directory),
        home=str(home),
        address=address,
        witness=WITNESS,
        more=more,
    )
    return {
        "setup.py": setup,
        f"{name}.py": f"V = {version!r}\n",
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
    }
