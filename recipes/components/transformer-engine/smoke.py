"""Checks of Transformer Engine."""

import unittest
from importlib.metadata import version


def installed() -> str:
    return version("transformer-engine")


def check_core_library_can_be_loaded() -> None:
    """It is compiled for a major version of CUDA and needs its cuBLAS, cuDNN and NCCL."""
    import torch  # It loads the libraries of CUDA
    import transformer_engine.common

    assert torch.version.cuda
    assert transformer_engine.common


def check_extension_fits_pytorch_and_the_core_library() -> None:
    """A build for another PyTorch or another release fails with an undefined symbol."""
    from transformer_engine.pytorch import Linear

    assert callable(Linear)
    assert version("transformer-engine-torch") == version("transformer-engine")


def check_computes_a_linear_layer() -> None:
    import torch
    from transformer_engine.pytorch import Linear

    if not torch.cuda.is_available():
        reason = "no GPU is available"
        raise unittest.SkipTest(reason)
    layer = Linear(64, 32, params_dtype=torch.float32).cuda()
    batch = torch.randn(16, 64, device="cuda")
    expected = torch.nn.functional.linear(batch, layer.weight, layer.bias)
    assert torch.allclose(layer(batch), expected, atol=1e-2)
