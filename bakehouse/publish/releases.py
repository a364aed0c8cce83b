"""The ledger of what was published: `images/<image>/releases.json`, only ever added to, written whole or not.

Looking up an address reads it, so nothing here takes longer to import than Python's own library.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bakehouse.errors import Diagnostic, Location, RecipeError
from bakehouse.util.file_lock import exclusive
from bakehouse.util.files import write_whole
from bakehouse.util.oci import region_of

_FORMAT = 1
_HEAD, _START, _FOOT = f'{{\n  "format": {_FORMAT},\n  "releases": [', "\n    {\n", "\n  ]\n}\n"
"""How a ledger begins, each of its records, and its end."""
_FIELD = '\n      "'
"""How each field of a record begins, and nothing that lies deeper."""
_DIGEST_FIELD = re.compile(r'\n      "digest": "([^"]*)"')
_CANDIDATE, _TESTED = f'{_FIELD}candidate": true', f'{_FIELD}tested": true'
_OWN = re.compile(r'@sha256:[0-9a-f]{64}|"tag": "[^"]*"')
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class ReleasedPart:
    """One component as it is in a release."""

    component: str
    version: str
    variant: str


@dataclass(frozen=True, slots=True)
class ReleasedName:
    """What components bring under other names, such as `cuda`."""

    name: str
    version: str


@dataclass(frozen=True, slots=True)
class ReleasedCheck:
    """How one smoke check of a release ended."""

    name: str
    outcome: str


@dataclass(frozen=True, slots=True)
class ReleasedFindings:
    """How many findings of one severity a scan had."""

    severity: str
    count: int


@dataclass(frozen=True, slots=True)
class ReleasedRegion:
    """Where a release lies in one region of AWS."""

    region: str
    image_uri: str
    tag: str


@dataclass(frozen=True, slots=True)
class ReleasedArtifact:
    """A document that hangs on a release in its registry, such as its bill of materials."""

    media_type: str
    digest: str


@dataclass(frozen=True, slots=True)
class ReleaseRecord:
    """One publication of an image, with what an estimator has to know about it."""

    image: str
    """Its identifier."""
    key: str
    digest: str
    registry: str
    repository: str
    tags: tuple[str, ...]
    image_uri: str
    date: str
    """The day it was published, in UTC."""
    tested: bool
    """Whether no check failed and all that the recipe requires passed."""
    transport: str
    """What the ranks of the smoke test talked through; empty where there was none."""
    checks: tuple[ReleasedCheck, ...]
    parts: tuple[ReleasedPart, ...]
    gpu: bool
    launchers: tuple[str, ...]
    training_module: str
    """What SAGEMAKER_TRAINING_MODULE names; empty for the plain toolkit."""
    entry_point: str
    """Training code baked at /opt/ml/code; empty where an estimator brings it."""
    media_type: str
    bytes: int
    candidate: bool = False
    """Published to be tried, under no release tag."""
    provides: tuple[ReleasedName, ...] = ()
    gpu_architecture: str = ""
    """The GPUs its parts have code for, as in `>=7.5,<10`; empty where they don't say."""
    config: str = ""
    """The digest of its configuration: its name where an engine has no containerd store."""
    revision: str = ""
    """The commit that it was published from; empty where there is none."""
    regions: tuple[ReleasedRegion, ...] = ()
    """Every region of Amazon ECR that has it, the one of `image_uri` among them."""
    scanned: str = ""
    """When the registry's scan of it was complete, in UTC; empty where none was seen."""
    not_scanned: str = ""
    """Why there was none, where somebody asked for one."""
    findings: tuple[ReleasedFindings, ...] = ()
    artifacts: tuple[ReleasedArtifact, ...] = ()
    """What was attached to its digest."""

    def version_of(self, name: str) -> str:
        """The version of a component in it, or of what one brings; empty where it has none."""
        for part in self.parts:
            if part.component == name:
                return part.version
        return next((one.version for one in self.provides if one.name == name), "")

    @property
    def places(self) -> tuple["ReleaseRecord", ...]:
        """The release as each of its regions has it, the foremost first."""
        elsewhere = [one for one in self.regions if one.image_uri != self.image_uri]
        return (self, *(self._at(one) for one in elsewhere))

    def _at(self, place: ReleasedRegion) -> "ReleaseRecord":
        registry, _, rest = place.image_uri.partition("/")
        repository = rest.partition("@")[0]
        return replace(
            self, registry=registry, repository=repository, image_uri=place.image_uri, tags=(place.tag,)
        )

    @property
    def is_released(self) -> bool:
        """Whether look-ups may give it."""
        return self.tested and not self.candidate

    @property
    def region(self) -> str:
        """The region of its address; empty where that is no registry of AWS."""
        told = (one.region for one in self.regions if one.image_uri == self.image_uri)
        return next(told, region_of(self.registry))


