"""P12: from one edited line of training code, or one more requirement, to a tested image.

.venv/bin/python benchmarks/own_code.py

A project with the components of pytorch-cpu, code, requirements and a smoke test of its own. For P12, each
round edits a line, builds and runs the smoke test; the reference runs the smoke test once more. For P12b,
each round adds another small package, locks and builds; as the reference, HPCCM writes a Dockerfile
that starts from pytorch-cpu and installs the same locked requirements with pip, and `docker build` builds it.
For P19, a candidate is in a registry on loopback; each round locks another package, and then releases it with
a DOCKER_HOST that no engine answers. For P20, `bake lock` has nothing to do.
"""

import argparse
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from itertools import count, cycle
from pathlib import Path

from bakehouse.builder.build_inputs import build_inputs
from bakehouse.catalog.project import ProjectSettings
from benchmarks import harness
from benchmarks.harness import ROOT, Measure, Result, Spent
from benchmarks.local_index import GATEWAY, over_http
from benchmarks.push_sharing import free_port

NAME = "benchmark-own-code"
REQUIREMENTS = ("transformers", "datasets", "accelerate", "scikit-learn")
SMALL = ("humanize", "tabulate", "toolz", "blinker", "cachetools", "termcolor", "more-itertools")
"""Packages without requirements; each round adds another one, so that no step is cached."""
SMOKE = [*harness.BAKE, "smoke", NAME, "--check", "user_code"]
PACKAGES = ["python3", "-m", "pip", "--python", "/opt/venv/bin/python", "list", "--format", "freeze"]


def write_project(project: Path, image: str, requirements: Sequence[str]) -> None:
    """Create the project; a short run has few requirements and no PyTorch."""
    (project / "own" / "images").mkdir(parents=True)
    (project / "pyproject.toml").write_text('[tool.bakehouse]\nrecipes = ["own"]\n')
    (project / "src").mkdir()
    library = "torch" if image == "pytorch-cpu" else "numpy"
    code = f"import {library}\n\nprint({library}.ones(3).sum())\n"
    (project / "src" / "train.py").write_text(code)
    recipe = (ROOT / "recipes" / "images" / f"{image}.yaml").read_text()
    # A recipe for several platforms is several images.
    recipe = re.sub(r"^platforms: .*\n", "", recipe, flags=re.M)
    own = (
        "requirements: ../../requirements.txt\n"
        "code: {directory: ../../src, entry_point: train.py}\n"
        "smoke: {hosts: 1}\n"
    )
    (project / "own" / "images" / f"{NAME}.yaml").write_text(recipe + own)
    require(project, requirements)


def require(project: Path, names: Sequence[str]) -> None:
    (project / "requirements.txt").write_text("".join(f"{name}\n" for name in names))


def edit(project: Path) -> None:
    with (project / "src" / "train.py").open("a") as stream:
        stream.write("print()\n")


def packages(reference: str) -> list[str]:
    """Return the Python packages of an image with their versions."""
    command = [
        "docker",
        "run",
        "--rm",
        "--network=none",
        "--entrypoint",
        PACKAGES[0],
        reference,
        *PACKAGES[1:],
    ]
    return sorted(harness.output(command).split())


