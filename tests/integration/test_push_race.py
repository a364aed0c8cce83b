"""Pushers that race for one tag, some rounds of two and of eight: `benchmarks/push_race.py` runs more."""

from pathlib import Path
from random import Random

import pytest

from tests.integration import push_races

pytestmark = [pytest.mark.engine, pytest.mark.release, pytest.mark.timeout(600)]


def test_with_immutable_tags_one_push_wins_and_the_others_fail(tmp_path: Path) -> None:
    random = Random(1)
    with push_races.immutable(tmp_path) as course, push_races.racers(course, 8, tmp_path) as race:
        for pushers, rounds in ((2, 5), (8, 5)):
            for number in range(rounds):
                result = race(number, random, pushers)
                assert result.is_decided, result


def test_with_mutable_tags_the_losers_are_reported(tmp_path: Path) -> None:
    """All push within less time than the tag is watched after a push: the course sees to that.

    It is watched for longer than by default: what else runs here may keep manifests waiting.
    """
    random = Random(1)
    with push_races.contested(tmp_path, settle="3") as course, push_races.racers(course, 8, tmp_path) as race:
        for pushers, rounds in ((2, 5), (8, 5)):
            for number in range(rounds):
                result = race(number, random, pushers)
                assert (result.lied_to, result.failed) == (0, 0), result
