"""Results of campaigns on the page about robustness: each run with `--record` writes its own row."""

import argparse
import datetime
import os
import platform
from pathlib import Path

from bakehouse.util.files import write_whole

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/explanation/robustness.md"


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add the option of campaigns that writes their result into the page."""
    parser.add_argument("--record", action="store_true", help="write the result into docs")


def record(campaign: str, cases: str, result: str) -> None:
    """Write the row of a campaign, in place of that of its last run."""
    load = "busy" if os.getloadavg()[0] > 2 else "idle"
    machine = f"{os.cpu_count()} cores, {load}, Python {platform.python_version()}"
    row = f"| {datetime.datetime.now(datetime.UTC):%Y-%m-%d} | {machine} | {cases} | {result} |\n"
    write_whole(PAGE, with_row(PAGE.read_text(), campaign, row))


def with_row(page: str, campaign: str, row: str) -> str:
    """Return the page with the row of a campaign between its marks."""
    start, end = f"<!-- result of {campaign} -->\n", "<!-- end -->\n"
    head, mark, rest = page.partition(start)
    _, end_mark, tail = rest.partition(end)
    assert mark, f"{PAGE.name} has no place for {campaign}"
    assert end_mark, f"the place for {campaign} has no end"
    table = f"| date | machine | cases | result |\n|---|---|---|---|\n{row}"
    return f"{head}{start}\n{table}\n{end}{tail}"
