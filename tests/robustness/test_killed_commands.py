"""Commands that are killed: the next run writes the same files, and nothing is left."""

from pathlib import Path

from tests.support import killed_commands

ROUNDS = 5
"""One of each command; `benchmarks/kill_commands.py` kills more."""


def test_the_run_after_a_killed_one_writes_the_same_files(tmp_path: Path) -> None:
    with killed_commands.file_commands(tmp_path) as commands:
        rounds = [*killed_commands.rounds(commands, tmp_path, ROUNDS, seed=1)]

    assert [str(round_) for round_ in rounds if round_.differences] == []
    assert {round_.command for round_ in rounds} == {command.name for command in commands}
