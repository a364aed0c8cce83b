"""Tasks that are killed: the next run reaches the same digest. `benchmarks/kill_commands.py` kills more."""

from pathlib import Path

import pytest

from tests.integration import killed_tasks
from tests.integration.fleet import Fleet
from tests.integration.ports import kept_port
from tests.support import killed_commands

# In CI, `test_main_job` kills releases and `test_killed_clusters` jobs.
pytestmark = [pytest.mark.engine, pytest.mark.release, pytest.mark.timeout(600)]

ROUNDS = 4


def test_the_run_after_a_killed_one_reaches_the_same_digest(fleet: Fleet, tmp_path: Path) -> None:
    """The fleet has the base and the toolchain of this image."""
    with kept_port() as port, killed_tasks.tasks(tmp_path, port) as commands:
        rounds = [*killed_commands.rounds(commands, tmp_path, ROUNDS, seed=1)]

    assert [str(round_) for round_ in rounds if round_.differences] == []
    assert {round_.command for round_ in rounds} == {command.name for command in commands}
