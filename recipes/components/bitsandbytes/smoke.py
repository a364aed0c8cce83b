"""Checks of bitsandbytes."""

from __future__ import annotations

import unittest
from importlib.metadata import version


def installed() -> str:
    return version("bitsandbytes")


def check_loads_the_library_of_pytorch() -> None:
    """The native library for the CPU, or for PyTorch's CUDA, was found and loaded."""
    import torch
    from bitsandbytes import cextension

    path = str(getattr(cextension.lib, "_lib", cextension.lib))
    expected = f"cuda{torch.version.cuda.replace('.', '')}" if torch.cuda.is_available() else "cpu"
    assert expected in path, path


def _off(device: str) -> float:
    """Return how far a 4-bit copy of random numbers is off."""
    import torch
    from bitsandbytes import functional

    torch.manual_seed(0)
    values = torch.randn(64, 64, device=device)
    packed, state = functional.quantize_4bit(values, quant_type="nf4")
    assert packed.numel() * packed.element_size() == values.numel() // 2, packed.shape
    return float((functional.dequantize_4bit(packed, state) - values).abs().mean())


def check_quantizes() -> None:
    assert 0 < _off("cpu") < 0.1


def check_quantizes_on_gpu() -> None:
    import torch

    if not torch.version.cuda:
        # A CPU build: the check does not apply.
        reason = ""
        raise unittest.SkipTest(reason)
    if not torch.cuda.is_available():
        reason = "no GPU is available"
        raise unittest.SkipTest(reason)
    assert 0 < _off("cuda") < 0.1
