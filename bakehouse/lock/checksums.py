"""Checksums and sizes of artifacts: finds missing ones, and writes them into the component files."""

import hashlib
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bakehouse.catalog.component import Artifact
from bakehouse.catalog.spec_reader import UNKNOWN
from bakehouse.errors import BuildError, Diagnostic, Location, Problems, Reason, StaleError
from bakehouse.fetch.cache import FileCache
from bakehouse.fetch.faults import SourceError
from bakehouse.fetch.local_mirror import HashCache, LocalMirrors
from bakehouse.fetch.required_files import RequiredFile
from bakehouse.fetch.sources import DownloadConfig, Offer
from bakehouse.lock.python import Index, resolve
from bakehouse.util.files import read_bytes, read_text, write_whole
from bakehouse.util.format import format_bytes, format_count
from bakehouse.util.oci import Sha256
from bakehouse.util.terminal import Reporter
from bakehouse.util.yaml_reader import is_in_flow

_REPORT_BYTES = 100_000_000


@dataclass(frozen=True, slots=True)
class Pinned:
    """An artifact with its sha256 and size."""

    artifact: Artifact
    sha256: Sha256
    bytes: int
    origin: str
    """The file or URL that was read."""

    @property
    def line(self) -> str:
        """One line of output about it."""
        sha256 = "" if self.artifact.sha256 else f"sha256:{self.sha256}, "
        return f"{self.artifact.file}: {sha256}{self.bytes:,} bytes, from {self.origin}"


Writer = Callable[[Pinned, int], bool]
"""Writes a pin, given the number of lines added above; returns whether it adds a line to a component."""


@dataclass(frozen=True, slots=True)
class PinSources:
    """Places of files whose checksums are unknown."""

    mirrors: Sequence[Path]
    """Directories that are searched first, by file name."""
    cache: Path
    """Directory of downloaded files."""
    state: Path
    """Directory of the checksums of local files."""
    index: Index
    shared_names: Collection[str] = ()
    """File names that several artifacts share. In a mirror, their paths need the host and path of the URL."""


def pin(
    artifacts: Sequence[Artifact], sources: PinSources, write: Writer, report: Reporter
) -> tuple[Pinned, ...]:
    """Download artifacts without a sha256, and write their sha256 and size in place of `unknown`.

    `write` is `write_pin`, or a function that records pins elsewhere. If only the size of an artifact is
    missing, it is written if the file is on this machine; nothing is downloaded for it. Each artifact is
    written before the next one is processed. Raises BuildError at the end with all files that are unavailable
    or have another size, and StaleError if a line has changed.
    """
    search = _Search(sources, report)
    results = []
    added_lines: list[Location] = []
    problems, unavailable = Problems(), list[_Unavailable]()
    # Artifacts with a sha256 come first, because they need no network
    for artifact in sorted(artifacts, key=lambda artifact: artifact.sha256 is None):
        try:
            pinned = search.size_of(artifact) if artifact.sha256 else search.find(artifact)
        except _Unavailable as error:
            unavailable.append(error)
            continue
        except BuildError as error:
            problems.extend(error.diagnostics)
            continue
        if pinned:
            location = artifact.location
            shift = sum(line.path == location.path and line.line < location.line for line in added_lines)
            if write(pinned, shift):
                added_lines.append(location)
            report(pinned.line)
            results.append(pinned)
    problems.extend(_unavailable_errors(unavailable, sources.shared_names))
    problems.raise_as(BuildError)
    return tuple(results)


def write_pin(pinned: Pinned, shift: int = 0) -> bool:
    """Write a sha256 and a size in place of `unknown`; a size without a place follows the sha256.

    The rest of the file stays unchanged. Returns whether a line was added. `shift` is the number of lines
    added above since the file was read. Raises StaleError if the file has changed otherwise.
    """
    artifact = pinned.artifact
    texts: dict[Location, str] = {}
    if artifact.sha256 is None:
        texts[artifact.location] = pinned.sha256
    location, line = artifact.size_location if artifact.bytes is None else None, ""
    if location == artifact.location:
        if is_in_flow(read_text(artifact.location.path), location.line + shift, location.column):
            texts[location] = f"{pinned.sha256}, bytes: {pinned.bytes}"
        else:
            texts[location] = pinned.sha256
            line = f"bytes: {pinned.bytes}"
    elif location:
        texts[location] = str(pinned.bytes)
    _replace(pinned, texts, shift, line)
    return bool(line)


