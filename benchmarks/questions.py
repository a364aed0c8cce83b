"""P15: questions to the catalogue, such as `bake resolve --assume smp=1.7.0`, and their search steps.

.venv/bin/python benchmarks/questions.py

Asks for each release of the SageMaker distributed libraries, for the stacks of AWS's documents, and for
combinations that cannot fit, each in a process that has loaded the catalogue. A step is a candidate that the
resolver tries. Each round gives the same answers. The answers about 2,000 random catalogues are compared with
a search of every combination.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from unittest import mock

from bakehouse.catalog.catalog import Catalog
from bakehouse.errors import ConflictError, UndecidedError
from bakehouse.plan.workspace import open_workspace
from bakehouse.resolve import what_if
from bakehouse.resolve.resolver import SearchBudget
from benchmarks import harness
from benchmarks.harness import ROOT, Measure, Result, Spent
from tests.support.resolver_oracle import compare

LIBRARIES = ("smp", "smddp")
STACKS = (
    "smp=1.7.0 pytorch=1.10.2 cuda=11.3 python=3.8",
    "smp=1.7.0 smddp=1.4.0 pytorch=1.10.2 cuda=11.3 python=3.8",
    "smp=1.7.0 smddp=1.4.0 pytorch=1.10.2 cuda=11.3 python=3.8 metis librmm efa",
    "smp=1.5 smddp=1.2.2",
    "tensorflow horovod instance=ml.p4d.24xlarge",
    "pytorch=2.9 driver=535",
)
IMPOSSIBLE = (
    "cuda=12.4 pytorch=2.9",
    "smp=1.15 nvidia-cuda=12.4",
    "smddp=2.6.0 pytorch=2.6",
    "pytorch=2.13 cuda=13 instance=ml.p3.2xlarge",
)
MOST_SECONDS = 2.0
CATALOGUES, SHORT_CATALOGUES = 2000, 10
COUNTS = ("fitting", "unfit", "undecided", "removed")


@dataclass(frozen=True)
class Answer:
    """The answer to a question, and its cost."""

    question: str
    answer: str
    steps: int
    spent: Spent


def questions(catalog: Catalog, *, short: bool) -> Iterator[str]:
    if short:
        yield from (STACKS[0], IMPOSSIBLE[0])
        return
    for name in LIBRARIES:
        yield from (f"{name}={release.version}" for release in catalog.components[name].releases)
    yield from (*STACKS, *IMPOSSIBLE)


def answer(question: str, catalog: Catalog) -> str:
    """Return the bases that fit, that none does, or what the catalogue lacks."""
    assumptions = what_if.parse_assumptions(question.split(), catalog)
    try:
        fits = what_if.resolve_on_bases(assumptions, catalog)
    except ConflictError:
        return "cannot fit"
    except UndecidedError as error:
        # What the catalogue lacks is an answer, unlike a search that ended first
        lacking = [value for name, value in error.diagnostics[0].facts if name == "the catalogue lacks"]
        return f"lacks {', '.join(lacking)}" if lacking else "not known"
    bases = ", ".join(resolution.base.name for resolution in fits.resolutions)
    return f"fits {bases}" + (f"; not known: {', '.join(fits.undecided)}" if fits.undecided else "")


def asked(question: str, catalog: Catalog) -> Answer:
    steps, texts = 0, list[str]()

    def counted(budget: SearchBudget, name: str) -> None:
        nonlocal steps
        steps += 1
        spend(budget, name)

    spend = SearchBudget.spend
    with mock.patch.object(SearchBudget, "spend", counted):
        spent = harness.spent(lambda: texts.append(answer(question, catalog)))
    return Answer(question, texts[0], steps, spent)


def measured(options: argparse.Namespace) -> Result:
    catalog = open_workspace(ROOT).catalog
    texts = [*questions(catalog, short=options.short)]
    rounds = [
        [asked(question, catalog) for question in texts]
        for _ in range(2 if options.short else options.rounds)
    ]
    same = harness.require_same(
        "answers", *([(item.question, item.answer) for item in items] for items in rounds[:2])
    )
    slowest = max(rounds[-1], key=lambda item: item.spent.cpu)
    answered = sum("not known" not in item.answer for item in rounds[-1])
    compared = [compare(seed) for seed in range(SHORT_CATALOGUES if options.short else CATALOGUES)]
    counts = {name: sum(getattr(item, name) for item in compared) for name in COUNTS}
    measures = (
        Measure(
            "P15",
            f"`{slowest.question}`, CPU: the slowest of {len(texts)}",
            slowest.spent.cpu,
            most=MOST_SECONDS,
        ),
        Measure("P15", "answered questions; reference: all", answered, len(texts), unit=""),
        Measure(
            "P15",
            "random catalogues with right answers; reference: all",
            len(compared),
            len(compared),
            unit="",
        ),
    )
    notes = [
        f"{item.steps:6,} steps, {item.spent.cpu:.2f} s: {item.question}: {item.answer}"
        for item in rounds[-1]
    ]
    notes.append(
        f"Answers about random catalogues: {', '.join(f'{count} {name}' for name, count in counts.items())}."
    )
    return Result(measures, {"questions": rounds}, notes, (same,))


if __name__ == "__main__":
    harness.run("questions", harness.parser(__doc__, rounds=3), measured)
