"""Progress of an image to its release, as far as it is recorded. An unrecorded fact is never a success."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain

from bakehouse.builder.verify import Outcome
from bakehouse.evidence.image_state import ImageState, Level
from bakehouse.ledger.releases import ReleaseRecord
from bakehouse.plan.model import Image

_BUNDLE = "application/vnd.dev.sigstore.bundle"
"""Start of the media types of signatures."""


class Mark(StrEnum):
    """Kind of a state, which the page shows as a symbol next to the text."""

    DONE = "done"
    PARTLY = "partly"
    WRONG = "wrong"
    """Something is to be done, although nothing failed."""
    FAILED = "failed"
    UNKNOWN = "unknown"
    NOT_APPLICABLE = "none"


@dataclass(frozen=True, slots=True)
class CellState:
    """State of an image in one column of the grid."""

    mark: Mark
    text: str
    note: str = ""
    """Sentences for the view of the image."""


def not_recorded(note: str = "") -> CellState:
    return CellState(Mark.UNKNOWN, "not recorded", note)


def needs_attention(state: CellState) -> bool:
    return state.mark in (Mark.FAILED, Mark.WRONG)


def run_state(image: Image, state: ImageState, rendered_key: object) -> CellState:
    """Return the state of the layers of an image; `rendered_key` is the key of its committed files."""
    note = "A step gave different layers." if state.differ else ""
    if state.level is Level.BUILT:
        mark = Mark.WRONG if state.differ else Mark.DONE
        return CellState(mark, state.text, f"All layers were made from the real files. {note}".rstrip())
    if state.level is Level.REHEARSED:
        stubs = f" Stubs: {', '.join(state.stubs)}." if state.stubs else ""
        return CellState(Mark.PARTLY, state.text, f"All build steps ran.{stubs} {note}".rstrip())
    if rendered_key == image.recipe_key:
        return CellState(Mark.PARTLY, state.text, note)
    if rendered_key:
        return CellState(Mark.WRONG, "rendered, stale", f"Run `bake render {image.name}`.")
    return not_recorded(note)


def checks_state(outcomes: Sequence[str]) -> CellState:
    """Return the result of some checks."""
    failed, passed = outcomes.count(Outcome.FAILED), outcomes.count(Outcome.PASSED)
    skipped = len(outcomes) - failed - passed
    if failed:
        return CellState(Mark.FAILED, f"{failed} of {len(outcomes)} failed")
    if not passed:
        return CellState(Mark.UNKNOWN, "not tested") if skipped else not_recorded()
    if skipped:
        return CellState(Mark.PARTLY, f"{passed} passed, {skipped} not tested")
    return CellState(Mark.DONE, f"{passed} passed")


def signature_state(records: Iterable[ReleaseRecord]) -> CellState:
    """Return whether a signature is recorded. It is not verified here."""
    artifacts = chain.from_iterable(record.artifacts for record in records)
    if any(artifact.media_type.startswith(_BUNDLE) for artifact in artifacts):
        return CellState(Mark.DONE, "recorded", "A signature is attached. This page does not verify it.")
    return not_recorded()


def release_kind(record: ReleaseRecord) -> str:
    """Return the kind of a record, and whether it is of a GPU image that no check tested on GPUs."""
    kind = "candidate" if record.candidate else "release" if record.tested else "not tested"
    is_unknown = record.tested and record.tested_on_gpus is False
    return f"{kind}, not tested on GPUs" if is_unknown else kind


def release_state(
    current: Sequence[ReleaseRecord], others: Sequence[ReleaseRecord], latest: ReleaseRecord | None
) -> CellState:
    """Return whether an image was released, by the records of its build key and of other keys.

    Both start with the newest. `latest` is the release that look-ups return.
    """
    if release := next((record for record in current if record.is_released), None):
        if latest and latest.rollback and latest.key != release.key:
            day = latest.rollback.time.partition("T")[0]
            return CellState(Mark.WRONG, f"rolled back {day}", f"`{latest.digest[:19]}` is current.")
        note = " It was not tested on GPUs." if release.tested_on_gpus is False else ""
        return CellState(Mark.DONE, release.date, f"Tags: {', '.join(release.tags)}.{note}")
    earlier = next((record for record in others if record.is_released), None)
    note = f"An earlier version was released on {earlier.date}." if earlier else ""
    if current:
        return CellState(Mark.PARTLY, f"candidate {current[0].date}", note)
    if earlier:
        return CellState(Mark.PARTLY, f"earlier version, {earlier.date}", note)
    return not_recorded()


def scan_state(records: Iterable[ReleaseRecord]) -> CellState:
    """Return the state by the last scan of Amazon ECR in the records, which start with the newest."""
    for record in records:
        if record.scanned:
            counts = ", ".join(f"{each.count} {each.severity}" for each in record.findings if each.count)
            mark = Mark.WRONG if counts else Mark.DONE
            text = f"{counts or 'no findings'}, {record.scanned[:10]}"
            return CellState(mark, text, f"Amazon ECR scanned {record.scanned}.")
        if record.not_scanned:
            return CellState(Mark.UNKNOWN, "not scanned", f"Amazon ECR: {record.not_scanned}.")
    return not_recorded()
