"""Checks of PyTorch and the CUDA libraries in its wheels."""

from __future__ import annotations

import contextlib
import unittest
from importlib.metadata import PackageNotFoundError, version


def installed() -> str:
    import torch

    return str(torch.__version__)


def provided() -> dict[str, str]:
    """Return the libraries in torch's wheels; empty in a CPU build."""
    import torch

    if torch.version.cuda is None:
        return {}
    nccl = ".".join(str(number) for number in torch.cuda.nccl.version())
    found = {"cuda": torch.version.cuda, "nccl": nccl}
    wheels = {"triton": "triton", "cudnn": f"nvidia-cudnn-cu{torch.version.cuda.split('.')[0]}"}
    for name, package in wheels.items():
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(package)
    return found


def check_multiplies() -> None:
    import torch

    assert torch.equal(torch.eye(3) @ torch.arange(3.0), torch.arange(3.0))


def long_check_compiles() -> None:
    """torch.compile calls a C++ compiler while a job runs."""
    import shutil

    import torch

    if not hasattr(torch, "compile"):
        # Releases before 2.0: the check does not apply.
        reason = ""
        raise unittest.SkipTest(reason)
    if shutil.which("g++") is None:
        reason = "the image has no C++ compiler, because its recipe excludes `jit`"
        raise unittest.SkipTest(reason)
    doubled = torch.compile(lambda values: values * 2 + 1)(torch.arange(4.0))
    assert torch.equal(doubled, torch.tensor([1.0, 3.0, 5.0, 7.0]))


def check_computes_on_gpu() -> None:
    import torch

    if not torch.version.cuda:
        # A CPU build: the check does not apply.
        reason = ""
        raise unittest.SkipTest(reason)
    if not torch.cuda.is_available():
        reason = "no GPU is available"
        raise unittest.SkipTest(reason)
    # Below 2**24, sums of whole numbers are exact in any order
    values = torch.arange(256.0, device="cuda")
    assert float((values * values).sum()) == float((torch.arange(256.0) ** 2).sum())
