"""Finds out the sha256 and the size of artifacts where nobody has written them down yet, and does so."""

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bakehouse.catalog.component import Artifact
from bakehouse.catalog.spec_reader import UNKNOWN
from bakehouse.errors import BuildError, Diagnostic, Location, Problems, Reason, StaleError
from bakehouse.fetch.cache import FileCache
from bakehouse.fetch.http_client import SourceError
from bakehouse.fetch.local_mirror import HashCache, LocalMirrors
from bakehouse.fetch.required_files import RequiredFile
from bakehouse.fetch.sources import DownloadConfig, Offer
from bakehouse.lock.python import Index, resolve
from bakehouse.util.files import write_whole
from bakehouse.util.format import format_bytes
from bakehouse.util.oci import Sha256
from bakehouse.util.yaml_reader import is_in_flow

_TOLD_BYTES = 100_000_000


@dataclass(frozen=True, slots=True)
class Pinned:
    """An artifact whose sha256 and size are known now."""

    artifact: Artifact
    sha256: Sha256
    bytes: int
    origin: str
    """What they were read from, as it is told."""

    @property
    def line(self) -> str:
        """What was found out, as it is told."""
        sha256 = "" if self.artifact.sha256 else f"sha256:{self.sha256}, "
        return f"{self.artifact.file}: {sha256}{self.bytes:,} bytes, from {self.origin}"


def pin(
    artifacts: Sequence[Artifact],
    *,
    mirrors: Sequence[Path],
    cache: Path,
    state: Path,
    index: Index,
    say: Callable[[str], None],
) -> tuple[Pinned, ...]:
    """Fetch every artifact that has no sha256, and write its sha256 and size where `unknown` stands.

    Folders of `mirrors` are looked into first, by file name. Of an artifact with a sha256 only the size is
    missing: it is written where that file is on this machine, and nothing is fetched for it. Each is written
    before the next is looked for. Raises BuildError with all files that can't be had or have another size
    than is written of them, once the others are written; StaleError where a line has changed.
    """
    # What nobody knows the sha256 of no mirror can be asked for
    machine = DownloadConfig((), index.pip, index.certificates, os.environ)
    hashes, kept = HashCache(state / "hashes.json"), FileCache(cache, say)
    found, known = LocalMirrors(mirrors, hashes), LocalMirrors((*mirrors, *machine.folders), hashes)
    pinned = []
    added: list[Location] = []
    problems, lost, down = Problems(), list[_Lost](), dict[str, str]()
    # What asks nobody comes first: it can't fail.
    for artifact in sorted(artifacts, key=lambda one: one.sha256 is None):
        try:
            if artifact.sha256:
                one = _sized(artifact, known, kept)
            else:
                one = _pinned(artifact, found, index, machine, down, say)
        except _Lost as error:
            lost.append(error)
            continue
        except BuildError as error:
            problems.extend(error.diagnostics)
            continue
        if one:
            spot = artifact.location
            above = sum(line.path == spot.path and line.line < spot.line for line in added)
            if write_pin(one, above):
                added.append(spot)
            say(one.line)
            pinned.append(one)
    problems.extend(_told(lost))
    problems.raise_as(BuildError)
    return tuple(pinned)


def write_pin(found: Pinned, below: int = 0) -> bool:
    """Put what was found where `unknown` stands, and the size behind the sha256 where it stands nowhere yet.

    The rest of the file stays as it is, but that lines move where True comes back. `below` says how many
    have come before it since the file was read. Raises StaleError where something else has changed.
    """
    artifact = found.artifact
    texts: dict[Location, str] = {}
    if artifact.sha256 is None:
        texts[artifact.location] = found.sha256
    place, line = artifact.size_location if artifact.bytes is None else None, ""
    if place == artifact.location:
        if is_in_flow(artifact.location.path.read_text(), place.line + below, place.column):
            texts[place] = f"{found.sha256}, bytes: {found.bytes}"
        else:
            texts[place] = found.sha256
            line = f"bytes: {found.bytes}"
    elif place:
        texts[place] = str(found.bytes)
    _replace(found, texts, below, line)
    return bool(line)


def _replace(found: Pinned, texts: Mapping[Location, str], below: int, line: str) -> None:
    """Replace what stands at places of a file; `line` is put below the sha256's, in its column."""
    path = found.artifact.location.path
    # As bytes: reading text would make all ends of lines the same
    lines = path.read_bytes().decode().splitlines(keepends=True)
    pattern = re.compile(rf"(?P<quote>[\"']?)(?:{UNKNOWN}|{found.sha256})(?P=quote)(?=\s|,|\}}|$)")
    for place in texts:
        now = lines[place.line + below - 1] if place.line + below <= len(lines) else ""
        is_same = not place.text or place.text.rstrip("\r\n") == now.rstrip("\r\n")
        if not is_same or not pattern.match(now, place.column - 1):
            message = f"`{path.name}` has changed since it was read: nothing was written"
            hint = f"run it again, or write sha256: {found.sha256}"
            raise StaleError(Diagnostic(message, place, hint=hint))
    for place, text in sorted(texts.items(), key=lambda one: one[0].column, reverse=True):
        index, start = place.line + below - 1, place.column - 1
        match = pattern.match(lines[index], start)
        assert match
        lines[index] = f"{lines[index][:start]}{text}{lines[index][match.end() :]}"
    if line:
        index = found.artifact.location.line + below - 1
        whole = lines[index].rstrip()
        indent = " " * (len(whole) - len(whole.lstrip()))
        end = "\r\n" if lines[index].endswith("\r\n") else "\n"
        lines[index] = f"{whole}{end}{indent}{line}{end}"
    write_whole(path, "".join(lines))


