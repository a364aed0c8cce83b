"""CPU time of look-ups, each as a whole process with the start of `./bake`.

.venv/bin/python benchmarks/look_ups.py

The project is new, with one image that was released. Each round runs every command once. The least counts,
because other programs only make a process slower. A first pass fills the cache; `after a change` is a
look-up whose cache was removed.
"""

import argparse
import os
import shlex
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bakehouse.ledger.releases import text_of
from benchmarks import harness
from benchmarks.harness import Measure, Result
from benchmarks.image_uri import record

IMAGE = "churn"
RECIPE = """\
summary: Predict churn
base: {debian: "12"}
components: {python: "3.11", pytorch: "2.13.0"}
variants: {pytorch: "cpu-*"}
"""
MOST, MOST_HELP = 0.3, 0.12
"""Goals in CPU seconds."""
ROLE = "arn:aws:iam::123456789012:role/job"
JOB = f"{IMAGE} --instance-type ml.m5.xlarge"
LOOK_UPS = (
    *("list", "list --json", f"resolve {IMAGE}", f"explain {IMAGE}", f"uri {IMAGE} --region eu-west-1"),
    *(f"validate {JOB}", f"estimator {JOB} --region eu-west-1 --role {ROLE}"),
)
HELPS = ("help", "help build")
ANEW = "list"
SETTLED = 2.5
"""Seconds after which files are kept in the cache."""


def write_project(directory: Path) -> None:
    images = directory / "recipes/images"
    images.mkdir(parents=True)
    (directory / "pyproject.toml").write_text('[tool.bakehouse]\nrecipes = ["recipes"]\n')
    (images / f"{IMAGE}.yaml").write_text(RECIPE)
    ledger = directory / "images" / IMAGE / "releases.json"
    ledger.parent.mkdir(parents=True)
    ledger.write_text(text_of([record(IMAGE, 1, 1)]))


def measured(options: argparse.Namespace) -> Result:
    with tempfile.TemporaryDirectory() as temporary:
        project, cache = Path(temporary, "project"), Path(temporary, "cache")
        write_project(project)
        environment = {"XDG_CACHE_HOME": str(cache), "HOME": temporary, "AWS_EC2_METADATA_DISABLED": "true"}

        def run(words: str) -> harness.Spent:
            return harness.command([*harness.BAKE, *shlex.split(words)], cwd=project, env=environment)

        def anew() -> harness.Spent:
            for file in (cache / "bakehouse").glob("*.cache"):
                file.unlink()
            return run(ANEW)

        time.sleep(SETTLED)
        commands = (*LOOK_UPS, *HELPS)
        for words in commands:
            run(words)
        kept = len([*(cache / "bakehouse").glob("project-*.cache")])
        jobs = {words: (lambda words=words: run(words)) for words in commands}
        rounds = harness.interleaved({**jobs, "anew": anew}, options.rounds)
    same = harness.require_same("number of cached projects", kept, 1)
    least = {name: min(spent.cpu for spent in costs) for name, costs in rounds.items()}
    names = {words: " ".join(words.split()[:2]) for words in LOOK_UPS}
    measures = [Measure("", f"`bake {name}`, CPU", least[words], most=MOST) for words, name in names.items()]
    measures += [Measure("", f"`bake {words}`, CPU", least[words], most=MOST_HELP) for words in HELPS]
    measures.append(Measure("", f"`bake {ANEW}` after a change, CPU", least["anew"]))
    return Result(measures, rounds, (f"load {os.getloadavg()[0]:.1f}",), (same,))


def main(arguments: list[str] | None = None) -> None:
    harness.run("look_ups", harness.parser(__doc__, rounds=9), measured, arguments)


if __name__ == "__main__":
    main()
