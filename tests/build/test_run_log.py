"""Log of how far images were run."""

from datetime import date
from pathlib import Path

import pytest

from bakehouse.build import run_log
from bakehouse.build.run_log import Level
from bakehouse.errors import RecipeError
from tests.support import fake_engine

IMAGE = fake_engine.image("small")
TODAY = date(2026, 11, 21)


def record(images: Path, run: run_log.Run, name: str = "small") -> None:
    run_log.record_runs(images, {name: run}, images / "locks")


def test_a_run_needs_a_record(tmp_path: Path) -> None:
    assert run_log.level(IMAGE, run_log.load_runs(tmp_path)) is Level.RENDERED


def test_a_run_is_read_back(tmp_path: Path) -> None:
    run = run_log.rehearsed_run(IMAGE, ("efa", "pytorch"), TODAY)
    record(tmp_path, run)

    assert run_log.load_runs(tmp_path) == {"small": run}
    assert run == run_log.Run(Level.REHEARSED, IMAGE.key, "2026-11-21", ("efa", "pytorch"))


def test_a_run_counts_only_for_the_key_it_was_made_with(tmp_path: Path) -> None:
    record(tmp_path, run_log.Run(Level.BUILT, "0" * 64, "2026-01-01"))

    assert run_log.level(IMAGE, run_log.load_runs(tmp_path)) is Level.RENDERED


def test_a_rehearsal_does_not_hide_a_build_of_the_same_image(tmp_path: Path) -> None:
    record(tmp_path, run_log.built_run(IMAGE, TODAY))
    record(tmp_path, run_log.rehearsed_run(IMAGE, (), TODAY))

    assert run_log.level(IMAGE, run_log.load_runs(tmp_path)) is Level.BUILT


def test_a_rehearsal_takes_the_place_of_a_build_of_another_key(tmp_path: Path) -> None:
    record(tmp_path, run_log.Run(Level.BUILT, "0" * 64, "2026-01-01"))
    record(tmp_path, run_log.rehearsed_run(IMAGE, (), TODAY))

    assert run_log.level(IMAGE, run_log.load_runs(tmp_path)) is Level.REHEARSED


def test_an_older_run_does_not_replace_a_newer_one() -> None:
    newer = {IMAGE.name: run_log.built_run(IMAGE, TODAY)}
    older = {IMAGE.name: run_log.Run(Level.BUILT, "0" * 64, "2026-01-01")}

    assert run_log.merge_runs(newer, older) == newer
    assert run_log.merge_runs(older, newer) == newer


def test_other_images_stay_on_record(tmp_path: Path) -> None:
    record(tmp_path, run_log.built_run(IMAGE, TODAY))
    record(tmp_path, run_log.rehearsed_run(IMAGE, (), TODAY), "other")

    assert sorted(run_log.load_runs(tmp_path)) == ["other", "small"]


@pytest.mark.parametrize(
    "content",
    [
        *(b"{", b"[]", b'{"small": {}}', b'{"small": {"level": "dreamt", "key": "", "date": ""}}'),
        *(b"\xff", b"[" * 100_000, b'{"small": 3}'),
    ],
)
def test_a_broken_record_is_reported_as_such(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "runs.json").write_bytes(content)

    with pytest.raises(RecipeError, match=r"`runs.json` is not a valid record of runs"):
        run_log.load_runs(tmp_path)


def test_the_same_run_again_changes_nothing(tmp_path: Path) -> None:
    record(tmp_path, run_log.built_run(IMAGE, TODAY))
    before = (tmp_path / "runs.json").read_text()
    record(tmp_path, run_log.built_run(IMAGE, date(2027, 1, 1)))

    assert (tmp_path / "runs.json").read_text() == before
