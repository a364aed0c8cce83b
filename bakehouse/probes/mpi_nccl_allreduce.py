"""Sum a number of every rank of mpirun over NCCL, with Horovod or else with torch.distributed."""

import importlib
import importlib.util
import os
from typing import Any

from job_record import Rank, recorded  # type: ignore[import-not-found]

ELEMENTS = 100000


def horovod_sum(rank: Rank, local: int) -> Any:
    """Return the sums of an all-reduce with Horovod, on the GPU of this rank."""
    name = "torch" if importlib.util.find_spec("torch") else "tensorflow"
    horovod, framework = importlib.import_module(f"horovod.{name}"), importlib.import_module(name)
    if not horovod.nccl_built():
        message = "Horovod was compiled without NCCL"
        raise RuntimeError(message)
    horovod.init()
    rank.arrived()
    if name == "torch":
        framework.cuda.set_device(local)
        sums = horovod.allreduce(framework.full((ELEMENTS,), rank.rank + 1.0, device="cuda"), op=horovod.Sum)
        return sums.cpu().numpy()
    framework.compat.v1.enable_eager_execution()
    device = framework.config.experimental.list_physical_devices("GPU")[local]
    framework.config.experimental.set_visible_devices(device, "GPU")
    with framework.device("GPU:0"):
        sums = horovod.allreduce(framework.fill([ELEMENTS], rank.rank + 1.0), op=horovod.Sum)
    if "GPU" not in sums.device:
        message = f"the all-reduce ran on {sums.device}"
        raise RuntimeError(message)
    return sums.numpy()


def torch_sum(rank: Rank, local: int) -> Any:
    """Return the sums of an all-reduce with torch.distributed, on the GPU of this rank."""
    import torch  # type: ignore[import-not-found]

    torch.cuda.set_device(local)
    rank.arrived()
    address = f"tcp://localhost:{os.environ['STORE_PORT']}"
    torch.distributed.init_process_group("nccl", init_method=address, rank=rank.rank, world_size=rank.size)
    numbers = torch.full((ELEMENTS,), rank.rank + 1.0, device="cuda")
    torch.distributed.all_reduce(numbers)
    sums = numbers.cpu().numpy()
    torch.distributed.destroy_process_group()
    return sums


def main() -> None:
    with recorded(os.environ["OMPI_COMM_WORLD_RANK"], os.environ["OMPI_COMM_WORLD_SIZE"]) as rank:
        local = int(os.environ["OMPI_COMM_WORLD_LOCAL_RANK"])
        library = "Horovod" if importlib.util.find_spec("horovod") else "torch.distributed"
        sums = horovod_sum(rank, local) if library == "Horovod" else torch_sum(rank, local)
        expected = rank.size * (rank.size + 1) / 2
        if {*sums.tolist()} != {expected}:
            message = f"all-reduce gave {sorted({*sums.tolist()})[:3]}, not {expected}"
            raise RuntimeError(message)
        print(
            f"all-reduce over {rank.size} ranks with {library} and NCCL gave {expected}\n", end="", flush=True
        )


if __name__ == "__main__":
    main()
