"""Commands that are killed: the next run writes the same files, and nothing is left."""

from pathlib import Path

import pytest

from tests.support import killed_commands


@pytest.mark.parametrize(
    "names", [("update",), pytest.param((), marks=pytest.mark.release)], ids=["short", "all"]
)
def test_the_run_after_a_killed_one_writes_the_same_files(tmp_path: Path, names: tuple[str, ...]) -> None:
    """`benchmarks/kill_commands.py` kills more."""
    with killed_commands.file_commands(tmp_path) as all_commands:
        commands = [command for command in all_commands if command.name in names] or [*all_commands]
        rounds = [*killed_commands.rounds(commands, tmp_path, len(commands), seed=1)]

    assert [str(round_) for round_ in rounds if round_.differences] == []
    assert {round_.command for round_ in rounds} == {command.name for command in commands} >= {*names}
