"""The frame of the benchmarks: rounds in turn, medians, a table for people and a JSON file for programs.

A benchmark is a file of this folder, run as `.venv/bin/python benchmarks/x.py`:

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

`harness.run` adds `--json` (default `build/benchmarks/<name>.json`); whatever is in `Result.rounds` gets
there as it is. A machine is never quiet: everything is measured in one run, each round does every job once,
and beside the wall clock stand the CPU's seconds. Those of a build are the engine's: only `Spent.machine`
counts them.
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
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from bakehouse.util.files import write_whole

ROOT = Path(__file__).resolve().parent.parent
BAKE = (str(ROOT / "bake"),)

Unit = Literal["s", "ms", "bytes", ""]


@dataclass(frozen=True)
class Spent:
    """What a job took, in seconds."""

    wall: float
    cpu: float
    """Of this process and the children that it waited for: not of an engine that worked for them."""
    machine: float
    """That all cores of the machine were busy with anything, other programs' work among it."""


@dataclass(frozen=True)
class Measure:
    """A row of the table; with `most` or `most_ratio` it has a goal."""

    id: str
    """Goal in docs/explanation/benchmarks.md, such as `P3`. Empty for a row that explains another."""
    what: str
    ours: float
    against: float | None = None
    unit: Unit = "s"
    most: float | None = None
    """The goal of `ours` itself, in its unit."""
    most_ratio: float | None = None
    """The goal of ours ÷ against."""

    @property
    def ratio(self) -> float | None:
        return None if self.against is None or not self.against else self.ours / self.against

    @property
    def is_reached(self) -> bool | None:
        """None where there is no goal, or nothing to hold against it."""
        found = []
        if self.most is not None:
            found.append(self.ours <= self.most)
        if self.most_ratio is not None and self.ratio is not None:
            found.append(self.ratio <= self.most_ratio)
        return all(found) if found else None


@dataclass(frozen=True)
class Result:
    """What a benchmark found."""

    measures: Sequence[Measure]
    rounds: Mapping[str, Any] = field(default_factory=dict)
    """Each round's own numbers, by what was measured: dataclasses, or what JSON takes."""
    notes: Sequence[str] = ()
    """Sentences printed below the table."""


@dataclass(frozen=True)
class Machine:
    """Where and of what a benchmark was run."""

    cores: int
    memory_gib: float
    cpu: str
    kernel: str
    python: str
    commit: str
    is_dirty: bool
    """Whether the working tree differed from the commit."""


def spent(job: Callable[[], object]) -> Spent:
    """What a call took, with the processes that it waited for."""
    machine, cpu, wall = _machine_seconds(), _own_seconds(), time.monotonic()
    job()
    return Spent(time.monotonic() - wall, _own_seconds() - cpu, _machine_seconds() - machine)


def command(words: Sequence[str], *, cwd: Path = ROOT, env: Mapping[str, str] | None = None) -> Spent:
    """What a program took; the benchmark ends with its last words where it fails."""

    def call() -> None:
        done = subprocess.run(
            words, cwd=cwd, env={**os.environ, **(env or {})}, capture_output=True, text=True, check=False
        )
        if done.returncode:
            told = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
            sys.exit(f"`{' '.join(words)}` ended with {done.returncode}:\n{told}")

    return spent(call)


def output(words: Sequence[str]) -> str:
    """What a program prints, run in the checkout."""
    return subprocess.run(words, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def interleaved(
    jobs: Mapping[str, Callable[[], Spent]], rounds: int, say: Callable[[str], None] | None = None
) -> dict[str, list[Spent]]:
    """Every job once a round, each time in another order: none is always the one after the other."""
    found: dict[str, list[Spent]] = {name: [] for name in jobs}
    names = list(jobs)
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            found[name].append(jobs[name]())
            (say or _say)(f"round {number + 1} of {rounds}: {name} {found[name][-1].wall:.2f} s")
    return found


def wall(found: Iterable[Spent]) -> float:
    """The median of the wall clock's seconds."""
    return statistics.median(one.wall for one in found)


def cpu(found: Iterable[Spent]) -> float:
    """The median of the CPU's seconds."""
    return statistics.median(one.cpu for one in found)


def table(measures: Sequence[Measure]) -> str:
    """Markdown that is a table in a terminal too."""
    head = ("", "measure", "ours", "against", "ratio", "goal", "reached")
    rows = [head, *(_row(one) for one in measures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])


def quantity(value: float, unit: Unit) -> str:
    """A number as a person reads it: `0.42 s`, `1.13 ms`, `472.8 MB`."""
    if unit == "bytes":
        for factor, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
            if value >= factor:
                return f"{value / factor:.1f} {name}"
        return f"{value:.0f} bytes"
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{digits}f} {unit}".rstrip()


