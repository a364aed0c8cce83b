"""Repositories with links to outside, special files and hostile texts: what commands do that they must not.

python benchmarks/hostile_repositories.py --repositories 100
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import campaign_results
from tests.support.hostile_repositories import (
    ENGINE_COMMANDS,
    attacks,
    complaints,
    opened_paths,
    some_commands,
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repositories", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--engine", action="store_true", help="run lint, build, smoke and sizes")
    campaign_results.add_option(parser)
    options = parser.parse_args()
    began, random, kinds, bad = time.monotonic(), Random(options.seed), Counter[str](), 0
    with tempfile.TemporaryDirectory() as name:
        changes = attacks(opened_paths(Path(name, "sample")), random)
        if options.engine:
            changes = iter(random.sample([*changes], options.repositories))
        for number, change in zip(range(1, options.repositories + 1), changes, strict=False):
            if time.monotonic() - began > options.seconds:
                break
            commands = ENGINE_COMMANDS if options.engine else some_commands(random)
            lines = complaints(Path(name, str(number)), [change], commands)
            kinds[change.kind] += 1
            bad += bool(lines)
            print(number, change, *lines, sep="\n    " if lines else " ", flush=True)
    count, seconds = kinds.total(), time.monotonic() - began
    print(f"{count} repositories in {seconds:.0f} s, seed {options.seed}")
    print(dict(kinds))
    if options.record:
        name = "hostile repositories, with an engine" if options.engine else "hostile repositories"
        cases = f"{count} repositories with seed {options.seed}, {seconds:.0f} s"
        campaign_results.record(name, cases, f"{bad} in which a command did what it must not")
    print(f"{bad} in which a command did what it must not")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
