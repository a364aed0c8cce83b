"""P9: how long a smoke suite takes, against the slowest of its checks.

.venv/bin/python benchmarks/smoke_suite.py mpi-cpu pytorch-cpu

Checks run beside each other, so that a suite takes little more than its slowest: a job of two hosts, most of
which the toolkit sleeps. A check's seconds are those from its own start, among the others. What is not built
yet is built before it is measured.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from bakehouse import daemon, smoke, workflow
from bakehouse.workspace import open_workspace
from benchmarks import harness
from benchmarks.harness import ROOT, Measure, Result, Spent

IMAGES = ("mpi-cpu", "pytorch-cpu")


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def measured(asked: argparse.Namespace) -> Result:
    workspace = open_workspace(ROOT)
    found: dict[str, list[Spent]] = {}
    checks: dict[str, list[dict[str, float]]] = {}
    built = workflow.built_images(workspace, asked.images, say)
    with tempfile.TemporaryDirectory() as folder, workflow.engine(say, daemon.Feature.LOCAL) as engine:
        for _ in range(asked.rounds):
            for one in built:
                seen: list[smoke.SmokeReport] = []

                def suite(one: workflow.BuiltImage = one, seen: list[smoke.SmokeReport] = seen) -> None:
                    seen.append(smoke.smoke(engine, one, Path(folder), progress=say))

                found.setdefault(one.image.name, []).append(harness.spent(suite))
                [report] = seen
                if not report.passed:
                    failed = [check.name for check in report.checks if check.outcome is smoke.Outcome.FAILED]
                    sys.exit(f"{one.image.name} failed {', '.join(failed)}: that is no time to compare with")
                checks.setdefault(one.image.name, []).append(
                    {check.name: check.seconds for check in report.checks if check.seconds}
                )
    rows, notes = [], []
    for name, times in found.items():
        slowest = [max(seconds.values()) for seconds in checks[name]]
        rows.append(
            Measure(
                "P9",
                f"{name}: the suite against its slowest check",
                harness.wall(times),
                statistics.median(slowest),
                most_ratio=1.3,
            )
        )
        last = sorted(checks[name][-1].items(), key=lambda check: -check[1])
        own = [f"{check} {seconds:.1f}" for check, seconds in last if not check.startswith("components.")]
        notes.append(f"{name}, its last round: {', '.join(own)} s.")
    return Result(rows, {"suites": found, "checks": checks}, notes)


def main(words: list[str] | None = None) -> None:
    parser = harness.parser(__doc__, rounds=3)
    parser.add_argument("images", nargs="*", default=IMAGES, help=f"names ({', '.join(IMAGES)})")
    harness.run("smoke_suite", parser, measured, words)


if __name__ == "__main__":
    main()
