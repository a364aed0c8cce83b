"""The three answers agree with a search of every combination, on random catalogues with several bases.

The benchmark `questions` compares 2,000 catalogues.
"""

import pytest

from bakehouse.resolve.alternatives import AlternativeSearch
from bakehouse.resolve.candidate import Conflict
from bakehouse.resolve.relaxation import Relaxations
from tests.support.catalogs import Dice
from tests.support.resolver_oracle import Compared, compare

SEEDS = range(20)
WITH_DROPPED_PROVIDER = 117
"""A catalogue in which one component can be left out only after another one."""


def compare_all() -> list[Compared]:
    return [compare(seed) for seed in SEEDS]


def test_each_answer_agrees_with_a_search_of_every_combination() -> None:
    answers = compare_all()

    for kind in ("fitting", "unfit", "undecided", "removed"):
        assert sum(getattr(answer, kind) for answer in answers) >= 5, kind


def test_a_minimal_core_leaves_out_a_component_that_only_seemed_to_contribute() -> None:
    assert compare(WITH_DROPPED_PROVIDER).unfit


def test_a_wrong_no_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(search: AlternativeSearch, relaxations: Relaxations) -> Conflict:
        return Conflict(Dice(0).recipe(), "", (), tuple)

    monkeypatch.setattr(AlternativeSearch, "attempt", refuse)
    with pytest.raises(AssertionError):
        compare_all()


def test_a_core_with_superfluous_pins_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AlternativeSearch, "core", lambda *_: {})
    with pytest.raises(AssertionError):
        compare_all()
