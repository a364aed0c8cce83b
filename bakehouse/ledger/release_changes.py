"""Differences between releases of an image, as far as the ledger records them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from bakehouse.ledger.releases import ReleaseRecord, by_release
from bakehouse.util.format import format_bytes
from bakehouse.util.value_change import ValueChange, value_changes

_SETTINGS = {
    "media_type": "manifest format",
    "gpu_architecture": "GPU architectures",
    "training_module": "training module",
    "entry_point": "entry point",
}
_SHORT_KEY = 8


@dataclass(frozen=True, slots=True)
class Change(ValueChange):
    """One value that differs between two releases; the first lacks a value that is None before."""

    kind: str
    """Such as `component` or `build key`."""


def timeline(records: Sequence[ReleaseRecord]) -> tuple[ReleaseRecord, ...]:
    """Return one record of each digest in the order of first releases, a release rather than a candidate."""
    first: dict[str, ReleaseRecord] = {}
    for record in by_release([record for record in records if not record.rollback]):
        known = first.setdefault(record.digest, record)
        if record.is_released and not known.is_released:
            first[record.digest] = record
    return tuple(first.values())


def neighbours(line: Sequence[ReleaseRecord]) -> dict[str, tuple[Change, ...]]:
    """Return the changes of each digest of a timeline against the one before it; the first has none."""
    return {after.digest: changes(before, after) for before, after in pairwise(line)}


def changes(before: ReleaseRecord, after: ReleaseRecord) -> tuple[Change, ...]:
    """Return the differences of two releases of one image."""
    differences = (*component_changes(before, after), *_provided(before, after), *_settings(before, after))
    if before.key != after.key and not differences:
        # The ledger does not record packages, files and build steps
        differences = (Change("", before.key[:_SHORT_KEY], after.key[:_SHORT_KEY], "build key"),)
    if before.bytes != after.bytes:
        differences += (Change("", format_bytes(before.bytes), format_bytes(after.bytes), "size"),)
    return differences


def component_changes(before: ReleaseRecord, after: ReleaseRecord) -> tuple[Change, ...]:
    """Return the components that differ, those of the first release first."""
    first, second = (
        {part.component: part.version_text for part in record.parts} for record in (before, after)
    )
    return tuple(_of_kind("component", value_changes(first, second)))


def _provided(before: ReleaseRecord, after: ReleaseRecord) -> Iterator[Change]:
    first, second = (
        {provided.name: provided.version for provided in sorted(record.provides, key=lambda it: it.name)}
        for record in (before, after)
    )
    return _of_kind("provided version", value_changes(first, second))


def _of_kind(kind: str, differences: Iterable[ValueChange]) -> Iterator[Change]:
    return (Change(item.name, item.before, item.after, kind) for item in differences)


def _settings(before: ReleaseRecord, after: ReleaseRecord) -> Iterator[Change]:
    for field, kind in _SETTINGS.items():
        values = getattr(before, field), getattr(after, field)
        if values[0] != values[1]:
            yield Change("", *values, kind)
    if before.launchers != after.launchers:
        yield Change("", ", ".join(before.launchers), ", ".join(after.launchers), "launchers")
