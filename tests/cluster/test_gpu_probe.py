"""The script of the smoke check `gpu`, with a stub of PyTorch on a GPU."""

import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from bakehouse.catalog.project import HOME

FLOAT32 = {"product": 9e-5, "convolution": 3e-6}
"""Largest errors of the script's sums, measured with PyTorch 2.13.0 on a CPU."""
TF32 = {"product": 9e-3, "convolution": 1.7e-3}
"""The same after rounding the inputs to the 10 bits of TF32."""
HALF = {"float16": 0.07, "bfloat16": 0.55}


@dataclass
class Values:
    """Numbers that differ from the exact ones by `error` at most."""

    error: float = 0.0
    kind: str = "float32"
    on_gpu: bool = False

    def __sub__(self, other: "Values") -> "Values":
        return Values(self.error - other.error)

    def __lt__(self, limit: float) -> bool:
        return self.error < limit

    def to(self, device: object, kind: str = "float32") -> "Values":
        return Values(self.error, kind, on_gpu=True)

    def same(self) -> "Values":
        return self

    float = cpu = abs = max = same


def stub(obeys: bool) -> Any:
    """Return PyTorch on a GPU that uses TF32 by default, and that obeys `allow_tf32` or not."""
    torch = MagicMock()
    torch.float32, torch.float16, torch.bfloat16 = "float32", "float16", "bfloat16"
    flags = SimpleNamespace(
        product=SimpleNamespace(allow_tf32=True), convolution=SimpleNamespace(allow_tf32=True)
    )
    torch.backends.cuda.matmul, torch.backends.cudnn = flags.product, flags.convolution

    def result(operation: str, values: Values) -> Values:
        if not values.on_gpu:
            return Values()
        if values.kind in HALF:
            return Values(HALF[values.kind])
        errors: Mapping[str, float] = TF32 if getattr(flags, operation).allow_tf32 or not obeys else FLOAT32
        return Values(errors[operation])

    class Factor(Values):
        def __matmul__(self, other: Values) -> Values:
            return result("product", self)

        def to(self, device: object, kind: str = "float32") -> Values:
            return Factor(0.0, kind, on_gpu=True)

    torch.rand = lambda *shape: Factor()
    torch.nn.functional.conv2d = lambda image, filters: result("convolution", image)
    torch.equal = lambda left, right: True
    return torch


def probe(torch: Any, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    for name in ("torch", "torch.distributed", "torch.multiprocessing"):
        monkeypatch.setitem(sys.modules, name, torch)
    spec = importlib.util.spec_from_file_location("gpu_probe", HOME / "recipes/components/pytorch/gpu.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_gpu_that_uses_tf32_by_default_passes_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = stub(obeys=True)

    probe(torch, monkeypatch).kernels("cuda:0")

    assert torch.backends.cuda.matmul.allow_tf32 is False
    assert torch.backends.cudnn.allow_tf32 is False


def test_results_with_the_error_of_tf32_are_not_those_of_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError, match="float32: off by"):
        probe(stub(obeys=False), monkeypatch).kernels("cuda:0")


def test_a_convolution_with_the_error_of_tf32_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TF32, "product", FLOAT32["product"])

    with pytest.raises(AssertionError, match="cuDNN's convolution is off by"):
        probe(stub(obeys=False), monkeypatch).kernels("cuda:0")