def _sized(artifact: Artifact, found: LocalMirrors, kept: FileCache) -> Pinned | None:
    """An artifact whose size can be told without fetching it."""
    sha256 = Sha256(str(artifact.sha256))
    if artifact.bytes is not None or artifact.size_location is None:
        return None
    path = kept.find(sha256, artifact.file) or found.find(sha256, artifact.file)
    return Pinned(artifact, sha256, path.stat().st_size, str(path)) if path else None


def _pinned(
    artifact: Artifact,
    found: LocalMirrors,
    index: Index,
    machine: DownloadConfig,
    down: dict[str, str],
    say: Callable[[str], None],
) -> Pinned:
    if path := next(iter(found.named(artifact.file)), None):
        one = Pinned(artifact, found.sha256(path), path.stat().st_size, str(path))
    elif artifact.kind == "pypi":
        one = _from_index(artifact, index)
    else:
        one = _fetch(artifact, machine, down, say)
    if artifact.bytes not in (None, one.bytes):
        message = f"`{artifact.file}` has {one.bytes:,} bytes, and `bytes` says {artifact.bytes:,}"
        hint = "compare with what the publisher tells; what is wrong is not known here"
        facts = (("found", one.origin),)
        raise BuildError(Diagnostic(message, artifact.location, facts=facts, hint=hint))
    return one


def _from_index(artifact: Artifact, index: Index) -> Pinned:
    files = resolve([artifact.source], (), index, alone=True)
    for file in files:
        if file.file == artifact.file:
            return Pinned(artifact, Sha256(file.sha256), file.bytes, "the package index")
    message = f"`{artifact.source}` is not `{artifact.file}` in the package index"
    facts = tuple(("it has", file.file) for file in files)
    raise BuildError(Diagnostic(message, artifact.location, facts=facts))


def _fetch(
    artifact: Artifact, machine: DownloadConfig, down: dict[str, str], say: Callable[[str], None]
) -> Pinned:
    """What the artifact's own address gives, or the first of apt's mirrors that has it.

    `down` has why a server was given up: it is not waited for once more.
    """
    assert artifact.kind != "pypi"
    refusals = []
    wanted = RequiredFile(artifact.kind, artifact.file, None, artifact.bytes, artifact.source)
    for offer in machine.offers(wanted):
        if offer.place in down:
            refusals.append((offer, down[offer.place]))
            continue
        try:
            sha256, size = _digest(offer, artifact.bytes, lambda text: say(f"{artifact.file}: {text}"))
            return Pinned(artifact, sha256, size, offer.name)
        except SourceError as error:
            refusals.append((offer, error.reason))
            if error.is_down:
                down[offer.place] = error.reason
    raise _Lost(artifact, refusals)


class _Lost(Exception):
    """An artifact that nobody gives."""

    def __init__(self, artifact: Artifact, refusals: Sequence[tuple[Offer, str]]) -> None:
        super().__init__(artifact.file)
        self.artifact, self.refusals = artifact, refusals

    @property
    def cause(self) -> tuple[tuple[str, str], ...]:
        """Why it is lost, which many files of one server have in common."""
        return tuple((offer.place, reason) for offer, reason in self.refusals)


def _told(lost: Iterable[_Lost]) -> Iterator[Diagnostic]:
    """What can't be had, by its cause: one server that is down may have dozens of files."""
    causes: dict[tuple[tuple[str, str], ...], list[_Lost]] = {}
    for one in lost:
        causes.setdefault(one.cause, []).append(one)
    for first, *others in causes.values():
        count = f" and {len(others)} {'other' if len(others) == 1 else 'others'}" if others else ""
        reasons = tuple(Reason(f"{offer.name} {reason}") for offer, reason in first.refusals)
        what = "them" if others else "the file"
        yield Diagnostic(
            f"`{first.artifact.file}`{count} can't be had",
            first.artifact.location,
            reasons=reasons or (Reason("this machine's apt knows no mirror"),),
            facts=tuple(("and", one.artifact.file) for one in others),
            hint=f"put {what} into a folder and name that in `mirrors` of [tool.bakehouse]",
        )


def _digest(offer: Offer, size: int | None, say: Callable[[str], None]) -> tuple[Sha256, int]:
    digest, read, told = hashlib.sha256(), 0, 0
    with offer.open(0, "") as reply:
        if size is not None and reply.total not in (None, size):
            reason = f"has {reply.total} bytes under that name, not {size}: refused"
            raise SourceError(reason)
        of = f" of {format_bytes(reply.total)}" if reply.total else ""
        for chunk in reply.chunks():
            digest.update(chunk)
            read += len(chunk)
            if read - told >= _TOLD_BYTES:
                told = read
                say(f"{format_bytes(read)}{of}")
        if reply.total is not None and read != reply.total:
            reason = f"was cut after {read} of {reply.total} bytes"
            raise SourceError(reason)
    return Sha256(digest.hexdigest()), read
