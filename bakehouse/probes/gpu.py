"""Tells whether PyTorch works on this machine's GPUs: versions, kernels, memory, NCCL over one and all.

Runs in an image or without one: `python3 gpu.py` needs nothing but PyTorch. Exits with 1 where a check fails,
and with 2 where there is no GPU.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import torch  # type: ignore[import-not-found]
import torch.distributed as dist  # type: ignore[import-not-found]
import torch.multiprocessing as multiprocessing  # type: ignore[import-not-found]

SHARE = 0.9
"""Of the memory that is free, filled and read back."""
BLOCK = 2**27


def versions() -> None:
    asked = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    nccl = ".".join(str(number) for number in torch.cuda.nccl.version())
    print(f"torch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}")
    print(f"NCCL {nccl}, kernels for {' '.join(torch.cuda.get_arch_list())}")
    print(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip(), flush=True)


def kernels(device: torch.device) -> None:
    """Products in three precisions against the CPU's, and kernels that torch compiled itself."""
    torch.manual_seed(0)
    left, right = torch.rand(512, 512), torch.rand(512, 512)
    wanted = left @ right
    for kind, error in ((torch.float32, 1e-2), (torch.float16, 1.0), (torch.bfloat16, 4.0)):
        found = (left.to(device, kind) @ right.to(device, kind)).float().cpu()
        assert (found - wanted).abs().max() < error, f"{kind}: off by {(found - wanted).abs().max()}"
    image = torch.rand(2, 3, 64, 64)
    filters = torch.rand(4, 3, 3, 3)
    found = torch.nn.functional.conv2d(image.to(device), filters.to(device)).cpu()
    off = (found - torch.nn.functional.conv2d(image, filters)).abs().max()
    assert off < 1e-1, f"cuDNN's convolution is off by {off}"
    assert torch.equal(torch.arange(10**6, device=device).flip(0).sort().values.cpu(), torch.arange(10**6))


def memory(device: torch.device) -> float:
    """Gibibytes that were filled, each block with a number of its own, and read back."""
    free, _ = torch.cuda.mem_get_info(device)
    count = int(free * SHARE) // BLOCK
    assert count, f"only {free >> 20} MiB are free: nothing can be tried"
    blocks = [torch.full((BLOCK,), number % 251, dtype=torch.uint8, device=device) for number in range(count)]
    wrong = [number for number, block in enumerate(blocks) if not bool((block == number % 251).all())]
    assert not wrong, f"blocks {wrong} hold other bytes than were written"
    return count * BLOCK / 2**30


def all_reduce(rank: int, size: int, file: str) -> None:
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"file://{file}", rank=rank, world_size=size)
    numbers = torch.full((10**6,), rank + 1.0, device="cuda")
    dist.all_reduce(numbers)
    assert bool((numbers == size * (size + 1) / 2).all()), f"rank {rank} got {numbers.unique().tolist()[:3]}"
    del numbers
    dist.destroy_process_group()


def main() -> int:
    if not torch.cuda.is_available():
        print(f"no GPU in sight of torch {torch.__version__}")
        return 2
    versions()
    count = torch.cuda.device_count()
    for number in range(count):
        device = torch.device("cuda", number)
        kernels(device)
        print(f"GPU {number}: kernels agree with the CPU", flush=True)
        print(f"GPU {number}: {memory(device):.0f} GiB filled and read back", flush=True)
        torch.cuda.empty_cache()
    for size in sorted({1, count}):
        with tempfile.TemporaryDirectory() as folder:
            multiprocessing.spawn(all_reduce, (size, str(Path(folder, "store"))), size)
        print(f"NCCL all-reduce over {size} GPU{'s' * (size > 1)} gave the right sum", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
