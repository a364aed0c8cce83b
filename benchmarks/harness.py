"""Framework of the benchmarks: interleaved rounds, medians, a table and a JSON file.

A benchmark is a file in this directory, run as `.venv/bin/python benchmarks/x.py`:

    from benchmarks import harness
    from benchmarks.harness import Measure, Result

    def measured(asked: argparse.Namespace) -> Result:
        jobs = {
            "ours": lambda: harness.command([*harness.BAKE, "build", *asked.images]),
            "bare": lambda: harness.command(["docker", "buildx", "bake", ...]),
        }
        rounds = harness.interleaved(jobs, asked.rounds)
        ours, bare = (harness.wall(rounds[name]) for name in jobs)
        return Result((Measure("P3", "nothing changed", ours, bare, most_ratio=1.5),), rounds)

    if __name__ == "__main__":
        parser = harness.parser(__doc__, rounds=5)
        parser.add_argument("images", nargs="*")
        harness.run("noop_build", parser, measured)

`harness.run` adds `--json` (default `build/benchmarks/<name>.json`), which contains `Result.rounds`, and
`--record`, which writes the table to docs/reference/benchmark-results.md. Machines are never idle, so each
round runs all jobs once, and CPU seconds are reported with the elapsed time. The CPU time of a build is the
engine's, which only `Spent.machine` counts.

`--short` runs one round with little work, in seconds. Tests run it to see that the benchmark works, and that
Bakehouse and the reference do the same work: `require_same` ends the benchmark if they do not.
"""

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from uv import find_uv_bin

from bakehouse.catalog.project import ProjectSettings
from bakehouse.registry import destination
from bakehouse.registry.local_registry import EmbeddedRegistry
from bakehouse.util.files import write_whole
from benchmarks import results_page

ROOT = Path(__file__).resolve().parent.parent
BAKE = (str(ROOT / "bake"),)

SMALL = "benchmark-small"
SMALL_RECIPE = """\
summary: Image of short benchmarks
base: {debian: "12"}
components: {python: "3.11"}
"""

Unit = Literal["s", "ms", "bytes", ""]


@dataclass(frozen=True)
class Spent:
    """Times of a job in seconds."""

    wall: float
    cpu: float
    """CPU time of this process and its finished children, without the engine."""
    machine: float
    """CPU time of all cores, including other programs."""


@dataclass(frozen=True)
class Measure:
    """Row of the table; `most` or `most_ratio` set a goal."""

    id: str
    """Goal in docs/explanation/benchmarks.md, such as `P3`. Empty for a row that explains another."""
    what: str
    ours: float
    against: float | None = None
    unit: Unit = "s"
    most: float | None = None
    """Goal of `ours`, in its unit."""
    most_ratio: float | None = None
    """Goal of ours ÷ against."""

    @property
    def ratio(self) -> float | None:
        return None if self.against is None or not self.against else self.ours / self.against

    @property
    def is_reached(self) -> bool | None:
        """Return whether the goal is met; None without a goal or without a value."""
        verdicts = []
        if self.most is not None:
            verdicts.append(self.ours <= self.most)
        if self.most_ratio is not None and self.ratio is not None:
            verdicts.append(self.ratio <= self.most_ratio)
        return all(verdicts) if verdicts else None


@dataclass(frozen=True)
class Result:
    """Results of a benchmark."""

    measures: Sequence[Measure]
    rounds: Mapping[str, Any] = field(default_factory=dict)
    """Numbers of each round by measurement: dataclasses or JSON values."""
    notes: Sequence[str] = ()
    """Sentences printed below the table."""
    same: Sequence[str] = ()
    """Sentences about the work of both sides, from `require_same`."""


@dataclass(frozen=True)
class Machine:
    """Machine and revision of a benchmark run."""

    cores: int
    memory_gib: float
    cpu: str
    kernel: str
    python: str
    commit: str
    is_dirty: bool
    """True if the working tree differs from the commit."""


def hpccm_python() -> str:
    """Return the Python interpreter with HPCCM; install it on first use."""
    directory = ROOT / "build" / "hpccm"
    python = str(directory / "bin" / "python")
    if not Path(python).exists():
        subprocess.run([find_uv_bin(), "venv", "--quiet", "--python", sys.executable, directory], check=True)
        install = [find_uv_bin(), "pip", "install", "--quiet", "--python", python, "hpccm", "setuptools"]
        subprocess.run(install, check=True)
    return python