def _replace(pinned: Pinned, texts: Mapping[Location, str], shift: int, line: str) -> None:
    """Replace text at locations of a file, and insert `line` below the sha256, in its column."""
    path = pinned.artifact.location.path
    # As bytes, because reading text would unify line endings
    lines = read_bytes(path).decode().splitlines(keepends=True)
    pattern = re.compile(rf"(?P<quote>[\"']?)(?:{UNKNOWN}|{pinned.sha256})(?P=quote)(?=\s|,|\}}|$)")
    for location in texts:
        current = lines[location.line + shift - 1] if location.line + shift <= len(lines) else ""
        is_same = not location.text or location.text.rstrip("\r\n") == current.rstrip("\r\n")
        if not is_same or not pattern.match(current, location.column - 1):
            raise StaleError(
                f"`{path.name}` has changed since it was read; nothing was written",
                location,
                hint=f"run the command again, or write sha256: {pinned.sha256}",
            )
    for location, text in sorted(texts.items(), key=lambda item: item[0].column, reverse=True):
        index, start = location.line + shift - 1, location.column - 1
        match = pattern.match(lines[index], start)
        assert match
        lines[index] = f"{lines[index][:start]}{text}{lines[index][match.end() :]}"
    if line:
        index = pinned.artifact.location.line + shift - 1
        whole = lines[index].rstrip()
        indent = " " * (len(whole) - len(whole.lstrip()))
        end = "\r\n" if lines[index].endswith("\r\n") else "\n"
        lines[index] = f"{whole}{end}{indent}{line}{end}"
    write_whole(path, "".join(lines))


class _Search:
    """Search for artifacts in local files, in the package index and at their URLs."""

    def __init__(self, sources: PinSources, report: Reporter) -> None:
        self._index, self._shared_names, self._report = sources.index, sources.shared_names, report
        # Mirrors that find files by sha256 cannot help
        self._downloads = DownloadConfig((), self._index.pip, self._index.certificates, os.environ)
        hashes = HashCache(sources.state / "hashes.json")
        self._cache = FileCache(sources.cache, report)
        self._mirrors = LocalMirrors(sources.mirrors, hashes)
        self._local = LocalMirrors((*sources.mirrors, *self._downloads.folders), hashes)
        self._failed: dict[str, str] = {}
        """Reasons of servers that failed; these are not tried again."""

    def size_of(self, artifact: Artifact) -> Pinned | None:
        """Return an artifact with its size if the file is on this machine."""
        sha256 = Sha256(str(artifact.sha256))
        if artifact.bytes is not None or artifact.size_location is None:
            return None
        path = self._cache.find(sha256, artifact.file) or self._local.find(sha256, artifact.file)
        return Pinned(artifact, sha256, path.stat().st_size, str(path)) if path else None

    def find(self, artifact: Artifact) -> Pinned:
        """Return an artifact with its sha256 and size. Raises BuildError or _Unavailable."""
        if path := next(iter(self._named(artifact)), None):
            pinned = Pinned(artifact, self._mirrors.sha256(path), path.stat().st_size, str(path))
        elif artifact.kind == "pypi":
            pinned = self._from_index(artifact)
        else:
            pinned = self._download(artifact)
        if artifact.bytes not in (None, pinned.bytes):
            message = f"`{artifact.file}` has {pinned.bytes:,} bytes, but `bytes` is {artifact.bytes:,}"
            hint = "compare both with the publisher's value"
            facts = (("found", pinned.origin),)
            raise BuildError(message, artifact.location, facts=facts, hint=hint)
        if not pinned.bytes:
            facts = (("found", pinned.origin),)
            raise BuildError(f"`{artifact.file}` is empty", artifact.location, facts=facts)
        return pinned

    def _named(self, artifact: Artifact) -> list[Path]:
        """Return the files of mirrors with the name of an artifact, those below its host and path first."""
        url = urlsplit(artifact.source)
        end = unquote(f"/{url.hostname}{url.path}")
        paths = self._mirrors.named(artifact.file)
        exact = [path for path in paths if unquote(str(path)).endswith(end)]
        return exact if artifact.file in self._shared_names else [*exact, *paths]

    def _from_index(self, artifact: Artifact) -> Pinned:
        files = resolve([artifact.source], (), self._index, alone=True)
        for file in files:
            if file.file == artifact.file:
                return Pinned(artifact, Sha256(file.sha256), file.bytes, "the package index")
        message = f"`{artifact.source}` is not `{artifact.file}` in the package index"
        facts = tuple(("it has", file.file) for file in files)
        raise BuildError(message, artifact.location, facts=facts)

    def _download(self, artifact: Artifact) -> Pinned:
        """Hash an artifact from its own URL, or from the first apt mirror that has it."""
        assert artifact.kind != "pypi"
        failures = []
        required = RequiredFile(artifact.kind, artifact.file, None, artifact.bytes, artifact.source)

        def report(text: str) -> None:
            self._report(f"{artifact.file}: {text}")

        for offer in self._downloads.offers(required):
            if offer.place in self._failed:
                failures.append((offer, self._failed[offer.place]))
                continue
            try:
                sha256, size = _digest(offer, artifact.bytes, report)
                return Pinned(artifact, sha256, size, offer.name)
            except SourceError as error:
                failures.append((offer, error.reason))
                if error.fault.is_down:
                    self._failed[offer.place] = error.reason
        raise _Unavailable(artifact, failures)


