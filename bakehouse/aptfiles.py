"""Fetches locked packages of a distribution from the mirrors of this machine's apt."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from bakehouse import aptconfig
from bakehouse.aptlock import Deb
from bakehouse.errors import BuildError, Diagnostic

_MOST_LINES = 20


def get(debs: Sequence[Deb], folder: Path) -> None:
    """Put packages into a folder. Raises BuildError where no mirror has one of them with its sha256."""
    folder.mkdir(parents=True, exist_ok=True)
    roots = dict.fromkeys(source.url for source in aptconfig.sources())
    tail: list[str] = []
    for root in roots:
        missing = [deb for deb in debs if not (folder / deb.file).exists()]
        words = [
            word
            for deb in missing
            for word in (f"{root}/{deb.path}", str(folder / deb.file), f"SHA256:{deb.sha256}")
        ]
        if words:
            command = ["/usr/lib/apt/apt-helper", "download-file", *words]
            tail += subprocess.run(command, capture_output=True, text=True, check=False).stderr.splitlines()
    if absent := [deb.file for deb in debs if not (folder / deb.file).exists()]:
        message = f"no mirror has {', '.join(f'`{one}`' for one in absent)}"
        raise BuildError(Diagnostic(message, tail=tuple(tail[-_MOST_LINES:])))
