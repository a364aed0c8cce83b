"""Sum a number of every rank with torch.distributed, over gloo or NCCL."""

from __future__ import annotations

import argparse
import datetime
import os

from job_record import Rank, recorded  # type: ignore[import-not-found]


def exchange(rank: Rank, transport: str) -> None:
    """Run an all-reduce and a barrier; raise if a number is wrong."""
    import torch  # type: ignore[import-not-found]
    import torch.distributed as dist  # type: ignore[import-not-found]

    device = torch.device("cpu")
    if transport == "nccl":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        print(f"NCCL {torch.cuda.nccl.version()}, {torch.cuda.get_device_name(device)}", flush=True)
    rank.arrived()
    dist.init_process_group(transport, timeout=datetime.timedelta(seconds=600))
    numbers = torch.full((100000,), rank.rank + 1.0, device=device)
    dist.all_reduce(numbers)
    expected = rank.size * (rank.size + 1) / 2
    if not bool((numbers == expected).all()):
        message = f"all-reduce gave {numbers.unique().tolist()[:3]}, not {expected}"
        raise RuntimeError(message)
    dist.barrier()
    print(f"all-reduce over {rank.size} ranks with {transport} gave {expected}\n", end="", flush=True)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--transport", choices=("gloo", "nccl"), required=True)
    arguments = parser.parse_args()
    with recorded(os.environ["RANK"], os.environ["WORLD_SIZE"]) as rank:
        exchange(rank, arguments.transport)


if __name__ == "__main__":
    main()
