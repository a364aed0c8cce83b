"""Results of several concurrent pushes with one tag.

python benchmarks/push_race.py --rounds 200 --pushers 2,8
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from random import Random

from tests.integration import push_races

COURSES = {"immutable": push_races.immutable, "mutable": push_races.mutable}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--pushers", default="2,8")
    parser.add_argument("--registries", default=",".join(COURSES))
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    wrong = 0
    for kind in options.registries.split(","):
        for count in map(int, options.pushers.split(",")):
            random, races, began = Random(options.seed), [], time.monotonic()
            with (
                tempfile.TemporaryDirectory() as directory,
                COURSES[kind](Path(directory)) as course,
                push_races.racers(course, count, Path(directory)) as race,
            ):
                for number in range(options.rounds):
                    races.append(race(number, random))
                    print(kind, count, json.dumps(races[-1].codes), races[-1].winner, flush=True)
            print(f"{kind}, {count} pushers: {push_races.summary(races)}; {time.monotonic() - began:.0f} s")
            wrong += sum(bool(result.lied_to or result.failed) for result in races)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
