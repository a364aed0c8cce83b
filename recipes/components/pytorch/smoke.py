"""PyTorch as the image has it, and the CUDA parts that its wheels bring."""

import unittest
from importlib.metadata import version


def installed() -> str:
    import torch

    return str(torch.__version__)


def provided() -> dict[str, str]:
    """What torch itself says of the parts it came with; empty in a CPU build."""
    import torch

    if torch.version.cuda is None:
        return {}
    nccl = ".".join(str(number) for number in torch.cuda.nccl.version())
    return {"cuda": torch.version.cuda, "nccl": nccl, "triton": version("triton"), "cudnn": version("nvidia-cudnn-cu13")}


def check_multiplies() -> None:
    import torch

    assert torch.equal(torch.eye(3) @ torch.arange(3.0), torch.arange(3.0))


def check_compiles() -> None:
    """torch.compile calls a C++ compiler while a job runs."""
    import shutil

    import torch

    if shutil.which("g++") is None:
        reason = "the image has no C++ compiler: its recipe leaves `jit` out"
        raise unittest.SkipTest(reason)
    doubled = torch.compile(lambda values: values * 2 + 1)(torch.arange(4.0))
    assert torch.equal(doubled, torch.tensor([1.0, 3.0, 5.0, 7.0]))


def check_computes_on_gpu() -> None:
    import torch

    if not torch.cuda.is_available():
        reason = "no GPU in sight" if torch.version.cuda else "a CPU build of PyTorch"
        raise unittest.SkipTest(reason)
    values = torch.arange(1024.0, device="cuda")
    assert float((values * values).sum()) == float((torch.arange(1024.0) ** 2).sum())
