"""Clusters killed at random moments: nothing of them stays. `benchmarks/kill_clusters.py` kills more."""

from pathlib import Path

import pytest

from bakehouse.builder.built_image import BuiltImage
from bakehouse.plan.model import Image
from tests.integration import killed_clusters

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("count", [1, pytest.param(5, marks=pytest.mark.release)])
def test_nothing_is_left_of_clusters_killed_at_random(
    mpi_cpu: tuple[Image, BuiltImage], tmp_path: Path, count: int
) -> None:
    """After SIGTERM and SIGINT by the run itself, after SIGKILL by the runs that follow."""
    project = killed_clusters.project(tmp_path)
    digest = mpi_cpu[1].stored

    rounds = [*killed_clusters.rounds(digest, project, count, seed=None)]

    assert [killed_clusters.round_text(round_) for round_ in rounds if round_.left] == []
