"""Release records, and the ledger file that holds those of an image: `images/<image>/releases.json`.

Records are only added, never changed. Looking up an image URI imports this module, so it imports little.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bakehouse.errors import Location, RecipeError
from bakehouse.util.files import write_whole
from bakehouse.util.json_reader import parse_json
from bakehouse.util.oci import PLATFORM, region_of

_FORMAT = 1
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class ReleasedComponent:
    """Component of a release."""

    component: str
    version: str
    variant: str


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
    """Summary of a scan result that a key signed."""

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
    """Day of publication in UTC."""
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
    provides: tuple[ReleasedName, ...] = ()
    gpu_architecture: str = ""
    """GPU architectures that its components support, as in `>=7.5,<10`; empty if unknown."""
    neuron_architecture: str = ""
    """NeuronCore versions that it supports, as in `>=2,<5`; empty if it uses no Neuron devices."""
    platform: str = PLATFORM
    config: str = ""
    """Digest of its configuration, by which an engine without a containerd store knows it."""
    revision: str = ""
    """Commit that it was published from; empty if there is none."""
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
    """The newest signed scan of each key, as it was signed or promoted."""

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
    def is_released(self) -> bool:
        """Return whether a look-up may return it."""
        return self.tested and not self.candidate

    @property
    def region(self) -> str:
        """Return the AWS region of its image URI; empty outside Amazon ECR."""
        names = (region.region for region in self.regions if region.image_uri == self.image_uri)
        return next(names, region_of(self.registry))


def append(path: Path, new: ReleaseRecord, locks: Path) -> tuple[ReleaseRecord, ...]:
    """Add a record to the ledger at `path`, safe against concurrent writers; return all records.

    Facts that become known later, such as another tag of a digest, are a record of their own.
    """
    # Looking up an image URI does not need it.
    from bakehouse.util.file_lock import exclusive

    with exclusive(locks / f"releases-{new.image}.lock"):
        records = load(path)
        extended = with_record(records, new)
        if extended != records:
            write_whole(path, text_of(extended))
        return extended


def with_record(records: tuple[ReleaseRecord, ...], new: ReleaseRecord) -> tuple[ReleaseRecord, ...]:
    """Return the records with `new`, unless an existing one differs only in its date and commit."""
    same = (replace(old, date=new.date, revision=new.revision) for old in records if old.digest == new.digest)
    return records if any(old == new for old in same) else (*records, new)


def text_of(records: Sequence[ReleaseRecord]) -> str:
    """Return the ledger as it is committed."""
    document = {"format": _FORMAT, "releases": [asdict(record) for record in records]}
    return json.dumps(document, indent=2, sort_keys=True) + "\n"


def load(path: Path) -> tuple[ReleaseRecord, ...]:
    """Return the records of a ledger, oldest first; none if the file does not exist."""
    entries = _entries(path)
    return tuple(_record(path, entry) for entry in entries)


def newest_first(path: Path, gpu: bool | None = None) -> Iterator[ReleaseRecord]:
    """Yield the records in the reverse of `by_release`; validate each only when it is reached.

    `gpu` selects the records for GPUs or for CPUs; validation is slow, so the others are skipped before it.
    """
    entries = _entries(path)
    if not all(isinstance(entry, dict) for entry in entries):
        load(path)
    for index in reversed(_release_order([_release_state(entry) for entry in entries])):
        if gpu is None or entries[index].get("gpu") is not (not gpu):
            yield _record(path, entries[index])


def by_release(records: Sequence[ReleaseRecord]) -> tuple[ReleaseRecord, ...]:
    """Return records in the order of their digests' first releases.

    Releasing a digest again does not make it newer.
    """
    order = _release_order([(record.digest, record.is_released) for record in records])
    return tuple(records[index] for index in order)


def _release_order(states: Sequence[tuple[object, bool]]) -> list[int]:
    """Sort the indices of (digest, is released) by the first release of each digest."""
    first: dict[object, int] = {}
    for index, (digest, is_released) in enumerate(states):
        if is_released:
            first.setdefault(digest, index)
    return sorted(range(len(states)), key=lambda index: (first.get(states[index][0], index), index))


def _release_state(entry: Mapping[str, Any]) -> tuple[object, bool]:
    """Digest of an unvalidated record, and whether it is released."""
    return str(entry.get("digest")), entry.get("tested") is True and entry.get("candidate") is not True


def _entries(path: Path) -> list[Any]:
    """Unvalidated records of a ledger file."""
    try:
        document = parse_json(path.read_text(encoding="utf-8"))
        _require_fields(document, {"format", "releases"}, "the ledger")
        _require(document["format"] == _FORMAT, f"its format is not {_FORMAT}")
        return _list(document["releases"], "`releases`")
    except FileNotFoundError:
        return []
    except json.JSONDecodeError as error:
        raise _damaged(path, f"it is not JSON: {error.msg}", error.lineno, error.colno) from error
    except (OSError, UnicodeDecodeError) as error:
        raise _damaged(path, "it cannot be read") from error
    except ValueError as error:
        raise _damaged(path, str(error)) from error
    except InvalidRecordError as error:
        raise _damaged(path, str(error)) from error


class InvalidRecordError(Exception):
    """Invalid content of a ledger."""


def _damaged(path: Path, reason: str, line: int = 1, column: int = 1) -> RecipeError:
    message = f"the ledger of releases is damaged: {reason}"
    hint = f"restore it with `git checkout -- {path}`; nothing was written to it"
    return RecipeError(message, Location(path, line, column), hint=hint)


def _record(path: Path, entry: Any) -> ReleaseRecord:
    try:
        return record_in(entry)
    except InvalidRecordError as error:
        raise _damaged(path, str(error)) from error


def record_in(entry: Any) -> ReleaseRecord:
    """Return the record in a JSON object of a ledger; raise InvalidRecordError."""
    fields = ReleaseRecord.__dataclass_fields__
    # Ledgers of older versions lack the fields that have a default.
    optional = frozenset(name for name, field in fields.items() if field.default is not MISSING)
    _require_fields(entry, set(fields), "a release", optional)
    values = {
        name: _value(entry[name], field.type, f"`{name}`") for name, field in fields.items() if name in entry
    }
    record = ReleaseRecord(**values)
    _require(_DIGEST.fullmatch(record.digest) is not None, f"`{record.digest}` is not a digest")
    image_uri = f"{record.registry}/{record.repository}@{record.digest}"
    mismatch = f"`{record.image_uri}` does not match its registry, repository and digest"
    _require(record.image_uri == image_uri, mismatch)
    for region in record.regions:
        _require(region.image_uri.endswith(f"@{record.digest}"), f"`{region.image_uri}` has another digest")
    return record


def _value(value: Any, kind: Any, name: str) -> Any:
    if kind in (str, bool, int):
        _require(type(value) is kind, f"{name} has to be of type {kind.__name__}")
        return value
    items = _list(value, name)
    [item_kind, _] = kind.__args__
    if item_kind is str:
        return tuple(_value(item, str, f"every entry of {name}") for item in items)
    return tuple(_member(item, item_kind, name) for item in items)


def _member(item: Any, kind: Any, name: str) -> Any:
    fields = kind.__dataclass_fields__
    # Fast path: most of a ledger is valid members.
    if (
        type(item) is dict
        and item.keys() == fields.keys()
        and all(type(value) is fields[key].type for key, value in item.items())
    ):
        return kind(**item)
    _require_fields(item, set(fields), f"an entry of {name}")
    return kind(**{key: _value(item[key], field.type, f"`{key}` in {name}") for key, field in fields.items()})


def _list(value: Any, name: str) -> list[Any]:
    _require(isinstance(value, list), f"{name} has to be a list")
    return list(value)


def _require_fields(
    entry: Any, names: set[str], subject: str, optional: frozenset[str] = frozenset()
) -> None:
    _require(isinstance(entry, Mapping), f"{subject} has to be an object")
    missing = names - optional - set(entry)
    _require(not missing, f"{subject} lacks {_quoted(missing)}")
    _require(set(entry) <= names, f"{subject} has an unknown {_quoted(set(entry) - names)}")


def _quoted(names: set[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def _require(is_valid: bool, otherwise: str) -> None:
    if not is_valid:
        raise InvalidRecordError(otherwise)
