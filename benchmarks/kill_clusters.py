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
    wanted = parser.parse_args()
    with contextlib.closing(docker.connect()) as engine:
        found = engine.image(wanted.image)
    if found is None:
        sys.exit(f"the engine has no `{wanted.image}`: `./bake build mpi-cpu` makes it")
    began, done = time.monotonic(), []
    with tempfile.TemporaryDirectory() as directory:
        project = killed_clusters.project(Path(directory))
        for one in killed_clusters.rounds(found.digest, project, wanted.rounds, wanted.seed):
            done.append(one)
            print(len(done), killed_clusters.round_text(one), flush=True)
    ways = Counter(one.killed_by.name for one in done)
    swept = [one.sweeps for one in done if one.sweeps]
    print(f"{len(done)} clusters in {time.monotonic() - began:.0f} s: {dict(ways)}")
    print(f"killed after {statistics.median(one.after for one in done):.1f} s (median)")
    print(f"{sum(one.ended_before for one in done)} had ended by themselves before")
    print(f"{len(swept)} left something for a later run to sweep, which took {max(swept, default=0)} at most")
    print(f"{sum(bool(one.left) for one in done)} left something behind for good")
    print(f"{sum(one.signals > 1 for one in done)} were ended by a second signal only")
    sys.exit(any(one.left for one in done))


if __name__ == "__main__":
    main()