def measured(options: argparse.Namespace) -> Result:
    project = Path(tempfile.mkdtemp())
    bake = [*harness.BAKE]
    image, few = ("mpi-cpu", ("tqdm",)) if options.short else ("pytorch-cpu", REQUIREMENTS)
    write_project(project, image, few)

    def run(*commands: list[str]) -> Spent:
        return harness.spent(lambda: [harness.command(command, cwd=project) for command in commands])

    def replaced() -> Spent:
        require(project, (*few, "six<1.17"))
        run([*bake, "lock", NAME])
        spent = run([*bake, "lock", NAME])
        require(project, few)
        run([*bake, "lock", NAME], [*bake, "build", NAME])
        return spent

    same: list[str] = []
    run([*bake, "build", image])
    if not options.short:
        run([*bake, "lock", NAME], [*bake, "build", NAME], SMOKE)
    added = cycle(SMALL)
    build_number = count()

    def edited() -> Spent:
        edit(project)
        return run([*bake, "build", NAME], SMOKE)

    def required() -> Spent:
        require(project, (*few, next(added)))
        return run([*bake, "lock", NAME], [*bake, "build", NAME])

    key, state = project / "signing.pem", project / "registry"
    harness.output(
        ["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", str(key)]
    )
    signed = {"BAKEHOUSE_SIGNING_KEY": str(key)}

    def without_engine() -> Spent:
        where = [NAME, "--registry", f"{registry.host}/benchmark"]
        harness.command([*bake, "push", *where, "--candidate"], cwd=project, env=signed)
        require(project, (*few, next(added)))
        run([*bake, "lock", NAME])
        unreachable = {**signed, "DOCKER_HOST": "tcp://127.0.0.1:1"}
        spent = harness.command([*bake, "release", *where], cwd=project, env=unreachable)
        run([*bake, "build", NAME])
        return spent

    gateway = harness.output(["docker", "network", "inspect", "bridge", "--format", GATEWAY]).strip()
    with (
        harness.local_registry(state, free_port()) as registry,
        over_http(gateway) as environment,
        build_inputs(
            ProjectSettings(project, (), state_directory=project / "state"), say, environment=environment
        ) as inputs,
    ):
        secrets = [f"--secret=id={name},src={path}" for name, path in inputs.secrets.items()]
        secrets += [f"--build-arg={name}={value}" for name, value in inputs.arguments.items()]
        by_hpccm = ["docker", "build", "--quiet", "--tag", f"bakehouse/{NAME}:hpccm", *secrets, "."]
        python = harness.hpccm_python()

        def write_and_build() -> None:
            command = [python, str(ROOT / "benchmarks" / "hpccm_project.py"), f"bakehouse/{image}"]
            (project / "Dockerfile").write_text(harness.output(command))
            harness.command(by_hpccm, cwd=project)

        def built_by_hpccm() -> Spent:
            requirements = (project / "requirements.txt").read_text()
            lines = (project / "requirements.txt.lock").read_text()
            # The comment changes the file, so that the packages are installed again
            (project / "requirements.txt").write_text(f"# {next(build_number)}\n{lines}")
            edit(project)
            spent = harness.spent(write_and_build)
            ours, theirs = (packages(f"bakehouse/{NAME}:{tag}") for tag in ("latest", "hpccm"))
            same[:] = [harness.require_same("Python packages", ours, theirs)]
            (project / "requirements.txt").write_text(requirements)
            return spent

        jobs: dict[str, Callable[[], Spent]] = {
            "requirement": required,
            "HPCCM": built_by_hpccm,
            "edited line": edited,
            "smoke test alone": lambda: run(SMOKE),
            "lock": lambda: run([*bake, "lock", NAME]),
            "lock with a replaced package": replaced,
            "without an engine": without_engine,
        }
        try:
            rounds = harness.interleaved(jobs, options.rounds)
        finally:
            harness.remove_images(NAME)
            shutil.rmtree(project)
    wall = {name: harness.wall(spent) for name, spent in rounds.items()}
    return Result(
        (
            Measure(
                "P12",
                "one line of code edited: build and smoke test",
                wall["edited line"],
                wall["smoke test alone"],
                most_ratio=1.5,
            ),
            Measure(
                "P12b",
                "one requirement changed: lock and build",
                wall["requirement"],
                wall["HPCCM"],
                most_ratio=0.5,
            ),
            Measure(
                "P19",
                "one requirement changed: release without an engine",
                wall["without an engine"],
                most=1.5,
            ),
            Measure("P20", "lock with nothing to do", wall["lock"], most=1.0),
            Measure(
                "P20", "the same with a replaced package", wall["lock with a replaced package"], most=1.0
            ),
        ),
        rounds,
        same=same,
    )


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    harness.run("own_code", harness.parser(__doc__, rounds=3), measured)
