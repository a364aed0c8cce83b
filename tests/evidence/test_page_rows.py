"""Committed results of checks: text for pages, which no gate reads."""

from dataclasses import replace
from pathlib import Path

import pytest

from bakehouse.catalog.project import HOME, ProjectSettings
from bakehouse.cluster.check_keys import definitions
from bakehouse.cluster.smoke_report import Setup
from bakehouse.errors import RecipeError
from bakehouse.evidence import check_rows, page_rows, step_layers
from bakehouse.evidence.known_checks import KnownChecks, known_checks
from bakehouse.evidence.page_rows import page_checks
from bakehouse.plan.model import Image, InstalledComponent
from bakehouse.plan.workspace import open_workspace, select
from tests.support import fake_engine
from tests.support.built_images import CONTENT, TOOLKIT, results
from tests.support.errors import raised

KEY = "a" * 32
LAYERS = step_layers.by_key([step_layers.StepLayer(KEY, "linux/amd64", CONTENT)])


@pytest.fixture
def project(tmp_path: Path) -> ProjectSettings:
    return ProjectSettings(tmp_path, (), state_directory=tmp_path / "state")


@pytest.fixture
def tested(tmp_path: Path) -> Image:
    (tmp_path / "a.py").write_text("def installed(): return '1.0'\n\ndef check_it(): pass\n")
    part = InstalledComponent("a", "1.0", "", tmp_path / "a.py")
    return replace(fake_engine.image(parts=(part,)))


def render(project: ProjectSettings, image: Image) -> list[str]:
    """Write the file, and return its lines."""
    text = page_rows.text(project, [image], LAYERS)
    project.images.mkdir(exist_ok=True)
    (project.images / page_rows.FILE).write_text(text)
    return text.splitlines()


def shown(project: ProjectSettings, image: Image) -> KnownChecks:
    return page_checks(project, image, LAYERS, page_rows.read(project), committed=True)


def test_results_of_this_machine_are_rendered_and_shown_elsewhere(
    project: ProjectSettings, tested: Image
) -> None:
    check_rows.record(project.state, CONTENT, results(tested, failed=("mpi_2x2",)))
    lines = render(project, tested)

    count = len(results(tested))
    assert len(lines) == 1 + count
    assert any(line.startswith("mpi-cpu mpi_2x2 e1/0/train+toolkit ") for line in lines)
    other = replace(project, state_directory=project.root / "other")
    assert shown(other, tested).summary == f"{count} of {count} checks; failed: `mpi_2x2`"


def test_no_gate_reads_a_committed_row(project: ProjectSettings, tested: Image) -> None:
    check_rows.record(project.state, CONTENT, results(tested))
    render(project, tested)
    other = replace(project, state_directory=project.root / "other")

    assert shown(other, tested).has_passed
    assert known_checks(other, tested, CONTENT).blockers == ("it was never smoke-tested",)


def test_a_changed_check_removes_one_line_and_is_missing(
    project: ProjectSettings, tested: Image, tmp_path: Path
) -> None:
    check_rows.record(project.state, CONTENT, results(tested))
    before = render(project, tested)
    with (tmp_path / "a.py").open("a") as file:
        file.write("\nraise SystemExit('always fails')\n")

    assert shown(project, tested).summary.endswith("; missing: `components.a`")
    after = render(project, tested)
    [removed] = {*before} - {*after}
    assert removed.startswith("mpi-cpu components.a ")
    assert {*after} < {*before}


def test_the_same_result_of_a_later_day_changes_no_line(project: ProjectSettings, tested: Image) -> None:
    check_rows.record(project.state, CONTENT, results(tested, date="2026-11-20T10:00:00+00:00"))
    before = render(project, tested)
    check_rows.record(project.state, CONTENT, results(tested, date="2026-11-21T10:00:00+00:00"))
    assert render(project, tested) == before

    check_rows.record(project.state, CONTENT, results(tested, failed=("mpi_2x2",)))
    assert len({*render(project, tested)} - {*before}) == 1


def test_rows_of_other_contents_and_images_are_dropped(project: ProjectSettings, tested: Image) -> None:
    check_rows.record(project.state, CONTENT, results(tested))
    render(project, tested)

    other = step_layers.by_key([step_layers.StepLayer(KEY, "linux/amd64", "sha256:" + "1" * 64)])
    assert page_rows.text(project, [tested], other) == ""
    assert page_rows.text(project, [replace(tested, name="other")], {}) == ""


def test_both_sides_of_a_merge_are_read(project: ProjectSettings, tested: Image) -> None:
    check_rows.record(project.state, CONTENT, results(tested))
    banner, first, *rest = render(project, tested)
    merged = [banner, "<<<<<<< ours", first, "=======", *rest, ">>>>>>> theirs", ""]
    (project.images / page_rows.FILE).write_text("\n".join(merged))
    assert shown(project, tested).has_passed

    day = first.rpartition(" ")[2]
    for other, is_failed in (("2026-01-02", False), ("2099-01-02", True)):
        failure = first.replace("passed", "failed").replace(day, other)
        (project.images / page_rows.FILE).write_text("\n".join([banner, first, failure, *rest, ""]))
        assert bool(shown(project, tested).failed) is is_failed


@pytest.mark.parametrize(("text", "reason"), [("mpi-cpu x\n", "line 1 is not a row: 'mpi-cpu x'")])
def test_a_file_that_cannot_be_read_is_an_error(project: ProjectSettings, text: str, reason: str) -> None:
    project.images.mkdir()
    (project.images / page_rows.FILE).write_text(text)

    assert reason in dict(raised(RecipeError, page_rows.read, project).diagnostics[0].facts)["because"]


def test_results_of_all_images_stay_below_two_megabytes() -> None:
    """Each check of each image, on this machine, and of images for GPUs also on GPUs."""
    selection = select(open_workspace(HOME), ["*"])
    images = selection.plan.images
    some = images[:: max(1, len(images) // 20)]
    total = 0
    for image in some:
        for setup in [TOOLKIT, *([Setup("train toolkit", 1, 8)] if image.gpu else [])]:
            total += sum(
                len(
                    page_rows.PageRow(
                        image.name, name, "e1/8/train+toolkit", "0" * 24, "passed", "2026-11-29"
                    ).line
                )
                for name, definition in definitions(image, setup, ()).items()
                if definition.key
            )

    assert total * len(images) / len(some) < 2_000_000