def spent(job: Callable[[], object]) -> Spent:
    """Return the times of a call, including its child processes."""
    machine, cpu, wall = _machine_seconds(), _own_seconds(), time.monotonic()
    job()
    return Spent(time.monotonic() - wall, _own_seconds() - cpu, _machine_seconds() - machine)


def command(arguments: Sequence[str], *, cwd: Path = ROOT, env: Mapping[str, str] | None = None) -> Spent:
    """Return the times of a program; a failure ends the benchmark with its last output."""
    # As on machines of users, Python keeps the bytecode of modules.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", **(env or {})}

    def call() -> None:
        result = subprocess.run(
            arguments, cwd=cwd, env=environment, capture_output=True, text=True, check=False
        )
        if result.returncode:
            text = "\n".join((result.stdout + result.stderr).splitlines()[-20:])
            sys.exit(f"`{' '.join(arguments)}` ended with {result.returncode}:\n{text}")

    return spent(call)


def output(arguments: Sequence[str], *, cwd: Path = ROOT) -> str:
    """Return the output of a program."""
    return subprocess.run(arguments, cwd=cwd, check=True, stdout=subprocess.PIPE, text=True).stdout


def require_same(what: str, ours: object, reference: object) -> str:
    """Return a sentence about the same work of both sides; different work ends the benchmark."""
    if ours != reference:
        sys.exit(f"the two sides differ in {what}: {ours!r} and {reference!r}")
    assert ours, f"{what}: nothing was compared"
    return f"Both sides have the same {what}: {ours if isinstance(ours, int | str) else len(ours)}."  # type: ignore[arg-type]


def write_small_project(directory: Path, *, name: str = SMALL, settings: str = "", more: str = "") -> None:
    """Create a project with an image that a short run builds in seconds."""
    images = directory / "own" / "images"
    images.mkdir(parents=True, exist_ok=True)
    (directory / "pyproject.toml").write_text(f'[tool.bakehouse]\nrecipes = ["own"]\n{settings}')
    (images / f"{name}.yaml").write_text(SMALL_RECIPE + more)


def local_registry(directory: Path, port: int) -> EmbeddedRegistry:
    """Return the local registry of a user whose state is in a directory."""
    project = ProjectSettings(directory, (), registry_port=port, user_state=directory)
    return destination.local_registry(project, _say)


def remove_images(name: str) -> None:
    """Remove all tags of a benchmark's image from the engine."""
    names = output(["docker", "images", "--format", "{{.Repository}}:{{.Tag}}", f"bakehouse/{name}"]).split()
    if names:
        output(["docker", "image", "rm", "--force", *names])


def interleaved(
    jobs: Mapping[str, Callable[[], Spent]], rounds: int, report: Callable[[str], None] | None = None
) -> dict[str, list[Spent]]:
    """Run all jobs once in each round, in rotating order."""
    costs: dict[str, list[Spent]] = {name: [] for name in jobs}
    names = list(jobs)
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            costs[name].append(jobs[name]())
            (report or _say)(f"round {number + 1} of {rounds}: {name} {costs[name][-1].wall:.2f} s")
    return costs


def wall(costs: Iterable[Spent]) -> float:
    """Return the median elapsed time."""
    return statistics.median(cost.wall for cost in costs)


def cpu(costs: Iterable[Spent]) -> float:
    """Return the median CPU time."""
    return statistics.median(cost.cpu for cost in costs)


def table(measures: Sequence[Measure]) -> str:
    """Return a Markdown table that is also readable in a terminal."""
    head = ("", "measure", "ours", "against", "ratio", "goal", "reached")
    rows = [head, *(_row(measure) for measure in measures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])


def quantity(value: float, unit: Unit) -> str:
    """Return a number with its unit: `0.42 s`, `1.13 ms`, `472.8 MB`."""
    if unit == "bytes":
        for factor, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
            if value >= factor:
                return f"{value / factor:.1f} {name}"
        return f"{value:.0f} bytes"
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{digits}f} {unit}".rstrip()


def machine() -> Machine:
    """Return this machine, and the commit of this checkout."""
    return Machine(
        cores=os.cpu_count() or 1,
        memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        cpu=cpu_model(Path("/proc/cpuinfo").read_text()),
        kernel=platform.release(),
        python=platform.python_version(),
        commit=_git("rev-parse", "HEAD"),
        # Each benchmark of a series writes the page
        is_dirty=bool(_git("status", "--porcelain", "--", ".", f":!{results_page.NAME}")),
    )


