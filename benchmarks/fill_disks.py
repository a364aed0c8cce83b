"""Commands whose disk becomes full: what their errors lack, and what differs after the next run.

python benchmarks/fill_disks.py --rounds 60
python benchmarks/fill_disks.py --engine --rounds 60

The commands of the first line need no engine. `--engine` fills disks of build, smoke, push and promote of a
small image. Needs root to mount small file systems.
"""

import argparse
import contextlib
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.integration import killed_tasks
from tests.integration.ports import kept_port
from tests.support import full_disks, killed_commands


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", action="store_true")
    options = parser.parse_args()
    began, rounds = time.monotonic(), []
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if options.engine:
            port = stack.enter_context(kept_port())
            places = killed_tasks.places(stack.enter_context(killed_tasks.tasks(directory, port)))
        else:
            places = full_disks.file_places(stack.enter_context(killed_commands.file_commands(directory)))
        for round_ in full_disks.rounds(places, directory, options.rounds, options.seed):
            rounds.append(round_)
            print(len(rounds), round_, flush=True)
    print(f"{len(rounds)} rounds in {time.monotonic() - began:.0f} s, seed {options.seed}")
    print(dict(Counter(f"{round_.place} of {round_.command}" for round_ in rounds)))
    print(f"{sum(round_.ended_before for round_ in rounds)} had enough space")
    print(f"{sum(bool(round_.differences) for round_ in rounds)} differ, left something or reported badly")
    sys.exit(any(round_.differences for round_ in rounds))


if __name__ == "__main__":
    main()
