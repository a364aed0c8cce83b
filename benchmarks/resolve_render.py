"""P4 and P5: resolve, plan and render an image in process; `render --check` of all images as a process.

.venv/bin/python benchmarks/resolve_render.py

HPCCM, installed into `build/hpccm` first, is measured for an image with the same components. It gets all
versions and checks none; Bakehouse chooses the versions and computes the keys of all stages. In-process times
are CPU times after a first pass over all images. An image *alone* shares no stage text with other images; *in
a row*, a shared stage is rendered once. For P5 all images are rendered into a separate project and then
compared.
"""

import argparse
import json
import re
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from bakehouse.catalog.recipe import Recipe
from bakehouse.plan import dockerfile
from bakehouse.plan.planner import make_plan
from bakehouse.plan.workspace import Workspace, open_workspace
from bakehouse.resolve.resolver import resolve
from benchmarks import harness
from benchmarks.harness import ROOT, Measure, Result, Spent

IN_HPCCM = {
    "nvidia-cuda": r"FROM nvidia/cuda:([\d.]+)-base",
    "cuda-compat": r"cuda-compat-(\d+-\d+)",
    "efa": r"aws-efa-installer-([\d.]+)\.tar",
    **{
        name: rf"[ '\"]{name}==([\d.]+)"
        for name in (
            "torch",
            "torchvision",
            "torchaudio",
            "mpi4py",
            "sagemaker-training",
            "sagemaker-pytorch-training",
        )
    },
}
"""Patterns of the versions in HPCCM's Dockerfile. Python and OpenSSH are those of the distribution."""
UNVERSIONED = {"python", "sshd", "jit", "sagemaker-drivers"}
"""Components without a version in HPCCM's Dockerfile: packages of the distribution, or no files."""
LIKE_THE_PEERS = "pytorch-2.10-cu128-py312-efa"
SHORT = ("mpi-cpu", "mpi5-cpu")
TIMES = 9
"""Runs of one image in a round; the median counts."""


@dataclass(frozen=True)
class Steps:
    """CPU milliseconds for one image, or the mean of many."""

    resolve: float
    plan: float
    render: float

    @property
    def whole(self) -> float:
        return self.resolve + self.plan + self.render


def timed(recipe: Recipe, workspace: Workspace) -> Steps:
    """Measure an image in a process that has loaded the catalogue."""
    marks = [time.process_time()]
    resolution = resolve(recipe, workspace.catalog)
    marks.append(time.process_time())
    plan = make_plan([resolution], workspace.templates, workspace.project.region, workspace.apt_locks)
    marks.append(time.process_time())
    dockerfile.render(plan, workspace.templates)
    marks.append(time.process_time())
    return Steps(*(1000 * (end - start) for start, end in pairwise(marks)))


def forget(workspace: Workspace) -> None:
    """Clear the caches of rendered stages and package lookups."""
    dockerfile.forget()
    for lock in workspace.apt_locks.suites.values():
        lock.forget()


def timed_alone(recipe: Recipe, workspace: Workspace, times: int) -> Steps:
    """Return the median of several runs, each with cleared caches."""
    steps = []
    for _ in range(times):
        forget(workspace)
        steps.append(timed(recipe, workspace))
    return middle(steps)


