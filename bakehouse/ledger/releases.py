"""Release records, and the ledger file that holds those of an image: `images/<image>/releases.json`.

Records are only added, never changed. Each is one line of the file, so that a merge can keep the lines of
both sides. Looking up an image URI imports this module, so it imports little.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bakehouse.errors import Location, RecipeError
from bakehouse.util.files import matching_paths, read_text, write_whole
from bakehouse.util.json_reader import decode, parse_large_json
from bakehouse.util.oci import PLATFORM, region_of

_FORMAT = 2
_READ_FORMATS = (1, _FORMAT)
"""In format 1, a record had many lines, so git could merge two records into one."""
_CONFLICT = re.compile(r"^<{7}( |$)", re.MULTILINE)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class ReleasedComponent:
    """Component of a release."""

    component: str
    version: str
    variant: str

    @property
    def version_text(self) -> str:
        """Version and variant, such as `2.13.0 (cpu-py311)`."""
        return f"{self.version} ({self.variant})" if self.variant else self.version


@dataclass(frozen=True, slots=True)
class ReleasedName:
    """Name that components provide, such as `cuda`, with its version."""

    name: str
    version: str


@dataclass(frozen=True, slots=True)
class ReleasedCheck:
    """Outcome of one smoke check of a release."""

    name: str
    outcome: str


@dataclass(frozen=True, slots=True)
class ReleasedFindings:
    """Number of findings of one severity in a scan."""

    severity: str
    count: int


@dataclass(frozen=True, slots=True)
class ReleasedScan:
    """Summary of a signed scan result, as Bakehouse 0.2 recorded it."""

    key: str
    """Hint of the public key, as in the bundle."""
    finished: str
    """Time of the scan in UTC."""
    updated: str
    """Time in UTC of the oldest data that it used."""
    findings: tuple[ReleasedFindings, ...]
    """Vulnerabilities without a waiver, those of the worst severity first."""
    waived: int
    """Number of waived vulnerabilities."""
    waived_until: str
    """Day on which the first waiver expires; empty without waivers."""
    not_scanned: tuple[str, ...]
    """Kinds of contents that were not scanned."""


@dataclass(frozen=True, slots=True)
class ReleasedRegion:
    """Release in one AWS region."""

    region: str
    image_uri: str
    tag: str


@dataclass(frozen=True, slots=True)
class ReleasedArtifact:
    """Document attached to a release in its registry, such as its bill of materials."""

    media_type: str
    digest: str


@dataclass(frozen=True, slots=True)
class ReleasedRollback:
    """Return to a release that was published before."""

    time: str
    """Time in UTC."""
    replaced: str
    """Digest of the release that look-ups returned before."""


@dataclass(frozen=True, slots=True)
class ReleaseRecord:
    """One publication of an image, with the facts that estimators need."""

    image: str
    """Name of the image."""
    key: str
    digest: str
    registry: str
    repository: str
    tags: tuple[str, ...]
    image_uri: str
    date: str
    """Day of publication in UTC, which is also in its release tag."""
    tested: bool
    """No check failed, and all checks that the recipe requires passed."""
    transport: str
    """Transport between the ranks of the smoke test; empty without a smoke test."""
    checks: tuple[ReleasedCheck, ...]
    parts: tuple[ReleasedComponent, ...]
    gpu: bool
    launchers: tuple[str, ...]
    training_module: str
    """Value of SAGEMAKER_TRAINING_MODULE; empty for the plain SageMaker Training Toolkit."""
    entry_point: str
    """Training code in the image at /opt/ml/code; empty if the estimator uploads it."""
    media_type: str
    bytes: int
    candidate: bool = False
    """Published for testing, without a release tag."""
    tested_on_gpus: bool | None = None
    """A check that needs GPUs passed; None without GPU support, and in records of older versions."""
    provides: tuple[ReleasedName, ...] = ()
    gpu_architecture: str = ""
    """GPU architectures that its components support, as in `>=7.5,<10`; empty if unknown."""
    neuron_architecture: str = ""
    """NeuronCore versions that it supports, as in `>=2,<5`; empty if it uses no Neuron devices."""
    platform: str = PLATFORM
    config: str = ""
    """Digest of its configuration, by which an engine without a containerd store knows it."""
    revision: str = ""
    """Commit that it was published from, with `-dirty` if files of the image differ; empty without one."""
    uncommitted: tuple[str, ...] = ()
    """These files, relative to the repository."""
    regions: tuple[ReleasedRegion, ...] = ()
    """All regions of Amazon ECR that have it, including that of `image_uri`."""
    scanned: str = ""
    """Time of the completed scan in UTC; empty without a scan."""
    not_scanned: str = ""
    """Reason for a missing scan that was requested."""
    findings: tuple[ReleasedFindings, ...] = ()
    artifacts: tuple[ReleasedArtifact, ...] = ()
    """Documents attached to its digest."""
    scans: tuple[ReleasedScan, ...] = ()
    """Signed scans of Bakehouse 0.2, which no command writes now."""
    rollback: ReleasedRollback | None = None
    """Present if the record makes an earlier release the latest again."""
    unpinned: tuple[str, ...] | None = None
    """Inputs that nothing pins; None in records of older versions, which do not know them."""
    time: str = ""
    """Time of publication in UTC; empty in records of older versions."""

    def version_of(self, name: str) -> str:
        """Return the version of a component or a provided name; empty if it has neither."""
        for part in self.parts:
            if part.component == name:
                return part.version
        return next((provided.version for provided in self.provides if provided.name == name), "")

    @property
    def locations(self) -> tuple["ReleaseRecord", ...]:
        """Return the record as seen from each of its regions, the primary one first."""
        others = [region for region in self.regions if region.image_uri != self.image_uri]
        return (self, *(self._in_region(region) for region in others))

    def _in_region(self, region: ReleasedRegion) -> "ReleaseRecord":
        registry, _, rest = region.image_uri.partition("/")
        repository = rest.partition("@")[0]
        return replace(
            self, registry=registry, repository=repository, image_uri=region.image_uri, tags=(region.tag,)
        )

    @property
    def place(self) -> str:
        """The registry with the prefix of its repositories, because each prefix is a registry of its own."""
        return _place(self.registry, self.repository)

    @property
    def is_released(self) -> bool:
        """Return whether a look-up may return it."""
        return self.tested and not self.candidate

    @property
    def region(self) -> str:
        """Return the AWS region of its image URI; empty outside Amazon ECR."""
        names = (region.region for region in self.regions if region.image_uri == self.image_uri)
        return next(names, region_of(self.registry))


_DEFAULTS = {field.name: field.default for field in fields(ReleaseRecord) if field.default is not MISSING}
_OPTIONAL = _DEFAULTS.keys()
_REQUIRED = {field.name for field in fields(ReleaseRecord)} - _OPTIONAL


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """Release record with its JSON object, which may have fields of a newer Bakehouse."""

    record: ReleaseRecord
    fields: Mapping[str, Any]

    @classmethod
    def of(cls, record: ReleaseRecord) -> "LedgerEntry":
        """Return the entry of a record that is not in a ledger yet."""
        return cls(record, asdict(record))

    @classmethod
    def parse(cls, value: object, path: str = "") -> "LedgerEntry":
        """Return the entry of a JSON value; `path` is its place in the file. Raises ValueError."""
        record = decode(value, ReleaseRecord, path)
        assert isinstance(value, dict)
        _require(_DIGEST.fullmatch(record.digest) is not None, f"`{record.digest}` is not a digest")
        image_uri = f"{record.registry}/{record.repository}@{record.digest}"
        mismatch = f"`{record.image_uri}` does not match its registry, repository and digest"
        _require(record.image_uri == image_uri, mismatch)
        for region in record.regions:
            is_same = region.image_uri.endswith(f"@{record.digest}")
            _require(is_same, f"`{region.image_uri}` has another digest")
        return cls(record, value)

    @property
    def identity(self) -> str:
        """Facts other than the date, the time, the commit and uncommitted files, as JSON.

        Optional fields are omitted while they have their defaults, so that a version that adds one does not
        change identities. The default of a field of a newer Bakehouse is empty.
        """
        facts = {**self.fields, "date": "", "time": "", "revision": "", "uncommitted": ()}
        return json.dumps(
            {name: value for name, value in facts.items() if not _has_default(name, value)}, sort_keys=True
        )


def _has_default(name: str, value: object) -> bool:
    if name in _REQUIRED:
        return False
    default = _DEFAULTS.get(name)
    # An empty tuple is an empty list in JSON.
    return value == default if default else not value


def lock_path(locks: Path, image: str) -> Path:
    """Return the lock of the ledger file of an image."""
    return locks / f"releases-{image}.lock"


def append(path: Path, new: ReleaseRecord, locks: Path) -> tuple[ReleaseRecord, ...]:
    """Add a record to the ledger at `path`, safe against concurrent writers; return all records.

    Facts that become known later, such as another tag of a digest, get a separate record.
    """
    # Looking up an image URI does not need it.
    from bakehouse.util.file_lock import exclusive

    # The record may have a former name of the image
    with exclusive(lock_path(locks, path.parent.name)):
        entries = load_entries(path)
        extended = add_entry(entries, LedgerEntry.of(new))
        if extended != entries:
            write_whole(path, text_of_entries(extended))
        return tuple(entry.record for entry in extended)


def add_entry(entries: tuple[LedgerEntry, ...], new: LedgerEntry) -> tuple[LedgerEntry, ...]:
    """Return the entries with `new`, unless an existing one differs only in its date and commit."""
    added = new.record
    same_digest = (entry.record for entry in entries if entry.record.digest == added.digest)
    return entries if any(_undated(record) == _undated(added) for record in same_digest) else (*entries, new)


def _undated(record: ReleaseRecord) -> ReleaseRecord:
    # As in the identity, nothing is like not known
    return replace(record, date="", time="", revision="", uncommitted=(), unpinned=record.unpinned or None)


def text_of(records: Iterable[ReleaseRecord]) -> str:
    """Return the text of a ledger file with new records."""
    return text_of_entries(map(LedgerEntry.of, records))


def text_of_entries(entries: Iterable[LedgerEntry]) -> str:
    """Return the text of a ledger file, with the fields of newer versions.

    All lines of records end in a comma, so a merge that keeps the lines of both sides is valid JSON.
    """
    lines = "".join(f"{json.dumps(entry.fields, sort_keys=True)},\n" for entry in entries)
    return f'{{"format": {_FORMAT}, "releases": [\n{lines}null]}}\n'


def load(path: Path) -> tuple[ReleaseRecord, ...]:
    """Return the records of a ledger, oldest first; none if the file does not exist."""
    return tuple(entry.record for entry in load_entries(path))


def load_entries(path: Path) -> tuple[LedgerEntry, ...]:
    """Return the records of a ledger with their JSON objects, oldest first; none without a file."""
    return tuple(_entry(path, index, value) for index, value in enumerate(_values(path)))


def former_names(images: Path) -> dict[str, str]:
    """Return the current names of renamed images, by former name, from the directory of the ledgers."""
    return {
        str(value.get("image")): path.parent.name
        for path in matching_paths(images, "*/releases.json")
        for value in _values(path)
        if value.get("image") != path.parent.name
    }


def newest_first(path: Path, gpu: bool | None = None) -> Iterator[ReleaseRecord]:
    """Yield the records in the reverse of `by_release`; validate each only when it is reached.

    `gpu` selects the records for GPUs or for CPUs; validation is slow, so the others are skipped before it.
    """
    values = _values(path)
    for index in reversed(_release_order([_release_state(value) for value in values])):
        if gpu is None or values[index].get("gpu") is not (not gpu):
            yield _entry(path, index, values[index]).record


def by_release(records: Sequence[ReleaseRecord]) -> tuple[ReleaseRecord, ...]:
    """Return records in the order in which their digests became the latest release of their repository.

    So the last record of a registry is its current release. Releasing a digest again does not make it newer,
    but a roll-back to it does, in its repository only. A copy has the place of its original. Days and times
    of roll-backs order the records of several machines, whose lines a merge puts in any order. Records of
    older versions have no time, so those of one day have the order of their lines.
    """
    return tuple(records[index] for index in _release_order([_state_of(record) for record in records]))


def current_release(
    records: Sequence[ReleaseRecord], is_meant: Callable[[ReleaseRecord], bool]
) -> ReleaseRecord | None:
    """Return the current release of an image in the registry whose records `is_meant` selects."""
    ordered = reversed(by_release(records))
    return next((record for record in ordered if record.is_released and is_meant(record)), None)


def withdrawn(records: Sequence[ReleaseRecord]) -> frozenset[tuple[str, str]]:
    """Return place and digest of the releases that a roll-back replaced with an older one."""
    states = [_state_of(record) for record in records]
    return _withdrawn(states, _first_places(states))


def current_time() -> str:
    """Return the time of a record that is published now, in UTC."""
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


def clock_warning(record: ReleaseRecord) -> str:
    """Return a warning about a record that is dated in the future; otherwise an empty text."""
    if record.date <= f"{datetime.now(UTC):%Y-%m-%d}":
        return ""
    return (
        f"warning: {record.image}: the release {record.tags[0]} is dated {record.date}, in the future; "
        "check the clocks of this machine and of the one that released it"
    )


@dataclass(frozen=True, slots=True)
class _ReleaseState:
    """Facts of a record that determine its place."""

    place: str
    repository: str
    digest: str
    date: str
    """Day and time."""
    rollback: ReleasedRollback | None
    is_released: bool


_Place = tuple[str, int, int]
"""A day, an index, and the number of the roll-back at this index."""


def _release_order(states: Sequence[_ReleaseState]) -> list[int]:
    """Sort the indices of records by the place at which each digest became the latest of its repository."""
    first, latest, newest = _first_places(states), dict[str, _Place](), dict[str, _Place]()
    places: dict[tuple[str, str, str], _Place] = {}
    for number, (digest, rollback, indices) in enumerate(_rollbacks(states), 1):
        before = states[indices[0]].date, indices[0], 0
        for state in (states[index] for index in indices):
            # A release that is dated in the future can be rolled back, too
            replaced = first.get(rollback.replaced, before)
            last = max(latest.get(state.place, before), replaced, before)
            latest[state.place] = place = *last[:2], number
            newest[state.place] = max(newest.get(state.place, replaced), replaced)
            places[state.place, state.repository, digest] = place
    rolled_back = _withdrawn(states, first)

    def key(index: int) -> tuple[_Place, _Place, int]:
        state = states[index]
        released = first.get(state.digest, (state.date, index, 0))
        place = places.get((state.place, state.repository, state.digest), released)
        # A copy has the day of its original, which may be before a roll-back in its registry
        is_newer = state.is_released and released > newest.get(state.place, released)
        if is_newer and (state.place, state.digest) not in rolled_back:
            place = max(place, latest[state.place])
        return place, released, index

    return sorted(range(len(states)), key=key)


def _first_places(states: Sequence[_ReleaseState]) -> dict[str, _Place]:
    """Return where each digest was first released, in any registry."""
    places: dict[str, _Place] = {}
    for index, state in enumerate(states):
        if state.is_released and not state.rollback:
            place = state.date, index, 0
            places[state.digest] = min(place, places.get(state.digest, place))
    return places


def _rollbacks(states: Sequence[_ReleaseState]) -> list[tuple[str, ReleasedRollback, list[int]]]:
    """Return the roll-backs by time, with the indices of their records."""
    indices: dict[tuple[str, ReleasedRollback], list[int]] = {}
    for index, state in enumerate(states):
        if state.is_released and state.rollback:
            # Its records in several registries, and those with further facts, are one roll-back
            indices.setdefault((state.digest, state.rollback), []).append(index)
    in_order = sorted(indices.items(), key=lambda item: (item[0][1].time, item[1][0]))
    return [(digest, rollback, places) for (digest, rollback), places in in_order]


def _withdrawn(states: Sequence[_ReleaseState], first: Mapping[str, _Place]) -> frozenset[tuple[str, str]]:
    replaced: set[tuple[str, str]] = set()
    for digest, rollback, indices in _rollbacks(states):
        for where in {states[index].place for index in indices}:
            if first.get(digest, _START) < first.get(rollback.replaced, _START):
                replaced.add((where, rollback.replaced))
            replaced.discard((where, digest))
    return frozenset(replaced)


_START: _Place = "", 0, 0


def _place(registry: str, repository: str) -> str:
    return f"{registry}/{repository.rpartition('/')[0]}"


def _state_of(record: ReleaseRecord) -> _ReleaseState:
    return _ReleaseState(
        record.place,
        record.repository,
        record.digest,
        f"{record.date} {record.time}",
        record.rollback,
        is_released=record.is_released,
    )


def _release_state(value: Mapping[str, Any]) -> _ReleaseState:
    """Return the facts of an unvalidated record."""
    rollback = value.get("rollback")
    return _ReleaseState(
        _place(str(value.get("registry")), str(value.get("repository"))),
        str(value.get("repository")),
        str(value.get("digest")),
        f"{value.get('date')} {value.get('time', '')}",
        ReleasedRollback(str(rollback.get("time")), str(rollback.get("replaced")))
        if isinstance(rollback, dict)
        else None,
        is_released=value.get("tested") is True and value.get("candidate") is not True,
    )


@dataclass(frozen=True, slots=True)
class _LedgerDocument:
    """A ledger file with unvalidated records."""

    format: int
    releases: list[dict[str, Any] | None]


def _values(path: Path) -> list[dict[str, Any]]:
    """Return the unvalidated records of a ledger file."""
    text = ""
    try:
        text = read_text(path)
        document = parse_large_json(text)
        ledger = decode(document, _LedgerDocument)
    except FileNotFoundError:
        return []
    except json.JSONDecodeError as error:
        if conflict := _CONFLICT.search(text):
            raise _conflicted(path, text, conflict.start()) from error
        raise _damaged(path, f"it is not JSON: {error.msg}", error.lineno, error.colno) from error
    except (OSError, UnicodeDecodeError) as error:
        raise _damaged(path, "it cannot be read") from error
    except ValueError as error:
        raise _damaged(path, str(error)) from error
    if ledger.format < 1:
        raise _damaged(path, f"it has the unknown format {ledger.format}")
    if ledger.format not in _READ_FORMATS:
        raise RecipeError(
            f"the ledger of releases has format {ledger.format}; this Bakehouse reads format {_FORMAT}",
            Location(path, 1, 1),
            hint="update Bakehouse; nothing was written to the ledger",
        )
    if unknown := sorted(document.keys() - {"format", "releases"}):
        raise _damaged(path, f"unknown field `{unknown[0]}`")
    return [value for value in ledger.releases if value is not None]


def _conflicted(path: Path, text: str, start: int) -> RecipeError:
    has_lines = '"releases": [\n' in text and not text.startswith("{\n")
    if has_lines:
        hint = "keep the lines of both sides: remove only the lines that begin with `<<<<<<<`, `|||||||`, "
        hint += "`=======` and `>>>>>>>`"
    else:
        hint = f"run `git checkout --ours -- {path}`, then push the images of the other branch again"
    line = text.count("\n", 0, start) + 1
    return RecipeError("the ledger of releases has a merge conflict", Location(path, line, 1), hint=hint)


def _damaged(path: Path, reason: str, line: int = 1, column: int = 1) -> RecipeError:
    message = f"the ledger of releases is damaged: {reason}"
    hint = f"restore it with `git checkout -- {path}`; nothing was written to it"
    return RecipeError(message, Location(path, line, column), hint=hint)


def _entry(path: Path, index: int, value: Mapping[str, Any]) -> LedgerEntry:
    try:
        return LedgerEntry.parse(value, f"releases[{index}]")
    except ValueError as error:
        raise _damaged(path, str(error)) from error


def _require(is_valid: bool, otherwise: str) -> None:
    if not is_valid:
        raise ValueError(otherwise)
