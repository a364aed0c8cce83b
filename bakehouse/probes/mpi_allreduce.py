"""Sum a number of every rank and pass a message round a ring, with mpi4py."""

from __future__ import annotations

import array
import json
import os
import subprocess

from job_record import Rank, host_name, recorded  # type: ignore[import-not-found]


def exchange(rank: Rank) -> list[str]:
    """Run an all-reduce and a ring; return the hosts, raise if a number is wrong."""
    from mpi4py import MPI  # type: ignore[import-not-found]

    world = MPI.COMM_WORLD
    if (world.Get_rank(), world.Get_size()) != (rank.rank, rank.size):
        message = f"MPI reports rank {world.Get_rank()} of {world.Get_size()}"
        raise RuntimeError(message)
    rank.arrived()
    mine = array.array("d", [rank.rank + 1.0] * 100000)
    total = array.array("d", bytes(8 * len(mine)))
    world.Allreduce(mine, total, op=MPI.SUM)
    expected = rank.size * (rank.size + 1) / 2
    if set(total) != {expected}:
        message = f"all-reduce gave {sorted(set(total))[:3]}, not {expected}"
        raise RuntimeError(message)
    after, before = (rank.rank + 1) % rank.size, (rank.rank - 1) % rank.size
    if world.sendrecv(f"from {rank.rank}", dest=after, source=before) != f"from {before}":
        message = "a message in the ring came from a wrong rank"
        raise RuntimeError(message)
    hosts = sorted(set(world.allgather(host_name())))
    print(f"all-reduce over {rank.size} ranks on {', '.join(hosts)} gave {expected}\n", end="", flush=True)
    return hosts


def check_host_keys(hosts: list[str]) -> None:
    """Check that ssh requires known host keys. Otherwise any machine could pose as a host."""
    for host in hosts:
        settings = subprocess.run(["ssh", "-G", host], capture_output=True, text=True, check=True).stdout
        if "stricthostkeychecking true" not in settings.splitlines():
            message = f"ssh to {host} would accept any host key"
            raise RuntimeError(message)


def main() -> None:
    with recorded(os.environ["OMPI_COMM_WORLD_RANK"], os.environ["OMPI_COMM_WORLD_SIZE"]) as rank:
        hosts = exchange(rank)
        expected = sorted(json.loads(os.environ.get("SM_HOSTS", json.dumps(hosts))))
        if hosts != expected:
            message = f"the ranks run on {', '.join(hosts)}; the job's hosts are {', '.join(expected)}"
            raise RuntimeError(message)
        if len(hosts) > 1:
            check_host_keys(hosts)


if __name__ == "__main__":
    main()
