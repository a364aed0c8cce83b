"""Commands that are killed at random moments: what differs after the next run, and what is left.

python benchmarks/kill_commands.py --rounds 60
python benchmarks/kill_commands.py --engine --rounds 120
python benchmarks/kill_commands.py --restart --rounds 20
python benchmarks/kill_commands.py --fill --rounds 20

The commands of the first line need no engine. `--engine` kills build, smoke, push and promote of a small
image. `--restart` restarts an engine of its own during these commands instead, and `--fill` fills the disk of
one. Both need root.
"""

import argparse
import contextlib
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import campaign_results
from tests.integration import killed_tasks
from tests.integration.ports import kept_port
from tests.support import killed_commands
from tests.support.full_disks import SmallDisk

ENGINE_BYTES = 4 * 1024**3


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", action="store_true")
    parser.add_argument("--restart", action="store_true")
    parser.add_argument("--fill", action="store_true")
    parser.add_argument("--engines", type=Path, default=killed_tasks.ENGINES, help="directory of its engine")
    parser.add_argument("--only", default="", help="names of commands, separated by commas")
    campaign_results.add_option(parser)
    options = parser.parse_args()
    began, rounds = time.monotonic(), []
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        strike: killed_commands.Strike = killed_commands.kill
        if options.fill:
            disk = stack.enter_context(SmallDisk(options.engines).mounted(ENGINE_BYTES))
            stack.enter_context(killed_tasks.own_engine(options.engines))
            strike = killed_tasks.fills(disk)
        elif options.restart:
            strike = killed_tasks.restarts(stack.enter_context(killed_tasks.own_engine(options.engines)))
        if options.engine or options.restart or options.fill:
            port = stack.enter_context(kept_port())
            commands = stack.enter_context(killed_tasks.tasks(directory, port))
        else:
            commands = stack.enter_context(killed_commands.file_commands(directory))
        selected = [
            command for command in commands if not options.only or command.name in options.only.split(",")
        ]
        for round_ in killed_commands.rounds(selected, directory, options.rounds, options.seed, strike):
            rounds.append(round_)
            print(len(rounds), round_, flush=True)
    print(f"{len(rounds)} rounds in {time.monotonic() - began:.0f} s, seed {options.seed}")
    print(dict(Counter(round_.command for round_ in rounds)))
    print(f"{sum(round_.ended_before for round_ in rounds)} had ended by themselves before")
    print(f"{sum(bool(round_.differences) for round_ in rounds)} differ or left something")
    if options.record:
        counts = ", ".join(f"{count} `{name}`" for name, count in Counter(r.command for r in rounds).items())
        ended = sum(round_.ended_before for round_ in rounds)
        bad = sum(bool(round_.differences) for round_ in rounds)
        cases = f"{len(rounds)}: {counts}, seed {options.seed}"
        result = f"{bad} differ or left something; {ended} had ended before"
        is_own = options.restart or options.fill
        name = "killed tasks" if options.engine else "killed commands"
        campaign_results.record("restarted engine" if is_own else name, cases, result)
    sys.exit(any(round_.differences for round_ in rounds))


if __name__ == "__main__":
    main()