def middle(runs: list[Steps]) -> Steps:
    """Return the run with the median total."""
    return sorted(runs, key=lambda steps: steps.whole)[len(runs) // 2]


def in_a_row(recipes: list[Recipe], workspace: Workspace) -> Steps:
    """Return the mean of one pass over all images."""
    forget(workspace)
    runs = [timed(recipe, workspace) for recipe in recipes]
    return Steps(*(statistics.mean(steps) for steps in zip(*map(_numbers, runs), strict=True)))


def _told(steps: Steps) -> str:
    return f"resolve {steps.resolve:.2f}, plan {steps.plan:.2f}, render {steps.render:.2f}"


def _numbers(steps: Steps) -> tuple[float, ...]:
    return steps.resolve, steps.plan, steps.render


def versions(workspace: Workspace) -> dict[str, str]:
    """Return the versions of Bakehouse's image with the names of packages."""
    resolution = resolve(workspace.recipes[LIKE_THE_PEERS], workspace.catalog)
    choices = {
        choice.name: choice.candidate.release.version for choice in (resolution.base, *resolution.choices)
    }
    return {
        {"pytorch": "torch"}.get(name, name): str(version)
        for name, version in choices.items()
        if name not in UNVERSIONED
    }


def versions_of(text: str) -> dict[str, str]:
    """Return the versions in HPCCM's Dockerfile."""
    matches = {name: re.search(pattern, text) for name, pattern in IN_HPCCM.items()}
    return {name: match[1].replace("-", ".") for name, match in matches.items() if match}


def hpccm(python: str, count: int, given: dict[str, str]) -> tuple[dict[str, Any], Spent]:
    """Return the reported time of HPCCM for COUNT renderings in one process, and the time of the process."""
    messages: list[str] = []
    command = [python, str(ROOT / "benchmarks" / "hpccm_recipe.py"), str(count), json.dumps(given)]
    spent = harness.spent(lambda: messages.append(harness.output(command)))
    return json.loads(messages[0]), spent


def measured(options: argparse.Namespace) -> Result:
    workspace, python = open_workspace(ROOT), harness.hpccm_python()
    names = SHORT if options.short else options.images
    recipes = [recipe for recipe in workspace.recipes.values() if not names or recipe.name in names]
    given = versions(workspace)
    for recipe in recipes:
        timed(recipe, workspace)
    rounds: dict[str, Any] = {name: [] for name in ("row", "peers", "alone", "hpccm", "check", "hpccm_all")}
    with tempfile.TemporaryDirectory() as directory:
        project = Path(directory)
        (project / "pyproject.toml").write_text("[tool.bakehouse]\n")
        command = [*harness.BAKE, "render", *(names or ["*"])]
        harness.command(command, cwd=project)
        rendered = len([*project.glob("images/*/Dockerfile")])
        for number in range(options.rounds):
            rounds["row"].append(in_a_row(recipes, workspace))
            rounds["peers"].append(timed_alone(workspace.recipes[LIKE_THE_PEERS], workspace, TIMES))
            hpccm_report, _ = hpccm(python, TIMES, given)
            rounds["hpccm"].append(statistics.median(hpccm_report["milliseconds"]))
            rounds["alone"].append([timed_alone(recipe, workspace, 1).whole for recipe in recipes])
            rounds["check"].append(harness.command([*command, "--check"], cwd=project))
            rounds["hpccm_all"].append(hpccm(python, len(recipes), given)[1])
            print(f"round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)

    row, peers = middle(rounds["row"]), middle(rounds["peers"])
    peer_time = statistics.median(rounds["hpccm"])
    each = sorted(statistics.median(times) for times in zip(*rounds["alone"], strict=True))
    count, most = len(recipes), each[9 * len(each) // 10]
    measures = (
        Measure("P4", f"an image, {count} in a row, CPU", row.whole, peer_time, "ms", most=0.8),
        Measure("P4", f"{LIKE_THE_PEERS} alone, CPU", peers.whole, peer_time, "ms", most=1.0),
        Measure("", "the median image alone, CPU", statistics.median(each), unit="ms"),
        Measure("", "90 % of images alone take at most, CPU", most, unit="ms"),
        Measure(
            "P5",
            f"`render --check` of {count} images as a process",
            harness.wall(rounds["check"]),
            harness.wall(rounds["hpccm_all"]),
            most=0.6,
        ),
        Measure("", "its CPU", harness.cpu(rounds["check"]), harness.cpu(rounds["hpccm_all"])),
    )
    lines = len(hpccm_report["dockerfile"].splitlines())
    same = (
        harness.require_same("versions of components", given, versions_of(hpccm_report["dockerfile"])),
        harness.require_same("number of Dockerfiles", rendered, count),
    )
    notes = (
        f"In a row: {_told(row)}; {LIKE_THE_PEERS} alone: {_told(peers)} (ms).",
        f"Against HPCCM {hpccm_report['version']}, with every version given: {lines} lines.",
        f"HPCCM as a process writes one Dockerfile {count} times, and compares nothing.",
    )
    return Result(
        measures,
        {
            **rounds,
            "images": sorted({LIKE_THE_PEERS, *(recipe.name for recipe in recipes)}),
            "steps": {"row": asdict(row), "alone": asdict(peers)},
        },
        notes,
        same,
    )


def main(arguments: list[str] | None = None) -> None:
    parser = harness.parser(__doc__, rounds=5)
    parser.add_argument("images", nargs="*", help="names; none means all")
    harness.run("resolve_render", parser, measured, arguments)


if __name__ == "__main__":
    main()
