"""Checks of apex."""

import unittest
from importlib import import_module
from importlib.metadata import version


def installed() -> str:
    return version("apex")


def check_extensions_fit_pytorch() -> None:
    """A build for another PyTorch or CUDA fails with an undefined symbol."""
    import torch
    from apex.optimizers import FusedAdam

    assert torch.version.cuda
    assert callable(FusedAdam)
    for name in ("amp_C", "fused_layer_norm_cuda", "mlp_cuda", "syncbn"):
        assert import_module(name)


def check_computes_a_step() -> None:
    import torch
    from apex.optimizers import FusedAdam

    if not torch.cuda.is_available():
        reason = "no GPU is available"
        raise unittest.SkipTest(reason)
    for optimizer_class in (FusedAdam, torch.optim.AdamW):
        weight = torch.nn.Parameter(torch.ones(8, device="cuda"))
        optimizer = optimizer_class([weight], lr=0.1, weight_decay=0.0)
        (weight * weight).sum().backward()
        optimizer.step()
        # The first step of Adam is as long as its learning rate
        assert torch.allclose(weight, torch.full_like(weight, 0.9), atol=1e-3)
