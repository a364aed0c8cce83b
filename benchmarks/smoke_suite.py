"""P9: time of a smoke suite, compared with its slowest check.

.venv/bin/python benchmarks/smoke_suite.py mpi-cpu pytorch-cpu

Checks run in parallel, so a suite takes little longer than its slowest check: a job of two hosts, during
which the SageMaker Training Toolkit mostly sleeps. The seconds of a check count from its own start. Missing
images are built before the measurement.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bakehouse.builder.built_image import BuiltImage
from bakehouse.builder.verify import Outcome
from bakehouse.cluster import smoke
from bakehouse.cluster.smoke_report import SmokeReport
from bakehouse.engine.open_engine import open_engine
from bakehouse.engine.protocol import Engine
from bakehouse.pipeline.build import ensure_built
from bakehouse.plan.workspace import open_workspace, select
from benchmarks import harness
from benchmarks.harness import ROOT, Measure, Result, Spent

IMAGES = ("mpi-cpu", "pytorch-cpu")


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def measured(options: argparse.Namespace) -> Result:
    if not options.short:
        return measured_in(ROOT, options.images, options.rounds)
    with tempfile.TemporaryDirectory() as directory:
        harness.write_small_project(Path(directory))
        try:
            return measured_in(Path(directory), [harness.SMALL], 1)
        finally:
            harness.remove_images(harness.SMALL)


def measured_in(root: Path, names: Sequence[str], rounds: int) -> Result:
    built = ensure_built(select(open_workspace(root), names), say)
    suites: dict[str, list[Spent]] = {image.image.name: [] for image in built}
    checks: dict[str, list[dict[str, float]]] = {name: [] for name in suites}
    alone: dict[str, list[dict[str, float]]] = {name: [] for name in suites}
    same: list[str] = []
    with tempfile.TemporaryDirectory() as directory, open_engine(say) as engine:
        for _ in range(rounds):
            for image in built:
                seconds, spent = tried(engine, image, Path(directory))
                suites[image.image.name].append(spent)
                checks[image.image.name].append(seconds)
                tops = sorted((name for name in seconds if "." not in name), key=seconds.__getitem__)[-2:]
                again = [tried(engine, image, Path(directory), name)[0] for name in tops]
                alone[image.image.name].append({name: times[name] for times in again for name in times})
                # `tried` ends the benchmark if a check fails.
                repeated = sorted(name for name in alone[image.image.name][-1] if "." not in name)
                same.append(
                    harness.require_same(f"slowest checks of {image.image.name}", repeated, sorted(tops))
                )
    rows, notes = [], []
    for name, times in suites.items():
        took = harness.wall(times)
        for where, runs in (("its slowest check", checks[name]), ("the slowest of two alone", alone[name])):
            slowest = statistics.median(max(seconds.values()) for seconds in runs)
            rows.append(Measure("P9", f"{name}: the suite against {where}", took, slowest, most_ratio=1.3))
        last = sorted(checks[name][-1].items(), key=lambda check: -check[1])
        own = [f"{check} {seconds:.1f}" for check, seconds in last if "." not in check]
        notes.append(f"{name}, its last round: {', '.join(own)} s.")
    return Result(rows, {"suites": suites, "checks": checks, "alone": alone}, notes, same)


def tried(engine: Engine, image: BuiltImage, state: Path, *only: str) -> tuple[dict[str, float], Spent]:
    """Return the seconds of each check and of all; a failed check ends the benchmark."""
    reports: list[SmokeReport] = []
    spent = harness.spent(lambda: reports.append(smoke.smoke(engine, image, state, only=only, report=say)))
    [report] = reports
    if not report.passed:
        failed = [check.name for check in report.checks if check.outcome is Outcome.FAILED]
        sys.exit(f"{image.image.name} failed {', '.join(failed)}: so the times cannot be compared")
    # A report of some checks alone holds the others of the report before.
    checks = [check for check in report.checks if not only or check.name in only]
    return {check.name: check.seconds for check in checks if check.seconds}, spent


def main(arguments: list[str] | None = None) -> None:
    parser = harness.parser(__doc__, rounds=3)
    parser.add_argument("images", nargs="*", default=IMAGES, help=f"names ({', '.join(IMAGES)})")
    harness.run("smoke_suite", parser, measured, arguments)


if __name__ == "__main__":
    main()
