"""Versions in AWS's image with SMP 2. SMP does not report its version."""

from __future__ import annotations

import importlib
import platform
import unittest


def provided() -> dict[str, str]:
    import torch

    return {
        "python": ".".join(platform.python_version_tuple()[:2]),
        "pytorch": str(torch.__version__).split("+")[0],
        "cuda": str(torch.version.cuda),
        "nccl": ".".join(str(number) for number in torch.cuda.nccl.version()),
    }


def check_can_be_imported() -> None:
    import torch

    if not torch.cuda.is_available():
        reason = "no GPU is available"
        raise unittest.SkipTest(reason)
    importlib.import_module("torch.sagemaker")
