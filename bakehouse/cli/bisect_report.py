"""Output of `bisect`: the differences, the release to try next, and the commands that continue the search."""

from collections.abc import Sequence
from typing import Any

from bakehouse.ledger.bisect import Bisection
from bakehouse.ledger.release_changes import Change, neighbours
from bakehouse.ledger.releases import ReleaseRecord
from bakehouse.util.format import format_count, format_table
from bakehouse.util.terminal import clip

_MOST_CHANGES = 40
_MOST_IN_LINE = 3
_MOST_CHARACTERS = 90
_SHORT = len("sha256:") + 12


def text(search: Bisection, changes: Sequence[Change], not_compared: str) -> str:
    """Format the state of a search; `not_compared` is the reason why only the ledger was compared."""
    good, bad, image = search.good, search.bad, search.good.image
    rows = [(change.kind, clip(change.text, _MOST_CHARACTERS)) for change in changes[:_MOST_CHANGES]]
    if more := len(changes) - len(rows):
        rows.append(("", f"and {more} more"))
    differences = format_count(len(changes), "difference")
    head = f"{image}: {differences} between {_short(good)} (good) and {_short(bad)} (bad)\n"
    lines = [head, format_table(rows, indent="  ")]
    if not_compared:
        lines.append(f"  packages and recipes are not compared: {not_compared}\n")
    if search.next is None:
        lines.append(f"\nno release is between them: the job broke with {bad.image_uri}\n")
        return "".join(lines)
    releases = format_count(len(search.between), "release")
    tries = format_count(search.most_tries, "try", "tries")
    lines.append(f"\n{releases} between them, at most {tries}\n")
    lines.append(format_table(_releases(search), indent="  "))
    command = f"bake bisect {good.digest[:_SHORT]} {bad.digest[:_SHORT]} {image}"
    digest = search.next.digest[:_SHORT]
    lines.append(f"\ntry {search.next.image_uri}\n")
    lines.append(f"  if the job works, run `{command} --good {digest}`\n")
    lines.append(f"  if it fails, run `{command} --bad {digest}`\n")
    return "".join(lines)


def _releases(search: Bisection) -> list[tuple[str, ...]]:
    """Return the releases from the good one to the bad one, each with its changes against the one before."""
    line = (search.good, *search.between, search.bad)
    changes = neighbours(line)
    notes = {search.good.digest: "good", search.bad.digest: "bad"}
    if search.next:
        notes[search.next.digest] = "try next"
    return [
        (
            record.date,
            record.digest[:_SHORT],
            notes.get(record.digest, ""),
            _in_line(changes.get(record.digest, ())),
        )
        for record in line
    ]


def _in_line(changes: Sequence[Change]) -> str:
    shown = [
        change.text if change.name else f"{change.kind} {change.text}" for change in changes[:_MOST_IN_LINE]
    ]
    more = [f"and {len(changes) - len(shown)} more"] if len(changes) > len(shown) else []
    return "; ".join([*shown, *more])


def _short(record: ReleaseRecord) -> str:
    return f"{record.date} {record.digest[:_SHORT]}"


def as_json(search: Bisection, changes: Sequence[Change], not_compared: str) -> dict[str, Any]:
    """Return the state of a search."""
    return {
        "image": search.good.image,
        "good": search.good.image_uri,
        "bad": search.bad.image_uri,
        "differences": [
            {"kind": change.kind, "name": change.name, "before": change.before, "after": change.after}
            for change in changes
        ],
        "not_compared": not_compared or None,
        "between": [record.image_uri for record in search.between],
        "next": search.next and search.next.image_uri,
        "most_tries": search.most_tries,
    }
