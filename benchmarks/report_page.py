"""The page of `bake report` for 300 images, in a headless Chromium on this machine.

.venv/bin/python benchmarks/report_page.py

The images are Bakehouse's own, some of them again under another name, each with generated
releases. A view is measured from the click to the next frame that shows it.
"""

import argparse
import statistics
import sys
import tempfile
from dataclasses import astuple, dataclass, replace
from pathlib import Path

from bakehouse.commands.report.fleet import Fleet, ReleaseRow, read_fleet
from bakehouse.commands.report.page import render
from bakehouse.ledger.release_changes import Change
from bakehouse.plan.workspace import open_workspace
from benchmarks import harness
from benchmarks.harness import ROOT, Measure, Result
from tests.support.browser import Browser, find_program, open_browser

RELEASES = 5
LOAD = "performance.timing.loadEventEnd - performance.timing.navigationStart"
VIEWS = {
    "the view of an image": "document.querySelector('#fleet tbody a').click()",
    "the timeline": "document.querySelector('[href=\"#timeline\"]').click()",
    "the list, filtered by name": (
        "const input = document.querySelector('[name=name]'); input.value = 'cpu';"
        "input.dispatchEvent(new Event('input', {bubbles: true}))"
    ),
}
FRAME = """
new Promise((done) => {{
  const start = performance.now();
  {action};
  requestAnimationFrame(() => setTimeout(() => done(performance.now() - start)));
}})
"""


def generated(fleet: Fleet, count: int) -> Fleet:
    """Return a fleet of a number of images, each with generated releases."""
    images = []
    for number in range(count):
        image = fleet.images[number % len(fleet.images)]
        name = image.name if number < len(fleet.images) else f"{image.name}-{number}"
        images.append(replace(image, name=name, releases=_releases(name)))
    return replace(fleet, images=tuple(images))


def _releases(image: str) -> tuple[ReleaseRow, ...]:
    releases = [
        ReleaseRow(
            date=f"2026-{month:02}-01",
            image_uri=f"registry.example/{image}@sha256:{month:064}",
            tags=(f"{image}-2026{month:02}01",),
            bytes=595_000_000,
            revision=f"{month:040}",
            state="release",
            is_current=month == RELEASES,
            checks=(("components", "passed"),),
            parts=(("pytorch", f"2.{month}.0 cpu-py311"),),
            since=f"2026-{month - 1:02}-01" if month > 1 else "",
            changes=(Change("pytorch", f"2.{month - 1}.0", f"2.{month}.0", "component"),)
            if month > 1
            else (),
        )
        for month in range(RELEASES, 0, -1)
    ]
    return tuple(releases)


@dataclass(frozen=True)
class Shown:
    """Milliseconds until something is shown."""

    wall: float
    cpu: float
    """CPU time of the browser's process of the page."""


ROWS = "document.querySelectorAll('#fleet tbody tr').length"


def times(browser: Browser, page: Path, rounds: int) -> dict[str, list[Shown]]:
    """Return the times of each round until the page and its views are shown."""
    browser.call("Performance.enable")
    spent: dict[str, list[Shown]] = {"the page": [], **{name: [] for name in VIEWS}}
    for _ in range(rounds):
        for name, action in VIEWS.items():
            browser.call("Page.navigate", url="about:blank")
            before = cpu(browser)
            browser.open(page)
            loaded = cpu(browser)
            if name == next(iter(VIEWS)):
                spent["the page"].append(Shown(browser.evaluate(LOAD), loaded - before))
            wall = browser.evaluate(FRAME.format(action=action))
            spent[name].append(Shown(wall, cpu(browser) - loaded))
    return spent


def cpu(browser: Browser) -> float:
    """Return the CPU time of the page's process so far."""
    metrics = browser.call("Performance.getMetrics")["metrics"]
    return next(1000 * float(metric["value"]) for metric in metrics if metric["name"] == "ProcessTime")


def measured(options: argparse.Namespace) -> Result:
    program = find_program()
    if program is None:
        sys.exit("no Chromium on this machine: `apt-get install chromium`")
    count = 3 if options.short else options.images
    content = render(generated(read_fleet(open_workspace(ROOT), ["*"]), count))
    with tempfile.TemporaryDirectory() as temporary:
        page = Path(temporary) / "index.html"
        page.write_bytes(content)
        with open_browser(program, Path(temporary) / "profile") as browser:
            browser.open(page)
            same = harness.require_same("number of images", browser.evaluate(ROWS), count)
            rounds = times(browser, page, options.rounds)
    images = f"{count:,} images"
    rows: list[Measure] = []
    for name, spent in rounds.items():
        wall, cpu = (statistics.median(values) for values in zip(*map(astuple, spent), strict=True))
        rows.append(Measure("P14", f"{name}, {images}", wall, unit="ms", most=1000))
        rows.append(Measure("", "the same, CPU", cpu, unit="ms"))
    return Result(
        [*rows, Measure("", f"size of the page, {images}", len(content), unit="bytes")], rounds, same=(same,)
    )


def main(arguments: list[str] | None = None) -> None:
    parser = harness.parser(__doc__, rounds=5)
    parser.add_argument("--images", type=int, default=300)
    harness.run("report_page", parser, measured, arguments)


if __name__ == "__main__":
    main()
