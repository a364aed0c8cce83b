"""The launcher page lists the tested cases and their results."""

from tests.integration import launch_matrix
from tests.integration.launch_matrix import LAUNCHERS, PAGE


def table_rows() -> list[list[str]]:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")][1:]
    return [[cell.strip(" `") for cell in row.split("|")[1:-1]] for row in rows]


def test_each_tested_launcher_has_a_row() -> None:
    cases = launch_matrix.cases()
    rows = [tuple(row[:4]) for row in table_rows() if row[2]]

    assert sorted(rows) == sorted(launch_matrix.line_of(name, cases[name]) for name in LAUNCHERS)


def test_cases_without_a_row_kill_a_host() -> None:
    assert all(case.kills for name, case in launch_matrix.cases().items() if name not in LAUNCHERS)


def test_each_row_passed_or_states_why_it_was_not_tested() -> None:
    assert {row[4].partition(":")[0] for row in table_rows()} == {"passed", "not tested"}
