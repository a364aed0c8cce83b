"""Checks of FlashAttention."""

import unittest
from importlib.metadata import version


def installed() -> str:
    return version("flash-attn").partition("+")[0]


def check_extension_fits_pytorch() -> None:
    """A build for another PyTorch, CUDA or C++ ABI fails with an undefined symbol."""
    import flash_attn_2_cuda
    from flash_attn import flash_attn_func

    assert callable(flash_attn_2_cuda.fwd)
    assert callable(flash_attn_func)


def check_computes_attention() -> None:
    import torch
    from flash_attn import flash_attn_func

    if not torch.cuda.is_available():
        reason = "no GPU is available"
        raise unittest.SkipTest(reason)
    query, key, value = torch.randn(3, 1, 16, 2, 64, device="cuda", dtype=torch.float16)
    scores = torch.nn.functional.scaled_dot_product_attention(
        query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
    )
    assert torch.allclose(flash_attn_func(query, key, value), scores.transpose(1, 2), atol=1e-2)
