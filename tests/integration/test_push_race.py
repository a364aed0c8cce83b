"""Pushers that race for one tag, five rounds each: `benchmarks/push_race.py` runs more."""

from pathlib import Path
from random import Random

import pytest

from tests.integration import push_races

pytestmark = [pytest.mark.engine, pytest.mark.timeout(240)]

ROUNDS = 5


@pytest.mark.parametrize("pushers", [2, 8])
def test_where_tags_are_immutable_one_wins_and_all_others_know(tmp_path: Path, pushers: int) -> None:
    random = Random(1)
    with (
        push_races.immutable(tmp_path) as course,
        push_races.racers(course, pushers, tmp_path) as race,
    ):
        for number in range(ROUNDS):
            ended = race(number, random)
            assert ended.is_decided, ended


@pytest.mark.parametrize("pushers", [2, 8])
def test_where_tags_can_be_overwritten_the_losers_are_told(tmp_path: Path, pushers: int) -> None:
    """All begin within less time than the tag is watched after a push."""
    random = Random(1)
    with (
        push_races.mutable(tmp_path) as course,
        push_races.racers(course, pushers, tmp_path) as race,
    ):
        for number in range(ROUNDS):
            ended = race(number, random)
            assert (ended.lied_to, ended.failed) == (0, 0), ended
