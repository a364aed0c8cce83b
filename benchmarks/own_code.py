"""P12: from one edited line of training code, or one more requirement, to a tested image.

.venv/bin/python benchmarks/own_code.py

A project with the components of pytorch-cpu, code, requirements and a smoke test of its own. For P12, each
round edits a line, builds and runs the smoke test; the reference runs the smoke test once more. For P12b,
each round adds or removes one small package, locks and builds; the reference is a Dockerfile that starts from
pytorch-cpu and installs the same locked requirements with pip.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bakehouse.builder.build_inputs import build_inputs
from benchmarks import harness
from benchmarks.harness import ROOT, Measure, Result, Spent

NAME = "benchmark-own-code"
REQUIREMENTS = ("transformers", "datasets", "accelerate", "scikit-learn")
SMALL = "humanize"
SMOKE = [*harness.BAKE, "smoke", NAME, "--check", "user_code"]
DOCKERFILE = """\
FROM bakehouse/pytorch-cpu
COPY requirements.txt /tmp/
RUN --mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=secret,id=ca \\
    python3 -m pip --python /opt/venv/bin/python install --no-cache-dir -r /tmp/requirements.txt
COPY src/ /opt/ml/code/
"""


def write_project(project: Path) -> None:
    (project / "own" / "images").mkdir(parents=True)
    (project / "src").mkdir()
    (project / "pyproject.toml").write_text('[tool.bakehouse]\nrecipes = ["own"]\n')
    (project / "src" / "train.py").write_text("import torch\n\nprint(torch.ones(3).sum())\n")
    (project / "Dockerfile").write_text(DOCKERFILE)
    recipe = (ROOT / "recipes" / "images" / "pytorch-cpu.yaml").read_text()
    own = (
        "requirements: ../../requirements.txt\n"
        "code: {directory: ../../src, entry_point: train.py}\n"
        "smoke: {hosts: 1}\n"
    )
    (project / "own" / "images" / f"{NAME}.yaml").write_text(recipe + own)
    require(project, small=False)


def require(project: Path, *, small: bool) -> None:
    names = (*REQUIREMENTS, *([SMALL] if small else []))
    (project / "requirements.txt").write_text("".join(f"{name}\n" for name in names))


def edit(project: Path) -> None:
    with (project / "src" / "train.py").open("a") as stream:
        stream.write("print()\n")


def measured(options: argparse.Namespace) -> Result:
    project = Path(tempfile.mkdtemp())
    bake = [*harness.BAKE]
    write_project(project)

    def run(*commands: list[str]) -> Spent:
        return harness.spent(lambda: [harness.command(command, cwd=project) for command in commands])

    run([*bake, "build", "pytorch-cpu"], [*bake, "lock", NAME], [*bake, "build", NAME], SMOKE)
    is_small = False

    def edited() -> Spent:
        edit(project)
        return run([*bake, "build", NAME], SMOKE)

    def required() -> Spent:
        nonlocal is_small
        is_small = not is_small
        require(project, small=is_small)
        return run([*bake, "lock", NAME], [*bake, "build", NAME])

    with build_inputs(state=project / "state", mirrors=(), ca=None, report=say) as inputs:
        secrets = [f"--secret=id={name},src={path}" for name, path in inputs.secrets.items()]
        by_hand = ["docker", "build", "--quiet", "--tag", f"bakehouse/{NAME}:by-hand", *secrets, "."]

        def handwritten() -> Spent:
            lines = (project / "requirements.txt.lock").read_text()
            (project / "requirements.txt").write_text(f"# {is_small}\n{lines}")
            edit(project)
            spent = run(by_hand)
            require(project, small=is_small)
            return spent

        jobs: dict[str, Callable[[], Spent]] = {
            "edited line": edited,
            "smoke test alone": lambda: run(SMOKE),
            "requirement": required,
            "by hand": handwritten,
        }
        try:
            rounds = harness.interleaved(jobs, options.rounds)
        finally:
            tags = harness.output(
                ["docker", "images", "--format", "{{.Repository}}:{{.Tag}}", f"bakehouse/{NAME}"]
            )
            harness.output(["docker", "image", "rm", "--force", *tags.split()])
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
                wall["by hand"],
                most_ratio=0.5,
            ),
        ),
        rounds,
    )


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    harness.run("own_code", harness.parser(__doc__, rounds=3), measured)