_MEMBERS = {
    tuple[ReleasedPart, ...]: ReleasedPart,
    tuple[ReleasedName, ...]: ReleasedName,
    tuple[ReleasedCheck, ...]: ReleasedCheck,
    tuple[ReleasedRegion, ...]: ReleasedRegion,
    tuple[ReleasedFindings, ...]: ReleasedFindings,
    tuple[ReleasedArtifact, ...]: ReleasedArtifact,
}


def append(path: Path, new: ReleaseRecord, locks: Path) -> tuple[ReleaseRecord, ...]:
    """Put a record at the end of the ledger at `path`, also while others do; what is there already stays out.

    No record is ever changed: when more becomes known of a digest, such as its tag, it has another record.
    """
    with exclusive(locks / f"releases-{new.image}.lock"):
        records = load(path)
        longer = with_record(records, new)
        if longer != records:
            write_whole(path, text_of(longer))
        return longer


def with_record(records: tuple[ReleaseRecord, ...], new: ReleaseRecord) -> tuple[ReleaseRecord, ...]:
    """The ledger with a record, unless one there differs in nothing but its day and its commit."""
    same = (replace(old, date=new.date, revision=new.revision) for old in records if old.digest == new.digest)
    return records if any(old == new for old in same) else (*records, new)


def text_of(records: Sequence[ReleaseRecord]) -> str:
    """The ledger as it is committed."""
    document = {"format": _FORMAT, "releases": [asdict(record) for record in records]}
    return json.dumps(document, indent=2, sort_keys=True) + "\n"


def load(path: Path) -> tuple[ReleaseRecord, ...]:
    """The records in a ledger, oldest first; none where there is no ledger yet."""
    text = _text(path)
    if text is None:
        return ()
    try:
        document = json.loads(text)
        _exactly(document, {"format", "releases"}, "the ledger")
        _require(document["format"] == _FORMAT, f"it is not of format {_FORMAT}")
        return tuple(record_in(entry) for entry in _list(document["releases"], "`releases`"))
    except json.JSONDecodeError as error:
        raise _unreadable(path, f"it is not JSON: {error.msg}", error.lineno, error.colno) from error
    except RecursionError as error:
        raise _unreadable(path, "it is nested too deeply", 1, 1) from error
    except WrongRecordError as error:
        raise _unreadable(path, str(error), 1, 1) from error


def newest_first(path: Path, telling: Collection[str]) -> Iterator[ReleaseRecord]:
    """As `by_release`, backwards, and of records that tell the same in the fields named the newest alone.

    Each is read only when it is asked for: most never are.
    """
    text = _text(path)
    if text is None:
        return
    if not (text.startswith(_HEAD) and text.endswith(_FOOT)):
        # As no ledger of ours looks: it is read whole, or found to be damaged.
        yield from reversed(by_release(load(path)))
        return
    entries, seen = text[len(_HEAD) : -len(_FOOT)].split(_START)[1:], set()
    digests = _DIGEST_FIELD.findall(text)
    order: Sequence[int] = range(len(entries))
    if len(set(digests)) < len(digests):
        order = _order([_release_in(entry) for entry in entries])
    for number in reversed(order):
        entry = "{" + entries[number].removesuffix(",")
        told = tuple(_told(entry, telling))
        if told in seen:
            continue
        seen.add(told)
        try:
            record = record_in(json.loads(entry))
        except (ValueError, RecursionError, WrongRecordError):
            # It is damaged; this tells where.
            load(path)
            raise
        yield record


