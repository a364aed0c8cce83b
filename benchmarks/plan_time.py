"""P10: planning time for 10, 100 and 1,000 generated images.

.venv/bin/python benchmarks/plan_time.py

Each image is one of Bakehouse's recipes with another name and environment, so that all keys differ; every
count takes them evenly from the whole list. A process with the loaded catalogue and recipes resolves all
images and computes the keys of all images and stages. The last row is a whole `bake plan` of a thousand
recipes in a thousand YAML files.
"""

import argparse
import functools
import json
import re
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from bakehouse.catalog.recipe import Recipe
from bakehouse.plan.workspace import Selection, open_workspace
from benchmarks import harness
from benchmarks.harness import ROOT, Measure, Result, Spent

COUNTS = (10, 100, 1000)
IMAGE_LINE = re.compile(r"\w+  image generated-")
LINEAR = 1.2
"""Most time per image at the largest count, relative to the second largest."""
PLAIN = ("mpi-cpu", "mpi5-cpu", "pytorch-cpu", "pytorch-cu130", "pytorch-deepspeed-cpu", "tensorflow-cpu")
"""Recipes that are one image each: the text of such a file is that of another when a line is added."""


def generated(recipes: list[Recipe], count: int) -> list[Recipe]:
    """Return a number of different images, taken evenly from all."""
    copies = []
    for number in range(count):
        recipe = recipes[number * len(recipes) // count if count < len(recipes) else number % len(recipes)]
        environment = (*recipe.content.environment, ("GENERATED", str(number)))
        content = replace(recipe.content, environment=environment)
        copies.append(replace(recipe, name=f"generated-{number:04}", content=content))
    return copies


def planned(count: int) -> None:
    """Print the time of one plan; for a new process without earlier plans."""
    workspace = open_workspace(ROOT)
    recipes = tuple(generated(list(workspace.recipes.values()), count))
    keys: list[str] = []
    spent = harness.spent(
        lambda: keys.extend(image.key for image in Selection(workspace, recipes).plan.images)
    )
    assert len(set(keys)) == count, "two images have one key"
    print(json.dumps([spent.wall, spent.cpu, spent.machine]))


def plan(count: int) -> Spent:
    """Return the time of one plan in a new process."""
    command = [sys.executable, __file__, "--only", str(count)]
    return Spent(*json.loads(harness.output(command)))


def write_recipes(directory: Path, count: int) -> None:
    """Create a project with a number of recipes in separate files."""
    (directory / "pyproject.toml").write_text('[tool.bakehouse]\nrecipes = ["own"]\n')
    (directory / "own" / "images").mkdir(parents=True)
    for number in range(count):
        text = (ROOT / "recipes" / "images" / f"{PLAIN[number % len(PLAIN)]}.yaml").read_text()
        # A recipe for several platforms is several images.
        text = re.sub(r"^platforms: .*\n", "", text, flags=re.M)
        path = directory / "own" / "images" / f"generated-{number:04}.yaml"
        path.write_text(f'{text}environment: {{GENERATED: "{number}"}}\n')


def measured(options: argparse.Namespace) -> Result:
    counts = [1, 2] if options.short else sorted(options.counts)
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        write_recipes(directory, counts[-1])
        command = [*harness.BAKE, "plan", "generated-*"]
        jobs: dict[str, Callable[[], Spent]] = {
            **{str(count): functools.partial(plan, count) for count in counts},
            "process": lambda: harness.command(command, cwd=directory),
        }
        rounds = harness.interleaved(jobs, options.rounds)
        # `planned` counts its keys.
        lines = harness.output(command, cwd=directory).splitlines()
    images = sum(bool(IMAGE_LINE.match(line)) for line in lines)
    same = harness.require_same("number of planned images", images, counts[-1])
    each = {count: 1000 * harness.cpu(rounds[str(count)]) / count for count in counts}
    rows = [
        Measure("P10", f"plan, each of {count:,} images, CPU", milliseconds, unit="ms", most=2.0)
        for count, milliseconds in each.items()
    ]
    if len(counts) > 1:
        fewer, more = counts[-2:]
        what = f"each of {more:,} against each of {fewer:,}"
        rows.append(Measure("P10", what, each[more], each[fewer], "ms", most_ratio=LINEAR))
    whole = harness.wall(rounds["process"])
    rows.append(Measure("", f"`./bake plan` of {counts[-1]:,} YAML files, as a process", whole))
    notes = [f"{count:,} images: {harness.wall(rounds[str(count)]):.3f} s in all." for count in counts]
    return Result(rows, rounds, notes, (same,))


def main(arguments: list[str] | None = None) -> None:
    parser = harness.parser(__doc__, rounds=5)
    parser.add_argument("--counts", type=int, nargs="+", default=COUNTS)
    parser.add_argument("--only", type=int, help=argparse.SUPPRESS)
    options, _ = parser.parse_known_args(arguments)
    if options.only:
        planned(options.only)
        return
    harness.run("plan_time", parser, measured, arguments)


if __name__ == "__main__":
    main()
