"""A stub for SMP's PyTorch module: it only counts the ranks."""

import json
import os
from collections.abc import Callable
from typing import Any

from mpi4py import MPI  # type: ignore[import-not-found]

rank, size = MPI.COMM_WORLD.Get_rank, MPI.COMM_WORLD.Get_size


def init() -> None:
    settings = json.loads(os.environ["SM_HP_MP_PARAMETERS"])
    assert settings["pipeline_parallel_degree"] == 2, settings


def local_rank() -> int:
    return int(os.environ["OMPI_COMM_WORLD_LOCAL_RANK"])


class DistributedModel:
    def __init__(self, module: Any) -> None:
        self.module = module

    def __call__(self, batch: Any) -> Any:
        return self.module(batch)

    def parameters(self) -> Any:
        return self.module.parameters()

    def backward(self, loss: Any) -> None:
        pass


def DistributedOptimizer(optimizer: Any) -> Any:
    return optimizer


class StepOutput:
    def __init__(self, loss: Any) -> None:
        self._loss = loss

    def reduce_mean(self) -> Any:
        return self._loss


def step(function: Callable[..., Any]) -> Callable[..., StepOutput]:
    return lambda *arguments: StepOutput(function(*arguments))
