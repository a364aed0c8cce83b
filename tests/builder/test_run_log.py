"""Log of the smoke tests of images."""

import json
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from bakehouse import __version__
from bakehouse.builder import run_log
from bakehouse.builder.verify import Outcome
from bakehouse.errors import RecipeError
from tests.support import fake_engine, plans
from tests.support.errors import error_text

IMAGE = fake_engine.image("small")
TODAY = date(2026, 11, 21)


SMOKELESS = '{"small": {"key": "", "date": "", "smoke": {"passed": 1}}}'


def record(images: Path, run: run_log.Run, name: str = "small") -> None:
    run_log.record_runs(images, {name: run}, images / "locks")


@pytest.mark.parametrize(
    "content",
    [
        *(b"{", b"[]", b'{"small": {}}', b'{"small": {"key": "", "date": 1}}'),
        *(b"\xff", b"[" * 100_000, b'{"small": 3}', SMOKELESS.encode()),
    ],
)
def test_a_broken_record_is_reported_as_such(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "runs.json").write_bytes(content)

    with pytest.raises(RecipeError, match=r"`runs.json` is not a valid record of runs"):
        run_log.load_runs(tmp_path)


def test_an_invalid_run_is_reported_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "runs.json").write_text('{"small": {"key": 3, "date": ""}}')

    with pytest.raises(RecipeError) as caught:
        run_log.load_runs(tmp_path)
    assert caught.value.diagnostics[0].facts == (("because", "expected `str`, got `int` at `small.key`"),)


SMOKE = run_log.SmokeRun("2026-11-21", passed=31, not_tested=4)
RUN = run_log.Run(IMAGE.key, "2026-11-21", SMOKE)


def test_the_run_of_a_smoke_test_has_its_counts() -> None:
    outcomes = [("gpu", Outcome.NOT_TESTED), ("mpi_2x2", Outcome.FAILED), ("components", Outcome.PASSED)]

    assert run_log.smoked_run(IMAGE, outcomes, TODAY) == replace(
        RUN, smoke=run_log.SmokeRun("2026-11-21", 1, 1, ("mpi_2x2",))
    )


def test_checks_that_ran_again_count_if_they_complete_a_smoke_test() -> None:
    def run(passed: int, not_tested: int) -> run_log.Run:
        smoke = run_log.SmokeRun("2026-11-21", passed, not_tested)
        return replace(RUN, smoke=smoke)

    assert run_log.is_rerun(run(31, 4), run(31, 4))
    assert run_log.is_rerun(run(31, 4), run(28, 3))
    assert not run_log.is_rerun(run(2, 0), run(31, 4))
    assert not run_log.is_rerun(run(31, 4), replace(run(31, 4), key="0" * 64))
    assert not run_log.is_rerun(run(31, 4), replace(RUN, smoke=None))
    assert not run_log.is_rerun(run(31, 4), None)


def test_smoke_results_are_read_back_and_count_only_for_their_key(tmp_path: Path) -> None:
    record(tmp_path, RUN)
    record(tmp_path, replace(RUN, key="0" * 64), "other")
    runs = run_log.load_runs(tmp_path)

    assert run_log.smoke_run(IMAGE, runs) == SMOKE
    assert run_log.smoke_run(plans.changed(IMAGE, name="other"), runs) is None


def test_newer_smoke_results_replace_older_ones() -> None:
    failed = run_log.SmokeRun("2026-11-22", passed=30, not_tested=4, failed=("gpu",))
    old = {IMAGE.name: RUN}
    new = {IMAGE.name: replace(RUN, date="2026-11-22", smoke=failed)}

    assert run_log.merge_runs(old, new)[IMAGE.name].smoke == failed
    assert run_log.merge_runs(new, old)[IMAGE.name].smoke == failed


def test_smoke_results_as_text() -> None:
    assert SMOKE.summary == "31 checks passed, 4 not tested"
    assert replace(SMOKE, passed=1, not_tested=0).summary == "1 check passed"
    assert replace(SMOKE, failed=("gpu",)).summary == "1 of 32 checks failed"


def test_the_same_run_again_changes_nothing(tmp_path: Path) -> None:
    record(tmp_path, RUN)
    before = (tmp_path / "runs.json").read_text()
    record(tmp_path, RUN)

    assert (tmp_path / "runs.json").read_text() == before


def test_fields_of_a_newer_version_are_kept(tmp_path: Path) -> None:
    record(tmp_path, RUN)
    path = tmp_path / "runs.json"
    document = json.loads(path.read_text())
    document["small"]["engine"] = "29.1"
    path.write_text(json.dumps(document))
    record(tmp_path, RUN, "other")

    assert json.loads(path.read_text())["small"] == document["small"]


def test_a_record_of_a_newer_format_is_named_as_newer(tmp_path: Path) -> None:
    path = tmp_path / "runs.json"
    path.write_text('{"$format": 9}')

    with pytest.raises(RecipeError) as caught:
        record(tmp_path, RUN)

    assert error_text(caught.value) == (
        "error: cannot read `runs.json`\n"
        f"  --> {path}:1:1\n"
        f"  because  a newer Bakehouse wrote it in format 9; Bakehouse {__version__} reads formats up to 1\n"
        "\n"
        "hint: upgrade Bakehouse; nothing was written\n"
    )
    assert path.read_text() == '{"$format": 9}'


def test_a_record_without_a_format_is_read(tmp_path: Path) -> None:
    run = {"level": "built", "key": IMAGE.key, "date": "2026-11-21"}
    (tmp_path / "runs.json").write_text(json.dumps({"small": run}))

    assert run_log.load_runs(tmp_path) == {"small": replace(RUN, smoke=None)}


def test_a_record_without_a_smoke_test_is_not_copied(tmp_path: Path) -> None:
    record(tmp_path, replace(RUN, smoke=None), "other")
    record(tmp_path, RUN)

    assert [*run_log.load_runs(tmp_path)] == ["small"]
