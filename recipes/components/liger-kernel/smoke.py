"""Checks of Liger's kernels."""

from __future__ import annotations

import unittest
from importlib.metadata import version


def installed() -> str:
    return version("liger-kernel")


def check_can_be_imported() -> None:
    from liger_kernel.transformers import AutoLigerKernelForCausalLM, LigerRMSNorm

    assert AutoLigerKernelForCausalLM
    assert LigerRMSNorm


def check_normalizes_on_gpu() -> None:
    import torch
    from liger_kernel.transformers import LigerRMSNorm

    if not torch.cuda.is_available():
        reason = "no GPU is available"
        raise unittest.SkipTest(reason)
    values = torch.randn(4, 64, device="cuda")
    expected = values / (values.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt()
    off = (LigerRMSNorm(64).cuda()(values) - expected).abs().max()
    assert off < 1e-4, off
