"""Pushers that race for one tag, some rounds of two and of eight: `benchmarks/push_race.py` runs more."""

from pathlib import Path
from random import Random

import pytest

from tests.integration import push_races

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]


def test_where_tags_are_immutable_one_wins_and_all_others_know(tmp_path: Path) -> None:
    random = Random(1)
    with push_races.immutable(tmp_path) as course, push_races.racers(course, 8, tmp_path) as race:
        for pushers, rounds in ((2, 5), (8, 5)):
            for number in range(rounds):
                result = race(number, random, pushers)
                assert result.is_decided, result


def test_where_tags_can_be_overwritten_the_losers_are_told(tmp_path: Path) -> None:
    """All push within less time than the tag is watched after a push: the course sees to that.

    It is watched for longer than by default: what else runs here may keep manifests waiting.
    """
    random = Random(1)
    with push_races.contested(tmp_path, settle="3") as course, push_races.racers(course, 8, tmp_path) as race:
        for pushers, rounds in ((2, 5), (8, 5)):
            for number in range(rounds):
                result = race(number, random, pushers)
                assert (result.lied_to, result.failed) == (0, 0), result
