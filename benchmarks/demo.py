"""P11: the phases of `./bake demo` on a bare machine, and the same image by hand.

.venv/bin/python benchmarks/demo.py

In a fresh clone, `./bake` makes .venv, and `./bake demo` makes the base image, builds pytorch-cpu, tests and
pushes it, on an engine without images. Downloads are not cached; BAKEHOUSE_MIRRORS counts. By hand means
`docker build` of `benchmarks/monoliths/pytorch-cpu` with the same packages, on the same base image, and
`docker push`, without a test. The engine itself is installed before. Needs root.

`--short` compares the versions of the image with those of its Dockerfile by hand, and builds nothing.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bakehouse.plan.workspace import open_workspace, render_images, select
from benchmarks import harness
from benchmarks.cold_engine import ColdEngine, cold_engine
from benchmarks.fleet_build import Fleet, require_same_packages, supplied
from benchmarks.harness import ROOT, Measure, Result
from benchmarks.push_sharing import free_port

MONOLITHS = ROOT / "benchmarks" / "monoliths"
IMAGE = "pytorch-cpu"
PHASE = re.compile(r"^  (build|smoke|push) +(?:([\d.]+) s|(\d+):(\d\d))$", re.M)
BASE = re.compile(r"^FROM (bakehouse/debian:\S+) AS base$", re.M)


@contextmanager
def timed(name: str, seconds: dict[str, float]) -> Iterator[None]:
    began = time.monotonic()
    yield
    seconds[name] = time.monotonic() - began
    print(f"{name}: {seconds[name]:.0f} s", file=sys.stderr, flush=True)


def run(command: list[str], environment: dict[str, str], directory: Path) -> str:
    """Return the output of a command; a failure ends the benchmark."""
    variables = {**environment, "PYTHONDONTWRITEBYTECODE": "", "BAKEHOUSE_KEEP_REGISTRY": "0"}
    result = subprocess.run(
        command, cwd=directory, env=variables, capture_output=True, text=True, check=False
    )
    if result.returncode:
        sys.exit(f"`{' '.join(command)}` failed:\n{(result.stdout + result.stderr)[-4000:]}")
    return result.stdout


def demo(engine: ColdEngine, directory: Path) -> dict[str, float]:
    """Return the seconds of the phases of the demo."""
    seconds: dict[str, float] = {}
    clone = directory / "clone"
    with timed("clone and .venv", seconds):
        run(["git", "clone", "--quiet", str(ROOT), "clone"], engine.environment, directory)
        run(["./bake", "--list"], engine.environment, clone)
    port = {"BAKEHOUSE_REGISTRY_PORT": str(free_port())}
    output = run(["./bake", "demo"], {**engine.environment, **port}, clone)
    for name, short, minutes, rest in PHASE.findall(output):
        seconds[name] = float(short) if short else 60 * int(minutes) + int(rest)
    return seconds


def by_hand(engine: ColdEngine, directory: Path, registry: str) -> dict[str, float]:
    """Return the seconds of build and push."""
    base = BASE.search((ROOT / "images" / IMAGE / "Dockerfile").read_text())
    assert base
    seconds: dict[str, float] = {}
    tag = f"{registry}/{IMAGE}:by-hand"
    with supplied(engine, Fleet(directory)) as files:
        command = ["docker", "build", "--no-cache", "--tag", tag, "--build-arg", f"BASE={base[1]}"]
        command += [f"--build-arg={name}={value}" for name, value in files.arguments.items()]
        command += [f"--secret=id={name},src={path}" for name, path in files.secrets.items()]
        command += ["--build-context", f"start-job={ROOT / 'recipes/components/sshd/files'}"]
        command += ["--file", str(MONOLITHS / IMAGE / "Dockerfile"), str(MONOLITHS)]
        with timed("docker build", seconds):
            run(command, engine.environment, ROOT)
    with timed("docker push", seconds):
        run(["docker", "push", "--quiet", tag], engine.environment, ROOT)
    return seconds


def compare() -> Result:
    """Plan and render the image, and compare its versions with the Dockerfile by hand; build nothing."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "pyproject.toml").write_text("[tool.bakehouse]\n")
        workspace = open_workspace(directory)
        render_images(workspace, select(workspace, [IMAGE]).plan, lambda _: None)
        rendered = directory / "images" / IMAGE
        base = BASE.search((rendered / "Dockerfile").read_text())
        assert base
        return Result(
            (),
            notes=(f"Base image: {base[1]}.",),
            same=(require_same_packages(IMAGE, rendered, MONOLITHS / IMAGE),),
        )


def measured(options: argparse.Namespace) -> Result:
    if options.short:
        return compare()
    directory = Path(tempfile.mkdtemp(dir="/var/tmp"))
    try:
        with cold_engine(directory) as engine:
            ours = demo(engine, directory)
            with harness.local_registry(directory, free_port()) as registry:
                hand = by_hand(engine, directory, registry.host)
    finally:
        shutil.rmtree(directory)
    rows = [Measure("P11", "the demo", sum(ours.values()), sum(hand.values()), most=150)]
    rows += [Measure("", f"the demo: {name}", seconds) for name, seconds in ours.items()]
    rows += [Measure("", f"by hand: {name}", seconds) for name, seconds in hand.items()]
    return Result(tuple(rows), {"load": os.getloadavg()[0]})


if __name__ == "__main__":
    harness.run("demo", harness.parser(__doc__, rounds=1), measured)
