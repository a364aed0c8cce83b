"""Differences between releases of an image, as far as the ledger records them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from bakehouse.ledger.releases import ReleasedComponent, ReleaseRecord, by_release
from bakehouse.util.format import format_bytes

_SETTINGS = {
    "media_type": "manifest format",
    "gpu_architecture": "GPU architectures",
    "training_module": "training module",
    "entry_point": "entry point",
}
_SHORT_KEY = 8


@dataclass(frozen=True, slots=True)
class Change:
    """One value that differs between two releases."""

    kind: str
    """Such as `component` or `Python package`."""
    name: str
    """Empty if an image has only one value of the kind."""
    before: str | None
    """None if the first release lacks it."""
    after: str | None

    @property
    def text(self) -> str:
        """The change without its kind."""
        if self.before is None or self.after is None:
            sign, value = ("+", self.after) if self.before is None else ("-", self.before)
            return " ".join(filter(None, (sign, self.name, value)))
        return f"{self.name} {self.before or 'none'} → {self.after or 'none'}".lstrip()


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
        keys = (key[:_SHORT_KEY] for key in (before.key, after.key))
        differences = (Change("build key", "", *keys),)
    if before.bytes != after.bytes:
        differences += (Change("size", "", format_bytes(before.bytes), format_bytes(after.bytes)),)
    return differences


def component_changes(before: ReleaseRecord, after: ReleaseRecord) -> tuple[Change, ...]:
    """Return the components that differ, those of the first release first."""
    first, second = ({part.component: part for part in record.parts} for record in (before, after))
    return tuple(
        Change("component", name, *_versions(first.get(name), second.get(name)))
        for name in dict.fromkeys([*first, *second])
        if first.get(name) != second.get(name)
    )


def _versions(
    before: ReleasedComponent | None, after: ReleasedComponent | None
) -> tuple[str | None, str | None]:
    """Return both versions, with the variants if these differ."""
    if before and after and before.variant == after.variant:
        return before.version, after.version
    return _title(before), _title(after)


def _title(part: ReleasedComponent | None) -> str | None:
    return None if part is None else f"{part.version} ({part.variant})".removesuffix(" ()")


def _provided(before: ReleaseRecord, after: ReleaseRecord) -> Iterator[Change]:
    first, second = (
        {provided.name: provided.version for provided in record.provides} for record in (before, after)
    )
    for name in sorted({*first, *second}):
        if first.get(name) != second.get(name):
            yield Change("provided version", name, first.get(name), second.get(name))


def _settings(before: ReleaseRecord, after: ReleaseRecord) -> Iterator[Change]:
    for field, kind in _SETTINGS.items():
        values = getattr(before, field), getattr(after, field)
        if values[0] != values[1]:
            yield Change(kind, "", *values)
    if before.launchers != after.launchers:
        yield Change("launchers", "", ", ".join(before.launchers), ", ".join(after.launchers))
