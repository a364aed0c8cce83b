"""Checks of DeepSpeed's compiled operators."""

import os
import unittest
from importlib.metadata import version
from pathlib import Path

OPERATORS = ("cpu_adam", "fused_adam", "fused_lamb", "fused_lion")

# DeepSpeed selects the operators for CPUs where it sees no GPU
os.environ["DS_ACCELERATOR"] = "cuda"


def installed() -> str:
    return version("deepspeed")


def check_operators_are_compiled() -> str:
    """DeepSpeed loads its operators and compiles none."""
    from deepspeed.git_version_info import installed_ops
    from deepspeed.ops.op_builder.all_ops import ALL_OPS
    from deepspeed.ops.op_builder.builder import OpBuilder

    def compile_operator(self: OpBuilder, verbose: bool = True) -> None:
        message = f"DeepSpeed would compile its operator {self.name} at job start"
        raise AssertionError(message)

    OpBuilder.jit_load = compile_operator
    missing = [name for name in OPERATORS if not installed_ops[name]]
    assert not missing, f"not compiled: {', '.join(missing)}"
    paths = [ALL_OPS[name].load().__file__ for name in OPERATORS]
    return "loaded " + ", ".join(Path(path).name for path in paths)


def check_adam_on_cpu_is_that_of_pytorch() -> None:
    """The optimizer of ZeRO-Offload gives PyTorch's result."""
    import torch
    from deepspeed.ops.adam import DeepSpeedCPUAdam

    _compare_steps(DeepSpeedCPUAdam, torch.optim.AdamW, device="cpu")


def check_fused_adam_is_that_of_pytorch() -> None:
    """The kernel for GPUs gives PyTorch's result."""
    import torch
    from deepspeed.ops.adam import FusedAdam

    if not torch.cuda.is_available():
        reason = "no GPU is available"
        raise unittest.SkipTest(reason)
    _compare_steps(FusedAdam, torch.optim.AdamW, device="cuda")


def _compare_steps(ours: type, theirs: type, *, device: str) -> None:
    import torch

    weights = torch.linspace(-1, 1, 1000, device=device)
    results = []
    for optimizer_class in (ours, theirs):
        parameter = torch.nn.Parameter(weights.clone())
        optimizer = optimizer_class([parameter], lr=0.01, weight_decay=0.1)
        for step in range(3):
            parameter.grad = torch.cos(weights + step)
            optimizer.step()
        results.append(parameter.detach())
    assert torch.allclose(*results, atol=1e-5), f"differs by {(results[0] - results[1]).abs().max().item()}"
