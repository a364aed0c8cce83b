"""Count the images whose keys each commit of a range changed: the recorded keys, and those of steps.

Usage: python -m benchmarks.key_replay [FIRST [LAST]]

Each commit renders all images with its own code. The keys of steps are those of the Dockerfiles and inputs
that it rendered, so they show which commits changed what BuildKit builds.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from bakehouse.catalog.project import HOME
from bakehouse.plan.step_keys import read_steps, tree_of

FIRST, LAST = "50cbb917", "0b14f27f"
PATHS = ("templates", "recipes", "bakehouse/plan", "bakehouse/catalog")
"""A commit that changes none of these renders the same files."""
_RENDER = "from bakehouse.cli.main import main; main()"


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of an image at a commit."""

    recorded: str
    """The key that the commit gave it."""
    steps: str
    """The key of its steps."""
    layers: tuple[str, ...]


def keys_at(commit: str) -> dict[str, Keys]:
    """Return the keys of all images at a commit."""
    with tempfile.TemporaryDirectory() as root:
        archive = subprocess.run(["git", "archive", commit], cwd=HOME, check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", root], input=archive, check=True)
        environment = {**os.environ, "PYTHONPATH": root, "BAKEHOUSE_CACHE": f"{root}/cache"}
        command = [sys.executable, "-P", "-c", _RENDER, "render", "*"]
        subprocess.run(command, cwd=root, env=environment, check=True, capture_output=True)
        return {
            lock.parent.name: image_keys(lock.parent, json.loads(lock.read_text())["key"])
            for lock in sorted(Path(root, "images").glob("*/lock.json"))
        }


def image_keys(directory: Path, recorded: str) -> Keys:
    platforms = json.loads((directory / "docker-bake.json").read_text())["target"].values()
    platform = next((name for target in platforms for name in target.get("platforms", ())), "linux/amd64")
    text = (directory / "Dockerfile").read_text()
    read = read_steps(text, tree_of(directory, "inputs", "files"), platform=platform)
    return Keys(recorded, read.image, tuple(layer.key for layer in read.layers))


def commits(first: str, last: str) -> list[str]:
    """Return a commit, and those after it up to another one that change `PATHS`, oldest first."""
    command = ["git", "log", "--first-parent", "--reverse", "--format=%h", f"{first}..{last}", "--", *PATHS]
    log = subprocess.run(command, cwd=HOME, check=True, capture_output=True, text=True)
    return [first, *log.stdout.split()]


def changes(before: Mapping[str, Keys], after: Mapping[str, Keys]) -> tuple[int, int, int, int]:
    """Return the images with another recorded key, with other steps; their equal layers, and all of them."""
    both = before.keys() & after.keys()
    recorded = [name for name in both if before[name].recorded != after[name].recorded]
    steps = [name for name in both if before[name].steps != after[name].steps]
    pairs = [(layer in before[name].layers) for name in recorded for layer in after[name].layers]
    return len(recorded), len(steps), sum(pairs), len(pairs)


def main(first: str = FIRST, last: str = LAST) -> None:
    names = commits(first, last)
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        keys = dict(zip(names, threads.map(keys_at, names), strict=True))
    if path := os.environ.get("KEY_REPLAY_RESULT"):
        rows = {
            commit: {name: (image.recorded, image.steps) for name, image in images.items()}
            for commit, images in keys.items()
        }
        Path(path).write_text(json.dumps(rows))
    print(f"{'commit':10} images with another key: recorded  steps   unchanged layers of these")
    counts = {after: changes(keys[before], keys[after]) for before, after in pairwise(names)}
    for commit, (recorded, steps, same, layers) in counts.items():
        if recorded or steps:
            print(f"{commit:10} {recorded:33} {steps:6}   {same} of {layers}")
    recorded, steps = (sum(row[index] for row in counts.values()) for index in (0, 1))
    print(f"{'total':10} {recorded:33} {steps:6}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first", nargs="?", default=FIRST, help="the first commit")
    parser.add_argument("last", nargs="?", default=LAST, help="the last commit")
    main(**vars(parser.parse_args()))
