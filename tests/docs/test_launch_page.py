"""The page of launchers names what the tests run, and nothing that failed."""

from tests.integration import launch_matrix
from tests.integration.launch_matrix import LAUNCHERS, PAGE


def lines() -> list[list[str]]:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")][1:]
    return [[cell.strip(" `") for cell in row.split("|")[1:-1]] for row in rows]


def test_every_launcher_that_is_tested_has_its_line() -> None:
    cases = launch_matrix.cases()
    told = [tuple(line[:4]) for line in lines() if line[2]]

    assert sorted(told) == sorted(launch_matrix.line_of(name, cases[name]) for name in LAUNCHERS)


def test_a_case_without_a_line_shows_a_loss() -> None:
    assert all(case.kills for name, case in launch_matrix.cases().items() if name not in LAUNCHERS)


def test_what_stands_there_passed_or_says_why_it_was_not_tested() -> None:
    assert {line[4].partition(":")[0] for line in lines()} == {"passed", "not tested"}