def by_release(records: Sequence[ReleaseRecord]) -> tuple[ReleaseRecord, ...]:
    """Records in the order in which their digests were first released: once more makes none of them newer."""
    order = _order([(one.digest, one.is_released) for one in records])
    return tuple(records[number] for number in order)


def _order(released: Sequence[tuple[str, bool]]) -> list[int]:
    """The places of records by those of their digests' first releases."""
    first: dict[str, int] = {}
    for number, (digest, is_released) in enumerate(released):
        if is_released:
            first.setdefault(digest, number)
    return sorted(range(len(released)), key=lambda number: (first.get(released[number][0], number), number))


def _release_in(entry: str) -> tuple[str, bool]:
    """A record's digest, and whether it tells of a release, without reading it."""
    found = _DIGEST_FIELD.search(entry)
    return found[1] if found else "", _TESTED in entry and _CANDIDATE not in entry


def _told(entry: str, telling: Collection[str]) -> Iterator[str]:
    """The fields of a record as they stand, without what of their regions is every release's own."""
    for field in entry.split(_FIELD):
        name = field.partition('"')[0]
        if name in telling:
            yield _OWN.sub("", field) if name == "regions" else field


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, "it can't be read", 1, 1) from error


class WrongRecordError(Exception):
    """Something in a ledger is not as it was written."""


def _unreadable(path: Path, why: str, line: int, column: int) -> RecipeError:
    message = f"the ledger of releases is damaged: {why}"
    hint = f"restore it with `git checkout -- {path}`; nothing was written to it"
    return RecipeError(Diagnostic(message, Location(path, line, column), hint=hint))


def record_in(entry: Any) -> ReleaseRecord:
    """The record that an object of a ledger is; raises WrongRecordError."""
    fields = ReleaseRecord.__dataclass_fields__
    # Older ledgers lack what newer ones add.
    later = frozenset(name for name, field in fields.items() if field.default is not MISSING)
    _exactly(entry, set(fields), "a release", later)
    values = {
        name: _value(entry[name], field.type, f"`{name}`") for name, field in fields.items() if name in entry
    }
    record = ReleaseRecord(**values)
    _require(_DIGEST.fullmatch(record.digest) is not None, f"`{record.digest}` is no digest")
    address = f"{record.registry}/{record.repository}@{record.digest}"
    _require(record.image_uri == address, f"`{record.image_uri}` is not where its release says it is")
    for one in record.regions:
        _require(one.image_uri.endswith(f"@{record.digest}"), f"`{one.image_uri}` is another image")
    return record


def _value(value: Any, kind: Any, what: str) -> Any:
    if kind in (str, bool, int):
        _require(type(value) is kind, f"{what} has to be of type {kind.__name__}")
        return value
    items = _list(value, what)
    if kind == tuple[str, ...]:
        return tuple(_value(item, str, f"every entry of {what}") for item in items)
    return tuple(_member(item, _MEMBERS[kind], what) for item in items)


def _member(item: Any, kind: Any, what: str) -> Any:
    names = kind.__dataclass_fields__
    # Most of a ledger is these, and all of them are right.
    if (
        type(item) is dict
        and item.keys() == names.keys()
        and all(type(value) is names[name].type for name, value in item.items())
    ):
        return kind(**item)
    _exactly(item, set(names), f"an entry of {what}")
    return kind(**{name: _value(item[name], one.type, f"`{name}` in {what}") for name, one in names.items()})


def _list(value: Any, what: str) -> list[Any]:
    _require(isinstance(value, list), f"{what} has to be a list")
    return list(value)


def _exactly(entry: Any, names: set[str], what: str, optional: frozenset[str] = frozenset()) -> None:
    _require(isinstance(entry, Mapping), f"{what} has to be an object")
    lacking = names - optional - set(entry)
    _require(not lacking, f"{what} lacks {_named(lacking)}")
    _require(set(entry) <= names, f"{what} has an unknown {_named(set(entry) - names)}")


def _named(names: set[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def _require(fits: bool, otherwise: str) -> None:
    if not fits:
        raise WrongRecordError(otherwise)
