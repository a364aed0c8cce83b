"""Check PyTorch on this machine's GPUs: versions, kernels, memory, and NCCL over one and all of them.

It runs inside or outside an image: `python3 gpu.py [--gpus N]` only needs PyTorch. The exit code is 1 if a
check fails or another number of GPUs is found, and 2 without GPUs.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import torch  # type: ignore[import-not-found]
import torch.distributed as dist  # type: ignore[import-not-found]
import torch.multiprocessing as multiprocessing  # type: ignore[import-not-found]

SHARE = 0.9
"""Share of the free memory to fill and read back."""
BLOCK = 2**27


def versions() -> None:
    command = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    nccl = ".".join(str(number) for number in torch.cuda.nccl.version())
    print(f"torch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}")
    print(f"NCCL {nccl}, kernels for {' '.join(torch.cuda.get_arch_list())}")
    print(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip(), flush=True)


def kernels(device: torch.device) -> None:
    """Compare products in three precisions, a convolution and a sort with the CPU's results.

    The limits of float32 are below the errors of TF32, which some images and all convolutions use by default.
    """
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(0)
    left, right = torch.rand(512, 512), torch.rand(512, 512)
    expected = left @ right
    for kind, error in ((torch.float32, 1e-3), (torch.float16, 1.0), (torch.bfloat16, 4.0)):
        product = (left.to(device, kind) @ right.to(device, kind)).float().cpu()
        assert (product - expected).abs().max() < error, f"{kind}: off by {(product - expected).abs().max()}"
    image = torch.rand(2, 3, 64, 64)
    filters = torch.rand(4, 3, 3, 3)
    result = torch.nn.functional.conv2d(image.to(device), filters.to(device)).cpu()
    off = (result - torch.nn.functional.conv2d(image, filters)).abs().max()
    assert off < 5e-4, f"cuDNN's convolution is off by {off}"
    assert torch.equal(torch.arange(10**6, device=device).flip(0).sort().values.cpu(), torch.arange(10**6))


def memory(device: torch.device) -> float:
    """Fill the memory with a different number in each block, read it back, and return its size in GiB."""
    free, _ = torch.cuda.mem_get_info(device)
    count = int(free * SHARE) // BLOCK
    assert count, f"only {free >> 20} MiB are free, too little for a test"
    blocks = [torch.full((BLOCK,), number % 251, dtype=torch.uint8, device=device) for number in range(count)]
    wrong = [number for number, block in enumerate(blocks) if not bool((block == number % 251).all())]
    assert not wrong, f"blocks {wrong} contain other bytes than were written"
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
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpus", type=int, default=0, help="number of GPUs that PyTorch must find")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print(f"torch {torch.__version__} finds no GPU")
        return 2
    versions()
    count = torch.cuda.device_count()
    assert arguments.gpus in (0, count), f"PyTorch finds {count} GPUs, not {arguments.gpus}"
    for number in range(count):
        device = torch.device("cuda", number)
        kernels(device)
        print(f"GPU {number}: kernels agree with the CPU", flush=True)
        print(f"GPU {number}: {memory(device):.0f} GiB filled and read back", flush=True)
        torch.cuda.empty_cache()
    for size in sorted({1, count}):
        with tempfile.TemporaryDirectory() as directory:
            multiprocessing.spawn(all_reduce, (size, str(Path(directory, "store"))), size)
        print(f"NCCL all-reduce over {size} GPU{'s' * (size > 1)} gave the right sum", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
