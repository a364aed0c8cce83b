"""Leftovers of clusters that are killed at random moments; the tests kill five, this benchmark many.

python benchmarks/kill_clusters.py --rounds 200 --image bakehouse/mpi-cpu:latest
"""

import argparse
import contextlib
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from bakehouse.engine import docker
from tests.integration import killed_clusters


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--image", default="bakehouse/mpi-cpu:latest")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with contextlib.closing(docker.connect()) as engine:
        image = engine.image(options.image)
    if image is None:
        sys.exit(f"the engine has no `{options.image}`: `./bake build mpi-cpu` makes it")
    began, rounds = time.monotonic(), []
    with tempfile.TemporaryDirectory() as directory:
        project = killed_clusters.project(Path(directory))
        for round_ in killed_clusters.rounds(image.digest, project, options.rounds, options.seed):
            rounds.append(round_)
            print(len(rounds), killed_clusters.round_text(round_), flush=True)
    ways = Counter(round_.killed_by.name for round_ in rounds)
    swept = [round_.sweeps for round_ in rounds if round_.sweeps]
    print(f"{len(rounds)} clusters in {time.monotonic() - began:.0f} s: {dict(ways)}")
    print(f"killed after {statistics.median(round_.after for round_ in rounds):.1f} s (median)")
    print(f"{sum(round_.ended_before for round_ in rounds)} had ended by themselves before")
    print(f"{len(swept)} left something for a later run to sweep, which took {max(swept, default=0)} at most")
    print(f"{sum(bool(round_.left) for round_ in rounds)} left something behind for good")
    print(f"{sum(round_.signals > 1 for round_ in rounds)} were ended by a second signal only")
    sys.exit(any(round_.left for round_ in rounds))


if __name__ == "__main__":
    main()
