"""Mutated recipes and components within a time limit: tracebacks, missing locations, slow cases.

python benchmarks/fuzz_recipes.py --cases 100000 --seconds 600
"""

import argparse
import sys
import tempfile
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.support.mutations import Mutations


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    wishes = parser.parse_args()
    began, taken, refused, unplaced, broken, slowest = time.monotonic(), 0, 0, 0, 0, 0.0
    tracebacks: set[str] = set()
    with tempfile.TemporaryDirectory() as directory:
        mutations = Mutations(Path(directory) / "recipes")
        for seed in range(wishes.first, wishes.first + wishes.cases):
            if time.monotonic() - began > wishes.seconds:
                break
            try:
                outcome = mutations.run(seed)
            except Exception:
                broken += 1
                text = traceback.format_exc(limit=-2)
                if text not in tracebacks:
                    print(f"case {seed} is a traceback:\n{text}", flush=True)
                tracebacks.add(text)
                continue
            taken += not outcome.diagnostics
            refused += bool(outcome.diagnostics)
            unplaced += not outcome.is_placed
            slowest = max(slowest, outcome.seconds)
            if outcome.seconds > 1:
                print(f"case {seed} took {outcome.seconds:.1f} s", flush=True)
    count = taken + refused + broken
    placed = 100 * (1 - unplaced / max(1, refused))
    print(f"{count:,} cases in {time.monotonic() - began:.0f} s: {taken:,} taken, {refused:,} refused")
    print(f"{broken} tracebacks; {placed:.2f} % of the refusals have their place; slowest {slowest:.2f} s")
    sys.exit(broken > 0)


if __name__ == "__main__":
    main()
