"""Checks of xFormers."""

import unittest
from importlib.metadata import version


def installed() -> str:
    return version("xformers")


def check_extension_fits_pytorch() -> None:
    """A build for another PyTorch only prints a warning, and the operators are missing."""
    from xformers import _cpp_lib

    _cpp_lib._register_extensions()


def check_computes_attention() -> None:
    import torch
    from xformers.ops import memory_efficient_attention

    if not torch.cuda.is_available():
        reason = "no GPU is available"
        raise unittest.SkipTest(reason)
    query, key, value = torch.randn(3, 1, 16, 2, 64, device="cuda", dtype=torch.float16)
    scores = torch.nn.functional.scaled_dot_product_attention(
        query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
    )
    assert torch.allclose(memory_efficient_attention(query, key, value), scores.transpose(1, 2), atol=1e-2)
