"""Short runs of the benchmarks that need an engine: both sides do the same work."""

import os
from pathlib import Path

import pytest

from tests.support.benchmarks import SHORT_WITH_ENGINE, SHORT_WITHOUT_JSON, messages_of, report_of

pytestmark = [pytest.mark.engine, pytest.mark.release, pytest.mark.timeout(900)]

AS_ROOT = ("pull", "layer_push", "push_faults")
"""Benchmarks that start an engine, read its process or mount a small disk."""


@pytest.mark.usefixtures("fleet")
@pytest.mark.parametrize("name", SHORT_WITH_ENGINE)
def test_both_sides_do_the_same_work(name: str, tmp_path: Path) -> None:
    """The fleet has the base and the toolchain of the images."""
    if name in AS_ROOT and os.geteuid() != 0:
        pytest.skip("needs root")
    if name in SHORT_WITHOUT_JSON:
        assert "Both sides have the same " in messages_of(name)
        return
    report = report_of(name, tmp_path)

    assert report["same"]
    assert report["measures"]
    assert {measure["is_reached"] for measure in report["measures"]} == {None}
    if name == "push_sharing":
        # Shared layers are not sent again.
        assert report["measures"][0]["ratio"] < 0.01
