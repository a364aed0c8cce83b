"""The launcher page lists the tested cases and their results, and marks the old ones."""

from dataclasses import replace

from tests.integration import launch_matrix
from tests.integration.launch_matrix import LAUNCHERS, PAGE, Row

ROW = Row("Open MPI 5, toolkit", "2 x 2 ranks", "mpi5-cpu", "mpi", "passed", "55", "2026-11-21")


def test_each_tested_launcher_has_a_row() -> None:
    cases = launch_matrix.cases()
    rows = [row.line for row in launch_matrix.parse(PAGE.read_text())]

    assert sorted(rows) == sorted(launch_matrix.line_of(name, cases[name]) for name in LAUNCHERS)


def test_cases_without_a_row_kill_a_host() -> None:
    assert all(case.kills for name, case in launch_matrix.cases().items() if name not in LAUNCHERS)


def test_the_page_marks_the_runs_of_changed_images_and_examples() -> None:
    page = PAGE.read_text()

    assert page == launch_matrix.text(launch_matrix.parse(page)), (
        "run `python -m tests.integration.launch_matrix`"
    )


def test_a_row_with_todays_key_is_not_marked() -> None:
    row = replace(ROW, key=launch_matrix.key(ROW.image, ROW.example))

    assert launch_matrix.parse(launch_matrix.text([row])) == [row]


def test_a_row_with_another_key_is_marked_once() -> None:
    row = replace(ROW, key="01234567")
    [marked] = launch_matrix.parse(launch_matrix.text([row]))

    assert marked == replace(row, run="2026-11-21, changed since")
    assert launch_matrix.parse(launch_matrix.text([marked])) == [marked]


def test_a_newer_run_replaces_an_older_one() -> None:
    newer = replace(ROW, run="2026-11-28", seconds="9")

    assert launch_matrix.merge([ROW], [newer]) == [newer]


def test_a_run_is_kept_if_the_launcher_was_not_run_again() -> None:
    untested = replace(ROW, result="not tested: no image", seconds="", run="")

    assert launch_matrix.merge([ROW], [untested]) == [ROW]


def test_a_row_of_a_launcher_that_no_test_runs_is_dropped() -> None:
    assert launch_matrix.merge([replace(ROW, launcher="Slurm")], []) == []


def test_each_row_passed_or_states_why_it_was_not_tested_or_fails_as_known() -> None:
    rows = {row.line: row.result for row in launch_matrix.parse(PAGE.read_text())}
    cases = {name: case for name, case in launch_matrix.cases().items() if name in LAUNCHERS}
    known = {launch_matrix.line_of(name, case): f"fails: {case.fails}" for name, case in cases.items()}

    unexpected = {
        line for line, result in rows.items() if result.partition(":")[0] not in ("passed", "not tested")
    }
    assert {line: rows[line] for line in unexpected} == {line: known[line] for line in unexpected}
