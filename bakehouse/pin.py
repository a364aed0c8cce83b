"""Finds out the sha256 of artifacts where nobody has written it down yet, and writes it down."""

import hashlib
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bakehouse.component import Artifact
from bakehouse.errors import BuildError, Diagnostic, Location, Reason, StaleError
from bakehouse.faces import UNKNOWN
from bakehouse.files import write_whole
from bakehouse.mirrors import Hashes, Mirrors
from bakehouse.plan import Sha256
from bakehouse.pylock import Index, resolve
from bakehouse.sources import Machine, Offer
from bakehouse.wanted import WantedFile
from bakehouse.web import SourceError

_TOLD_BYTES = 100_000_000


@dataclass(frozen=True, slots=True)
class Pinned:
    """An artifact whose sha256 is known now."""

    artifact: Artifact
    sha256: Sha256
    origin: str
    """What it was read from, as it is told."""


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
    # What nobody knows the sha256 of no mirror can be asked for
    machine = Machine((), index.pip, index.certificates, os.environ)
    pinned = []
    for artifact in artifacts:
        if artifact.sha256 is None:
            if path := next(iter(found.named(artifact.file)), None):
                sha256, origin = found.sha256(path), str(path)
            elif artifact.kind == "pypi":
                sha256, origin = _from_index(artifact, index), "the package index"
            else:
                sha256, origin = _fetch(artifact, machine, say)
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


def _fetch(artifact: Artifact, machine: Machine, say: Callable[[str], None]) -> tuple[Sha256, str]:
    """The sha256 of what the artifact's own address gives, or the first of apt's mirrors that has it."""
    assert artifact.kind != "pypi"
    reasons = []
    for offer in machine.offers(WantedFile(artifact.kind, artifact.file, None, None, artifact.source)):
        try:
            return _digest(offer, lambda text: say(f"{artifact.file}: {text}")), offer.name
        except SourceError as error:
            reasons.append(Reason(f"{offer.name} {error.reason}"))
    message = f"`{artifact.file}` can't be had"
    hint = "put the file into a folder and name that in `mirrors` of [tool.bakehouse]"
    told = tuple(reasons) or (Reason("this machine's apt knows no mirror"),)
    raise BuildError(Diagnostic(message, artifact.location, reasons=told, hint=hint))


def _digest(offer: Offer, say: Callable[[str], None]) -> Sha256:
    digest, read, told = hashlib.sha256(), 0, 0
    with offer.open(0, "") as reply:
        of = f" of {reply.total / 1e6:.0f}" if reply.total else ""
        for chunk in reply.chunks():
            digest.update(chunk)
            read += len(chunk)
            if read - told >= _TOLD_BYTES:
                told = read
                say(f"{read / 1e6:.0f}{of} MB")
        if reply.total is not None and read != reply.total:
            reason = f"was cut after {read} of {reply.total} bytes"
            raise SourceError(reason)
    return Sha256(digest.hexdigest())
