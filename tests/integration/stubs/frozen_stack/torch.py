"""A stub for PyTorch: what the script of smp-legacy calls."""

from types import SimpleNamespace
from typing import Any


class Tensor:
    def square(self) -> "Tensor":
        return self

    def mean(self) -> "Tensor":
        return self

    def item(self) -> float:
        return 0.5


class Module:
    def __init__(self, *parts: Any) -> None:
        self.parts = parts

    def __call__(self, batch: Tensor) -> Tensor:
        return batch

    def parameters(self) -> list[Tensor]:
        return [Tensor()]


class Optimizer:
    def __init__(self, parameters: list[Tensor], lr: float) -> None:
        self.parameters, self.rate = parameters, lr

    def zero_grad(self) -> None:
        pass

    def step(self) -> None:
        pass


def rand(*shape: int, device: str) -> Tensor:
    return Tensor()


cuda = SimpleNamespace(is_available=lambda: False, set_device=lambda number: None)
nn = SimpleNamespace(Linear=Module, Sequential=Module)
optim = SimpleNamespace(SGD=Optimizer)