def machine() -> Machine:
    """This machine, and the commit of this checkout."""
    return Machine(
        cores=len(os.sched_getaffinity(0)),
        memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        cpu=cpu_model(Path("/proc/cpuinfo").read_text()),
        kernel=platform.release(),
        python=platform.python_version(),
        commit=_git("rev-parse", "HEAD"),
        is_dirty=bool(_git("status", "--porcelain")),
    )


def cpu_model(cpuinfo: str) -> str:
    """What /proc/cpuinfo calls the first core."""
    names = (line.partition(":")[2].strip() for line in cpuinfo.splitlines() if line.startswith("model name"))
    return next(names, "unknown")


def parser(description: str | None, rounds: int) -> argparse.ArgumentParser:
    """A command line with `--rounds`; `run` adds `--json`."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--rounds", type=int, default=rounds, help=f"how often each is measured ({rounds})")
    return made


def run(
    name: str,
    parser: argparse.ArgumentParser,
    measured: Callable[[argparse.Namespace], Result],
    words: Sequence[str] | None = None,
) -> None:
    """The whole of a benchmark: reads the command line, measures, prints the table, writes the JSON."""
    default = ROOT / "build" / "benchmarks" / f"{name}.json"
    parser.add_argument("--json", type=Path, default=default, help="where the numbers go")
    asked = parser.parse_args(words)
    here, began, load = machine(), datetime.now(UTC), os.getloadavg()
    result = measured(asked)
    seconds = (datetime.now(UTC) - began).total_seconds()
    told = {
        "name": name,
        "date": began.isoformat(timespec="seconds"),
        "seconds": round(seconds, 1),
        "asked": {key: str(value) for key, value in vars(asked).items()},
        "machine": {**asdict(here), "load_began": load, "load_ended": os.getloadavg()},
        "measures": [
            {**asdict(one), "ratio": one.ratio, "is_reached": one.is_reached} for one in result.measures
        ],
        "rounds": result.rounds,
        "notes": list(result.notes),
    }
    write_whole(asked.json, json.dumps(told, indent=1, default=asdict) + "\n")
    print(table(result.measures))
    for note in result.notes:
        print(note)
    dirty = ", changed since" if here.is_dirty else ""
    print(f"{began:%Y-%m-%d %H:%M} UTC, {seconds:.0f} s, commit {here.commit[:12]}{dirty}")
    cores = f"{here.cores} cores of {here.cpu}, {here.memory_gib:g} GiB"
    loads = f"load {load[0]:.1f} when it began, {os.getloadavg()[0]:.1f} when it ended"
    print(f"{cores}, Linux {here.kernel}, Python {here.python}; {loads}")


def _row(one: Measure) -> tuple[str, ...]:
    goals = []
    if one.most is not None:
        goals.append(f"≤ {quantity(one.most, one.unit)}")
    if one.most_ratio is not None:
        goals.append(f"≤ {one.most_ratio:g} times")
    return (
        one.id,
        one.what,
        quantity(one.ours, one.unit),
        "" if one.against is None else quantity(one.against, one.unit),
        "" if one.ratio is None else f"{one.ratio:.3g}",
        ", ".join(goals),
        {None: "", True: "yes", False: "**no**"}[one.is_reached],
    )


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _own_seconds() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def _machine_seconds() -> float:
    """Seconds that all cores were busy since the machine started."""
    user, nice, system, _idle, _iowait, irq, softirq = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:8]
    )
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def _git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, check=False, capture_output=True, text=True
    ).stdout.strip()
