"""Average a number over all ranks with the vendor's MPI."""

import os
from pathlib import Path

import humanize
import numpy as np
import torch
from mpi4py import MPI


def main() -> None:
    ranks = MPI.COMM_WORLD
    mean = float(np.mean(ranks.allgather(ranks.rank)))
    if ranks.rank == 0:
        Path(os.environ["SM_MODEL_DIR"], "mean.txt").write_text(f"{mean}\n")
        print(f"torch {torch.__version__} on {humanize.apnumber(ranks.size)} ranks, mean {mean}", flush=True)


if __name__ == "__main__":
    main()
