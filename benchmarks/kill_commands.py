"""Commands that are killed at random moments: files that differ after the next run, and leftovers.

python benchmarks/kill_commands.py --rounds 60
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.support import killed_commands


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    began, rounds = time.monotonic(), []
    with tempfile.TemporaryDirectory() as directory:
        for round_ in killed_commands.rounds(Path(directory), options.rounds, options.seed):
            rounds.append(round_)
            print(len(rounds), round_, flush=True)
    print(f"{len(rounds)} rounds in {time.monotonic() - began:.0f} s, seed {options.seed}")
    print(dict(Counter(round_.command for round_ in rounds)))
    print(f"{sum(round_.ended_before for round_ in rounds)} had ended by themselves before")
    print(f"{sum(bool(round_.differences) for round_ in rounds)} differ or left something")
    sys.exit(any(round_.differences for round_ in rounds))


if __name__ == "__main__":
    main()
