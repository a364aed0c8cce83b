"""Commands that are killed: the next run writes the same files, and nothing is left."""

from pathlib import Path

from tests.support import killed_commands

ROUNDS = 3
"""`benchmarks/kill_commands.py` kills more."""


def test_the_run_after_a_killed_one_writes_the_same_files(tmp_path: Path) -> None:
    rounds = [*killed_commands.rounds(tmp_path, ROUNDS, seed=1)]

    assert [str(round_) for round_ in rounds if round_.differences] == []
    assert {round_.command for round_ in rounds} == set(killed_commands.COMMANDS)
