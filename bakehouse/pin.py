"""Finds out the sha256 of artifacts where nobody has written it down yet, and writes it down."""

import hashlib
import re
import ssl
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from bakehouse import aptconfig
from bakehouse.component import Artifact
from bakehouse.errors import BuildError, Diagnostic, Location, Reason, StaleError
from bakehouse.faces import UNKNOWN
from bakehouse.files import write_whole
from bakehouse.mirrors import Hashes, Mirrors
from bakehouse.plan import Sha256
from bakehouse.pylock import Index, resolve

_CHUNK = 1 << 20
_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Pinned:
    """An artifact whose sha256 is known now."""

    artifact: Artifact
    sha256: Sha256
    origin: str
    """The file or URL that it was read from."""


def pin(
    artifacts: Sequence[Artifact],
    *,
    mirrors: Sequence[Path],
    state: Path,
    index: Index,
    say: Callable[[str], None],
) -> tuple[Pinned, ...]:
    """Fetch every artifact that has no sha256, and write the sha256 where `unknown` stands.

    Folders of `mirrors` are looked into first, by file name. Each sha256 is written before the next is looked
    for. Raises BuildError where a file can't be had, StaleError where its line has changed.
    """
    found = Mirrors(mirrors, Hashes(state / "hashes.json"))
    pinned = []
    for artifact in artifacts:
        if artifact.sha256 is None:
            if path := next(iter(found.named(artifact.file)), None):
                sha256, origin = found.sha256(path), str(path)
            elif artifact.kind == "pypi":
                sha256, origin = _from_index(artifact, index), "the package index"
            else:
                sha256, origin = _fetch(artifact, index.certificates, say)
            write_pin(artifact.location, sha256)
            say(f"{artifact.file}: sha256 {sha256}, from {origin}")
            pinned.append(Pinned(artifact, sha256, origin))
    return tuple(pinned)


def write_pin(location: Location, sha256: Sha256) -> None:
    """Replace `unknown` at a place of a YAML file; the rest of the file stays as it is."""
    lines = location.path.read_text().splitlines(keepends=True)
    line = lines[location.line - 1] if location.line <= len(lines) else ""
    start = location.column - 1
    match = re.compile(rf"(?P<quote>[\"']?){UNKNOWN}(?P=quote)(?=\s|,|\}}|$)").match(line, start)
    if match is None or (location.text and location.text.rstrip("\n") != line.rstrip("\n")):
        message = f"`{location.path.name}` has changed since it was read: nothing was written"
        hint = f"run it again, or write sha256: {sha256}"
        raise StaleError(Diagnostic(message, location, hint=hint))
    lines[location.line - 1] = f"{line[:start]}{sha256}{line[match.end() :]}"
    write_whole(location.path, "".join(lines))


def _from_index(artifact: Artifact, index: Index) -> Sha256:
    files = resolve([artifact.source], (), index, alone=True)
    for file in files:
        if file.file == artifact.file:
            return Sha256(file.sha256)
    message = f"`{artifact.source}` is not `{artifact.file}` in the package index"
    facts = tuple(("it has", file.file) for file in files)
    raise BuildError(Diagnostic(message, artifact.location, facts=facts))


def _fetch(artifact: Artifact, certificates: Path | None, say: Callable[[str], None]) -> tuple[Sha256, str]:
    failures = []
    for url in _urls(artifact):
        try:
            return _download(url, certificates, lambda text: say(f"{artifact.file}: {text}")), url
        except OSError as error:
            failures.append(f"`{url}` can't be fetched: {getattr(error, 'reason', error)}")
    message = f"`{artifact.file}` can't be had"
    hint = "put the file into a folder and name that in `mirrors` of [tool.bakehouse]"
    reasons = tuple(map(Reason, failures or ["this machine's apt knows no mirror"]))
    raise BuildError(Diagnostic(message, artifact.location, reasons=reasons, hint=hint))


def _urls(artifact: Artifact) -> Iterator[str]:
    """Where an artifact may be fetched; a Debian source package lies in the pool of every mirror."""
    if artifact.kind == "url":
        yield artifact.source
        return
    package = artifact.source.partition("=")[0]
    folder = package[:4] if package.startswith("lib") else package[:1]
    for mirror in dict.fromkeys(source.url.rstrip("/") for source in aptconfig.sources()):
        yield f"{mirror}/pool/main/{folder}/{package}/{artifact.file}"


def _download(url: str, certificates: Path | None, say: Callable[[str], None]) -> Sha256:
    context = ssl.create_default_context(cafile=str(certificates) if certificates else None)
    with urllib.request.urlopen(url, timeout=_SECONDS, context=context) as response:
        return _digest(response, int(response.headers.get("Content-Length") or 0), say)


def _digest(stream: IO[bytes], size: int, say: Callable[[str], None]) -> Sha256:
    digest, read, told = hashlib.sha256(), 0, 0
    while chunk := stream.read(_CHUNK):
        digest.update(chunk)
        read += len(chunk)
        if read - told >= 100 * _CHUNK:
            told = read
            say(f"{read / 1e6:.0f}{f' of {size / 1e6:.0f}' if size else ''} MB")
    if size and read != size:
        message = f"the connection ended after {read} of {size} bytes"
        raise OSError(message)
    return Sha256(digest.hexdigest())