def cpu_model(cpuinfo: str) -> str:
    """Return the model name of the CPU."""
    names = (line.partition(":")[2].strip() for line in cpuinfo.splitlines() if line.startswith("model name"))
    return next(names, "unknown")


def parser(description: str | None, rounds: int) -> argparse.ArgumentParser:
    """Return a parser with `--rounds`; `run` adds `--json` and `--record`."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=rounds, help=f"how often each is measured ({rounds})")
    add_short(parser)
    return parser


def add_short(parser: argparse.ArgumentParser) -> None:
    """Add the option for a run in seconds."""
    parser.add_argument(
        "--short", action="store_true", help="one round with little work, to test this benchmark"
    )


def run(
    name: str,
    parser: argparse.ArgumentParser,
    measured: Callable[[argparse.Namespace], Result],
    arguments: Sequence[str] | None = None,
) -> None:
    """Run a benchmark: parse the command line, measure, print the table, write the JSON file."""
    parser.add_argument("--json", type=Path, help=f"where the numbers go (build/benchmarks/{name}.json)")
    text = f"also write the results to {results_page.NAME}"
    parser.add_argument("--record", action="store_true", help=text)
    options = parser.parse_args(arguments)
    if options.short:
        if options.record:
            parser.error("--record needs a run without --short")
        options.rounds = 1
        name += "-short"
    options.json = options.json or ROOT / "build" / "benchmarks" / f"{name}.json"
    this_machine, began, load = machine(), datetime.now(UTC), os.getloadavg()
    result = measured(options)
    if options.short:
        if not result.same:
            sys.exit("the work of both sides was not compared")
        # Times of little work say nothing about the goals.
        measures = [replace(measure, most=None, most_ratio=None) for measure in result.measures]
        result = replace(result, measures=measures)
    seconds = (datetime.now(UTC) - began).total_seconds()
    document = {
        "name": name,
        "date": began.isoformat(timespec="seconds"),
        "seconds": round(seconds, 1),
        "asked": {key: str(value) for key, value in vars(options).items()},
        "machine": {**asdict(this_machine), "load_began": load, "load_ended": os.getloadavg()},
        "measures": [
            {**asdict(measure), "ratio": measure.ratio, "is_reached": measure.is_reached}
            for measure in result.measures
        ],
        "rounds": result.rounds,
        "notes": list(result.notes),
        "same": list(result.same),
    }
    write_whole(options.json, json.dumps(document, indent=1, default=asdict) + "\n")
    changed = ", changed since" if this_machine.is_dirty else ""
    cores = f"{this_machine.cores} cores of {this_machine.cpu}, {this_machine.memory_gib:g} GiB"
    loads = f"load {load[0]:.1f} when it began, {os.getloadavg()[0]:.1f} when it ended"
    run_text = f"{began:%Y-%m-%d %H:%M} UTC, {seconds:.0f} s, commit {this_machine.commit[:12]}{changed}"
    where = f"{cores}, Linux {this_machine.kernel}, Python {this_machine.python}; {loads}"
    remarks = (*result.notes, *result.same)
    print("\n".join((table(result.measures), *remarks, run_text, where)))
    if options.record:
        remark_list = "\n".join(f"- {remark}" for remark in remarks)
        results_page.record(name, f"{run_text}. {where}.\n\n{table(result.measures)}\n\n{remark_list}")


def _row(measure: Measure) -> tuple[str, ...]:
    goals = []
    if measure.most is not None:
        goals.append(f"≤ {quantity(measure.most, measure.unit)}")
    if measure.most_ratio is not None:
        goals.append(f"≤ {measure.most_ratio:g} times")
    return (
        measure.id,
        measure.what,
        quantity(measure.ours, measure.unit),
        "" if measure.against is None else quantity(measure.against, measure.unit),
        "" if measure.ratio is None else f"{measure.ratio:.3g}",
        ", ".join(goals),
        {None: "", True: "yes", False: "**no**"}[measure.is_reached],
    )


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _own_seconds() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def _machine_seconds() -> float:
    """Return the CPU seconds of all cores since the start of the machine."""
    user, nice, system, _idle, _iowait, irq, softirq = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:8]
    )
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, check=False, capture_output=True, text=True
    ).stdout.strip()
