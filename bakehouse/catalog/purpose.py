"""Purposes of recommended images, and written exceptions from what such an image must be."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from bakehouse.util.yaml_fields import Fields

PURPOSES = {
    "cpu": "Try a job on CPU instances",
    "gpu": "One GPU host",
    "several-hosts": "Several GPU hosts over EFA",
    "fine-tuning": "Fine-tuning",
    "extend": "AWS's image and your code",
    "heterogeneous": "Heterogeneous clusters",
    "arm64": "arm64",
    "hyperpod": "HyperPod",
    "neuron": "Trainium",
}
"""Titles by purpose, in the order of the tables."""
ARCHIVE = "archive"
"""Images that are kept resolvable and buildable, without claims."""
PROBLEM, NOT_PINNED, SUPPORT = "known problem", "not pinned", "support"
_DATE = re.compile(r"20\d\d-\d\d-\d\d")


@dataclass(frozen=True, slots=True)
class Concession:
    """Something that a recommended image may have until a date."""

    kind: str
    reason: str
    until: str

    @property
    def text(self) -> str:
        return f"{self.kind}, accepted until {self.until}: {self.reason}"


def read_purpose(fields: Fields) -> str:
    """Return the purpose; empty for the archive."""
    fields.text("status")  # of earlier versions, without effect
    return fields.choice("purpose", (*PURPOSES, ARCHIVE), ARCHIVE).replace(ARCHIVE, "")


def read_concessions(fields: Fields) -> Iterator[Concession]:
    for child in fields.children("accepted", "an item of `accepted`"):
        kind = child.choice("fact", (PROBLEM, NOT_PINNED, SUPPORT), SUPPORT)
        reason, until = child.text("reason", required=True), child.text("until", required=True)
        if until and not _DATE.fullmatch(until):
            child.report(f"`{until}` is not a date", child.place("until"), "use the form 2027-06-30")
        child.finish()
        yield Concession(kind, reason, until)
