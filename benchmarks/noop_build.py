"""How much `./bake build` adds to a bare bake call, with nothing to do: run it on images that are built.

python benchmarks/noop_build.py mpi-cpu pytorch-cpu
"""

import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TIMES = 5


def seconds(command: list[str]) -> float:
    began = time.monotonic()
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return time.monotonic() - began


def main() -> None:
    images = sys.argv[1:] or ["mpi-cpu"]
    files = [word for image in images for word in ("-f", f"images/{image}/docker-bake.json")]
    ours, bare = (
        ["./bake", "build", *images],
        ["docker", "buildx", "bake", "--provenance=false", *files, *images],
    )
    seconds(ours)
    pairs = [(seconds(ours), seconds(bare)) for _ in range(TIMES)]
    mine, its = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(f"{', '.join(images)}: ./bake build {mine:.2f} s, bare bake {its:.2f} s, ratio {mine / its:.2f}")


if __name__ == "__main__":
    main()
