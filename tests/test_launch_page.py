"""The page of launchers names what the tests run, and nothing that failed."""

from tests.integration import launch_matrix
from tests.integration.jobs import Case
from tests.integration.launch_matrix import PAGE, hosts


def lines() -> list[list[str]]:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")][1:]
    return [[cell.strip(" `") for cell in row.split("|")[1:-1]] for row in rows]


def words(case: Case) -> tuple[str, ...]:
    return case.launcher, hosts(case), case.image, case.source.name if case.source else ""


def test_every_launcher_that_is_tested_has_its_line() -> None:
    told = [tuple(line[:4]) for line in lines() if line[2]]

    assert sorted(told) == sorted(words(case) for case in launch_matrix.cases())


def test_what_stands_there_passed_or_says_why_it_was_not_tested() -> None:
    results = {line[4].partition(":")[0] for line in lines()}

    assert results == {"passed", "not tested"}
