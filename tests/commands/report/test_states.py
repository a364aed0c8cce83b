"""States of the grid: only recorded facts count as a success."""

from dataclasses import replace
from typing import Any

import pytest

from bakehouse.commands.report import states
from bakehouse.commands.report.states import CellState, Mark, not_recorded
from bakehouse.evidence.image_state import ImageState
from bakehouse.ledger.releases import ReleasedArtifact, ReleasedFindings, ReleasedRollback
from tests.support import fake_engine
from tests.support.release_records import a_record

IMAGE = fake_engine.image("small")
RECORD = a_record()
OTHER = replace(RECORD, key="0" * 64)


RENDERED = ImageState(7, missing=7)


def test_nothing_is_recorded_of_a_new_image() -> None:
    assert states.run_state(IMAGE, RENDERED, None) == not_recorded()
    assert states.checks_state([]) == not_recorded()
    assert states.signature_state([]) == not_recorded()
    assert states.release_state([], [], None) == not_recorded()
    assert not_recorded().mark is Mark.UNKNOWN


def test_a_build_is_done_and_a_rehearsal_says_what_it_did_not_test() -> None:
    built = CellState(Mark.DONE, "built", "All layers were made from the real files.")
    note = "All build steps ran. Stubs: efa, nccl."

    assert states.run_state(IMAGE, ImageState(7, 7), IMAGE.key) == built
    assert states.run_state(IMAGE, ImageState(7, 2, stubs=("efa", "nccl")), IMAGE.key) == CellState(
        Mark.PARTLY, "rehearsed; 2 of 7 layers known", note
    )


def test_a_build_that_gave_different_layers_is_not_done() -> None:
    state = states.run_state(IMAGE, ImageState(7, 7, differ=1), IMAGE.key)

    assert (state.mark, state.text) == (Mark.WRONG, "built; not reproducible")
    assert state.note.endswith(" A step gave different layers.")


def test_an_image_with_missing_layers_is_rendered() -> None:
    assert states.run_state(IMAGE, RENDERED, IMAGE.key) == CellState(Mark.PARTLY, "rendered")
    assert states.run_state(IMAGE, RENDERED, "0" * 64) == CellState(
        Mark.WRONG, "rendered, stale", "Run `bake render small`."
    )


@pytest.mark.parametrize(
    ("outcomes", "mark", "text"),
    [
        (["passed", "passed"], Mark.DONE, "2 passed"),
        (["passed", "not tested"], Mark.PARTLY, "1 passed, 1 not tested"),
        (["passed", "failed", "not tested"], Mark.FAILED, "1 of 3 failed"),
        (["not tested"], Mark.UNKNOWN, "not tested"),
    ],
)
def test_only_checks_that_all_passed_are_done(outcomes: list[str], mark: Mark, text: str) -> None:
    assert states.checks_state(outcomes) == CellState(mark, text)


def test_an_attached_bill_of_materials_is_not_a_signature() -> None:
    sbom = replace(RECORD, artifacts=(ReleasedArtifact("application/vnd.cyclonedx+json", "sha256:1"),))
    bundle = ReleasedArtifact("application/vnd.dev.sigstore.bundle.v0.3+json", "sha256:2")

    assert states.signature_state([sbom]) == not_recorded()
    assert states.signature_state([replace(RECORD, artifacts=(bundle,))]).mark is Mark.DONE


def test_only_a_release_of_the_present_build_key_is_done() -> None:
    candidate = replace(RECORD, candidate=True)
    tags = "Tags: mpi-cpu-20261120-7c1e44b0."
    note = "An earlier version was released on 2026-11-20."

    state = states.release_state
    assert state([candidate, RECORD], [], RECORD) == CellState(Mark.DONE, "2026-11-20", tags)
    assert state([candidate], [OTHER], OTHER) == CellState(Mark.PARTLY, "candidate 2026-11-20", note)
    assert state([], [OTHER], OTHER) == CellState(Mark.PARTLY, "earlier version, 2026-11-20", note)
    assert state([], [replace(OTHER, tested=False)], None) == not_recorded()


def test_a_release_that_was_rolled_back_is_not_done() -> None:
    latest = replace(OTHER, rollback=ReleasedRollback("2026-11-21T10:00:00Z", RECORD.digest))

    assert states.release_state([RECORD], [latest], latest) == CellState(
        Mark.WRONG, "rolled back 2026-11-21", f"`{latest.digest[:19]}` is current."
    )


def test_a_release_of_a_gpu_image_says_that_no_check_used_gpus() -> None:
    without, before = replace(RECORD, tested_on_gpus=False), replace(RECORD, tested_on_gpus=None)

    assert states.release_kind(without) == "release, not tested on GPUs"
    assert states.release_kind(replace(without, candidate=True)) == "candidate, not tested on GPUs"
    assert states.release_kind(replace(without, tested=False)) == "not tested"
    assert states.release_kind(before) == "release"
    note = "Tags: mpi-cpu-20261120-7c1e44b0. It was not tested on GPUs."
    assert states.release_state([without], [], without) == CellState(Mark.DONE, "2026-11-20", note)


@pytest.mark.parametrize(
    ("facts", "mark", "text"),
    [
        ({"scanned": "2026-11-20T12:30:00Z"}, Mark.DONE, "no findings, 2026-11-20"),
        (
            {"scanned": "2026-11-20T12:30:00Z", "findings": (ReleasedFindings("HIGH", 2),)},
            Mark.WRONG,
            "2 HIGH, 2026-11-20",
        ),
        ({"not_scanned": "no rights"}, Mark.UNKNOWN, "not scanned"),
        ({}, Mark.UNKNOWN, "not recorded"),
    ],
)
def test_the_last_scan_of_amazon_ecr_is_shown(facts: dict[str, Any], mark: Mark, text: str) -> None:
    newest = replace(a_record(), date="2026-11-21")
    state = states.scan_state([newest, replace(newest, **facts)])
    assert (state.mark, state.text) == (mark, text)
