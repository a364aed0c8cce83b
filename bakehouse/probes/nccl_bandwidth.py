"""Measure the bus bandwidth of NCCL's all-reduce and broadcast between hosts, with torch.distributed.

Bus bandwidth is defined as in NVIDIA's nccl-tests.
"""

from __future__ import annotations

import argparse
import datetime
import os
import time
from collections.abc import Callable
from pathlib import Path

from job_record import Rank, recorded  # type: ignore[import-not-found]

EFA_DEVICES = "infiniband"
"""Class of the devices that the EFA driver creates."""
NOT_TESTED = "not tested: "
WARM_UPS, ROUNDS = 5, 20


def has_efa(classes: Path) -> bool:
    """Return whether the host has an EFA device, in the directory of device classes."""
    return any((classes / EFA_DEVICES).glob("*"))


def bus_bandwidth(operation: str, size: int, seconds: float, ranks: int) -> float:
    """Return GB/s on the bus: each rank of an all-reduce sends and receives its data almost twice."""
    share = 2 * (ranks - 1) / ranks if operation == "all_reduce" else 1.0
    return size / seconds / 1e9 * share


def measure(rank: Rank, arguments: argparse.Namespace) -> None:
    """Run both collectives; raise if a number is wrong or a bandwidth is below its limit."""
    import torch  # type: ignore[import-not-found]
    import torch.distributed as dist  # type: ignore[import-not-found]

    device = torch.device("cpu")
    if arguments.transport == "nccl":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    rank.arrived()
    dist.init_process_group(arguments.transport, timeout=datetime.timedelta(seconds=300))
    has_all = torch.tensor([int(has_efa(Path(arguments.classes)))], device=device)
    dist.all_reduce(has_all, op=dist.ReduceOp.MIN)
    if not has_all.item():
        print(f"{NOT_TESTED}a host has no EFA device\n", end="", flush=True)
        dist.destroy_process_group()
        return
    numbers = torch.full((arguments.megabytes * 250_000,), rank.rank + 1.0, device=device)
    collectives: tuple[tuple[str, Callable[[], object], float], ...] = (
        ("all_reduce", lambda: dist.all_reduce(numbers), rank.size * (rank.size + 1) / 2),
        ("broadcast", lambda: dist.broadcast(numbers, src=0), 1.0),
    )
    for operation, collective, expected in collectives:
        numbers.fill_(rank.rank + 1.0)
        collective()
        if not bool((numbers == expected).all()):
            message = f"{operation} gave {numbers.unique().tolist()[:3]}, not {expected}"
            raise RuntimeError(message)
        # Sums of zeros stay finite, however often they are repeated.
        numbers.zero_()
        slowest = torch.tensor([_seconds(collective, device)], device=device)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        size = numbers.numel() * numbers.element_size()
        bandwidth = bus_bandwidth(operation, size, slowest.item(), rank.size)
        if rank.rank == 0:
            result = f"{operation}: {bandwidth:.2f} GB/s bus bandwidth"
            print(f"{result}, {arguments.megabytes} MB, {rank.size} ranks\n", end="", flush=True)
        if bandwidth < arguments.minimum:
            message = f"{operation} has {bandwidth:.2f} GB/s bus bandwidth, less than {arguments.minimum:g}"
            raise RuntimeError(message)
    dist.destroy_process_group()


def _seconds(collective: Callable[[], object], device: object) -> float:
    """Return the mean time of a collective on this rank."""
    import torch.distributed as dist

    for _ in range(WARM_UPS):
        collective()
    _wait(device)
    dist.barrier()
    start = time.monotonic()
    for _ in range(ROUNDS):
        collective()
    _wait(device)
    return (time.monotonic() - start) / ROUNDS


def _wait(device: object) -> None:
    import torch

    if getattr(device, "type", "") == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--transport", choices=("gloo", "nccl"), default="nccl")
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--minimum", type=float, default=0.0, help="GB/s that both collectives must reach")
    parser.add_argument("--classes", default="/sys/class")
    arguments = parser.parse_args()
    with recorded(os.environ["RANK"], os.environ["WORLD_SIZE"]) as rank:
        measure(rank, arguments)


if __name__ == "__main__":
    main()
