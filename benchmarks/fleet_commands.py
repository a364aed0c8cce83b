"""Commands without work to do, for projects of 12, 60 and 300 small images.

.venv/bin/python benchmarks/fleet_commands.py [--engine]

Each team has a recipe of four images (two versions of Python and of Debian) with training code. The locks
are written here, so that no package index is needed. After one package has changed in all locks, the files of
`git diff` have to be two of each image, and the locks; its bytes are measured. With `--engine`, images
without requirements are built, and then `build` and `clean` are measured without work to do.
"""

import argparse
import functools
import hashlib
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks import harness
from benchmarks.harness import Measure, Result, Spent

COUNTS = (12, 60, 300)
COMMANDS = ("lock", "render --check", "plan --from HEAD", "diff --from HEAD", "report")
ENGINE_COMMANDS = ("build", "clean")
BUILT = """\
summary: Trains model {number}
base: {{debian: "12"}}
components: {{python: "3.11"}}
code: {{directory: ../../src, entry_point: train{number}.py}}
"""
MAX_DIFF_BYTES = 2_500
"""Bytes of `git diff` for each image after one package has changed."""
MAX_SECONDS = 2.0
"""CPU seconds for each 100 images, in addition to those of the smallest project."""
RECIPE = """\
summary: Trains models of team {team}
name: team{team}-py${{python|tag}}-deb${{debian}}
matrix: {{python: ["3.11", "3.13"], debian: ["12", "13"]}}
base: {{debian: "${{debian}}"}}
components: {{python: "${{python}}"}}
requirements: ../../locks/team{team}.lock
code: {{directory: ../../src, entry_point: train.py}}
"""


def write_project(root: Path, images: int) -> None:
    """Create and commit a project with rendered images."""
    for name in ("recipes/images", "locks", "src"):
        (root / name).mkdir(parents=True)
    (root / "pyproject.toml").write_text('[tool.bakehouse]\nrecipes = ["recipes"]\n')
    (root / ".gitignore").write_text("build/\n")
    (root / "src/train.py").write_text("pass\n")
    for team in range(images // 4):
        (root / f"recipes/images/team{team}.yaml").write_text(RECIPE.format(team=team))
    write_locks(root, images, "1.0")
    bake(root, "render")
    for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "x"]):
        git(root, *words)


def write_built_project(root: Path, images: int) -> None:
    """Create a project and build its images, which have the same stages and their own entry point."""
    for name in ("recipes/images", "src"):
        (root / name).mkdir(parents=True)
    (root / "pyproject.toml").write_text('[tool.bakehouse]\nrecipes = ["recipes"]\n')
    for number in range(images):
        (root / f"src/train{number}.py").write_text("pass\n")
        (root / f"recipes/images/fleet{images}-{number}.yaml").write_text(BUILT.format(number=number))
    bake(root, "build")


def remove_images(pattern: str) -> None:
    command = ["docker", "image", "ls", "--format", "{{.Repository}}:{{.Tag}}", pattern]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    subprocess.run(["docker", "image", "rm", *listed], check=True, capture_output=True)


def write_locks(root: Path, images: int, version: str) -> None:
    """Write the lock of each team, with one package in a version."""
    digest = hashlib.sha256(version.encode()).hexdigest()
    for team in range(images // 4):
        line = f"shared=={version} --hash=sha256:{digest}  # shared-{version}-py3-none-any.whl 1000\n"
        (root / f"locks/team{team}.lock").write_text(line)


def git(root: Path, *words: str) -> str:
    settings = ("-c", "user.name=A", "-c", "user.email=a@x.example")
    command = ["git", *settings, *words]
    return subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout


def bake(root: Path, words: str) -> Spent:
    return harness.command([*harness.BAKE, *words.split()], cwd=root)


def jobs(commands: Sequence[str], roots: Mapping[int, Path]) -> dict[str, Callable[[], Spent]]:
    return {
        f"{words}, {count} images": functools.partial(bake, root, words)
        for words in commands
        for count, root in roots.items()
    }


def measured(options: argparse.Namespace) -> Result:
    counts = (4, 8) if options.short else COUNTS
    commands = (*COMMANDS, *ENGINE_COMMANDS) if options.engine else COMMANDS
    rounds: dict[str, list[Spent]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        roots = {count: Path(temporary, str(count)) for count in counts}
        for count, root in roots.items():
            write_project(root, count)
        rounds |= harness.interleaved(jobs(COMMANDS, roots), options.rounds)
        if options.engine:
            built = {count: Path(temporary, f"built{count}") for count in counts}
            for count, root in built.items():
                write_built_project(root, count)
            for words in ENGINE_COMMANDS:
                rounds |= harness.interleaved(jobs((words,), built), options.rounds)
            for count in counts:
                remove_images(f"bakehouse/fleet{count}-*")
        changes, diff_bytes = {}, 0
        for count, root in roots.items():
            write_locks(root, count, "2.0")
            bake(root, "render")
            changes[count] = len(git(root, "diff", "--numstat").splitlines())
            diff_bytes = len(git(root, "diff").encode())
    smallest, largest = counts[0], counts[-1]
    measures = []
    for words in commands:
        first, last = (harness.cpu(rounds[f"{words}, {count} images"]) for count in (smallest, largest))
        limit = first + MAX_SECONDS * (largest - smallest) / 100
        measures.append(Measure("", f"{words}, {largest} images (CPU)", last, limit, most_ratio=1.0))
    name = f"bytes of `git diff` after one package changed, {largest} images"
    measures.append(Measure("", name, diff_bytes, largest * MAX_DIFF_BYTES, "bytes", most_ratio=1.0))
    # Two files of each image, and the lock of each team
    expected = {count: count * 2 + count // 4 for count in counts}
    same = harness.require_same("files that one package changes", changes, expected)
    return Result(tuple(measures), rounds, same=(same,))


if __name__ == "__main__":
    parser = harness.parser(__doc__, rounds=3)
    text = "also build images, and measure `build` and `clean`"
    parser.add_argument("--engine", action="store_true", help=text)
    harness.run("fleet_commands", parser, measured)
