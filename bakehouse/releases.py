"""The ledger of what was published: `images/<image>/releases.json`, committed, written whole or not."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from bakehouse.build import BuiltImage
from bakehouse.errors import Diagnostic, Location, RecipeError
from bakehouse.files import write_whole
from bakehouse.locks import exclusive
from bakehouse.push import PublishedImage, is_tested
from bakehouse.smoke_report import SmokeReport

_FORMAT = 1
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class ReleasedPart:
    """One component as it is in a release."""

    component: str
    version: str
    variant: str


@dataclass(frozen=True, slots=True)
class ReleasedCheck:
    """How one smoke check of a release ended."""

    name: str
    outcome: str


@dataclass(frozen=True, slots=True)
class ReleaseRecord:
    """One publication of an image, with what an estimator has to know about it."""

    image: str
    key: str
    digest: str
    registry: str
    repository: str
    tags: tuple[str, ...]
    image_uri: str
    date: str
    """The first day it was published, in UTC."""
    tested: bool
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

    def version_of(self, component: str) -> str:
        """The version of a component in it; empty where it has none."""
        return next((part.version for part in self.parts if part.component == component), "")


def record_of(
    published: PublishedImage, built: BuiltImage, report: SmokeReport | None, day: date
) -> ReleaseRecord:
    """What the ledger keeps of a publication; a report of another digest counts as none."""
    if report and report.digest != built.digest:
        report = None
    image = built.image
    return ReleaseRecord(
        image=image.name,
        key=image.key,
        digest=published.digest,
        registry=published.registry,
        repository=published.repository,
        tags=published.tags,
        image_uri=published.image_uri,
        date=day.isoformat(),
        tested=is_tested(built, report),
        transport=report.transport if report else "",
        checks=tuple(ReleasedCheck(check.name, check.outcome) for check in report.checks) if report else (),
        parts=tuple(ReleasedPart(part.component, part.version, part.variant) for part in image.parts),
        gpu=image.gpu,
        launchers=image.launchers,
        training_module=image.training_module or "",
        entry_point=image.entry_point or "",
        media_type=published.media_type,
        bytes=published.bytes,
    )


def with_record(records: Sequence[ReleaseRecord], new: ReleaseRecord) -> tuple[ReleaseRecord, ...]:
    """The ledger after a publication: what is there already keeps its place and its first day.

    It gains tags, and the checks of a smoke test that it lacked when it was first published.
    """
    for position, old in enumerate(records):
        if old.image_uri == new.image_uri:
            seen = new if new.tested and not old.tested else old
            merged = replace(
                old,
                tags=tuple(dict.fromkeys((*old.tags, *new.tags))),
                tested=seen.tested,
                transport=seen.transport,
                checks=seen.checks,
            )
            return (*records[:position], merged, *records[position + 1 :])
    return (*records, new)


def append(path: Path, new: ReleaseRecord, locks: Path) -> tuple[ReleaseRecord, ...]:
    """Put a record into the ledger at `path`, also while others do."""
    with exclusive(locks / f"releases-{new.image}.lock"):
        records = load(path)
        merged = with_record(records, new)
        if merged != records:
            write_whole(path, text_of(merged))
        return merged


def text_of(records: Sequence[ReleaseRecord]) -> str:
    """The ledger as it is committed."""
    document = {"format": _FORMAT, "releases": [asdict(record) for record in records]}
    return json.dumps(document, indent=2, sort_keys=True) + "\n"


def load(path: Path) -> tuple[ReleaseRecord, ...]:
    """The releases in a ledger, oldest first; none where there is no ledger yet."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        return ()
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, "it can't be read", 1, 1) from error
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise _unreadable(path, f"it is not JSON: {error.msg}", error.lineno, error.colno) from error
    except RecursionError as error:
        raise _unreadable(path, "it is nested too deeply", 1, 1) from error
    try:
        _exactly(document, {"format", "releases"}, "the ledger")
        _require(document["format"] == _FORMAT, f"it is not of format {_FORMAT}")
        return tuple(_record(entry) for entry in _list(document["releases"], "`releases`"))
    except _WrongError as error:
        raise _unreadable(path, str(error), 1, 1) from error


class _WrongError(Exception):
    """Something in a ledger is not as it was written."""


def _unreadable(path: Path, why: str, line: int, column: int) -> RecipeError:
    message = f"the ledger of releases is damaged: {why}"
    hint = f"restore it with `git checkout -- {path}`; nothing was written to it"
    return RecipeError(Diagnostic(message, Location(path, line, column), hint=hint))


def _record(entry: Any) -> ReleaseRecord:
    fields = ReleaseRecord.__dataclass_fields__
    _exactly(entry, set(fields), "a release")
    values = {name: _value(entry[name], field.type, f"`{name}`") for name, field in fields.items()}
    record = ReleaseRecord(**values)
    _require(_DIGEST.fullmatch(record.digest) is not None, f"`{record.digest}` is no digest")
    address = f"{record.registry}/{record.repository}@{record.digest}"
    _require(record.image_uri == address, f"`{record.image_uri}` is not where its release says it is")
    return record


def _value(value: Any, kind: Any, what: str) -> Any:
    if kind in (str, bool, int):
        _require(type(value) is kind, f"{what} has to be of type {kind.__name__}")
        return value
    items = _list(value, what)
    if kind == tuple[str, ...]:
        return tuple(_value(item, str, f"every entry of {what}") for item in items)
    member = ReleasedPart if kind == tuple[ReleasedPart, ...] else ReleasedCheck
    return tuple(_member(item, member, what) for item in items)


def _member(item: Any, kind: type[ReleasedPart] | type[ReleasedCheck], what: str) -> Any:
    names = kind.__dataclass_fields__
    _exactly(item, set(names), f"an entry of {what}")
    return kind(**{name: _value(item[name], str, f"`{name}` in {what}") for name in names})


def _list(value: Any, what: str) -> list[Any]:
    _require(isinstance(value, list), f"{what} has to be a list")
    return list(value)


def _exactly(entry: Any, names: set[str], what: str) -> None:
    _require(isinstance(entry, Mapping), f"{what} has to be an object")
    _require(names <= set(entry), f"{what} lacks {_named(names - set(entry))}")
    _require(set(entry) <= names, f"{what} has an unknown {_named(set(entry) - names)}")


def _named(names: set[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def _require(fits: bool, otherwise: str) -> None:
    if not fits:
        raise _WrongError(otherwise)
