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

from tests.support.hostile_repositories import attacks, complaints, opened_paths, some_commands


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repositories", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    began, random, kinds, bad = time.monotonic(), Random(options.seed), Counter[str](), 0
    with tempfile.TemporaryDirectory() as name:
        changes = attacks(opened_paths(Path(name, "sample")), random)
        for number, change in zip(range(1, options.repositories + 1), changes, strict=False):
            lines = complaints(Path(name, str(number)), [change], some_commands(random))
            kinds[change.kind] += 1
            bad += bool(lines)
            print(number, change, *lines, sep="\n    " if lines else " ", flush=True)
    print(f"{options.repositories} repositories in {time.monotonic() - began:.0f} s, seed {options.seed}")
    print(dict(kinds))
    print(f"{bad} in which a command did what it must not")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