class _Unavailable(Exception):
    """An artifact that no source has."""

    def __init__(self, artifact: Artifact, failures: Sequence[tuple[Offer, str]]) -> None:
        super().__init__(artifact.file)
        self.artifact, self.failures = artifact, failures

    @property
    def cause(self) -> tuple[tuple[str, str], ...]:
        """The reason of each source; files of one failing server share it."""
        return tuple((offer.place, reason) for offer, reason in self.failures)


def _unavailable_errors(
    unavailable: Iterable[_Unavailable], shared_names: Collection[str]
) -> Iterator[Diagnostic]:
    """Yield one error for each cause, because a failing server may have dozens of files."""
    causes: dict[tuple[tuple[str, str], ...], list[_Unavailable]] = {}
    for error in unavailable:
        causes.setdefault(error.cause, []).append(error)
    for first, *others in causes.values():
        more = f" and {format_count(len(others), 'other')} are" if others else " is"
        files = "the files" if others else "the file"
        path = " with the host and path of its URL" if first.artifact.file in shared_names else ""
        yield Diagnostic(
            f"`{first.artifact.file}`{more} unavailable",
            first.artifact.location,
            reasons=tuple(Reason(f"{offer.name} {reason}") for offer, reason in first.failures)
            or (Reason("this machine's apt has no mirror"),),
            facts=tuple(("and", error.artifact.file) for error in others),
            hint=f"copy {files}{path} into a directory and add it to `mirrors` in [tool.bakehouse]",
        )


def _digest(offer: Offer, size: int | None, report: Reporter) -> tuple[Sha256, int]:
    digest, count, reported = hashlib.sha256(), 0, 0
    with offer.open(0, "") as response:
        if size is not None and response.total not in (None, size):
            reason = f"has a file of {response.total} bytes instead of {size}"
            raise SourceError(reason)
        total = f" of {format_bytes(response.total)}" if response.total else ""
        for chunk in response.chunks():
            digest.update(chunk)
            count += len(chunk)
            if count - reported >= _REPORT_BYTES:
                reported = count
                report(f"{format_bytes(count)}{total}")
        if response.total is not None and count != response.total:
            reason = f"was cut off after {count} of {response.total} bytes"
            raise SourceError(reason)
    return Sha256(digest.hexdigest()), count
