"""Images built a second time on an engine of their own: the same, and one that can't be."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bakehouse.catalog.project import HOME
from bakehouse.errors import DifferenceError
from bakehouse.maintain import reproduce
from bakehouse.plan.workspace import open_workspace, select
from tests.support.programs import remove_images

pytestmark = [pytest.mark.engine, pytest.mark.release]


@pytest.fixture
def _no_noisy_image_is_left() -> Iterator[None]:
    yield
    remove_images("noisy")


_NOISY = 'run: ["date +%s > /opt/made && touch /opt/$(date +%F)"]\n'


@pytest.mark.usefixtures("_no_noisy_image_is_left")
def test_mpi_cpu_is_the_same_and_a_step_that_writes_the_time_is_found(tmp_path: Path) -> None:
    """One engine builds both: most of its time goes into what they share."""
    recipe = (HOME / "recipes/images/mpi-cpu.yaml").read_text()
    (tmp_path / "pyproject.toml").write_text('[tool.bakehouse]\nrecipes = ["own"]\n')
    (tmp_path / "own/images").mkdir(parents=True)
    (tmp_path / "own/images/noisy.yaml").write_text(recipe + _NOISY)
    messages: list[str] = []

    selection = select(open_workspace(tmp_path), ["mpi-cpu", "noisy"])
    reproductions = reproduce.reproduce(selection, messages.append)

    same, different = reproductions
    assert (same.image, same.differing) == ("mpi-cpu", ())
    assert same.layers > 5
    assert [layer.owner for layer in different.differing] == ["run"]
    with pytest.raises(DifferenceError, match="image `noisy` differs when another engine builds it"):
        reproduce.require_same(reproductions)
    assert "note: not pinned in noisy: step 1 of `run`, which may use the network" in messages
