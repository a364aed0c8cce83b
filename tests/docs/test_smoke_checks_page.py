"""The page that says what each smoke check proves."""

import pytest

from bakehouse.catalog.job_checks import JOB_CHECKS
from bakehouse.catalog.project import HOME
from bakehouse.util.format import format_names

PAGE = HOME / "docs/reference/smoke-checks.md"


def test_the_page_has_each_check_of_the_table(request: pytest.FixtureRequest) -> None:
    """`pytest --update-snapshots` writes its rows anew."""
    head, mark, _ = PAGE.read_text().partition("|---|---|---|---|\n")
    rows = "".join(
        f"| `{check.name}` | {format_names(check.contents) or check.launcher or 'all'} "
        f"| {check.proves} | {check.leaves_open} |\n"
        for check in JOB_CHECKS.values()
    )
    if request.config.getoption("--update-snapshots"):
        PAGE.write_text(head + mark + rows)

    assert PAGE.read_text() == head + mark + rows
