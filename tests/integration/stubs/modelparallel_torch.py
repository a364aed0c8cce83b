"""A stub for SMP 1's PyTorch module: ranks average gradients over MPI, no model is partitioned."""

import json
import os
from collections.abc import Callable
from statistics import fmean
from typing import Any

import torch  # type: ignore[import-not-found]
from mpi4py import MPI  # type: ignore[import-not-found]

_world = MPI.COMM_WORLD
_settings: dict[str, Any] = {}
rank, size = _world.Get_rank, _world.Get_size
dp_rank = rank


def init() -> None:
    _settings.update(json.loads(os.environ["SM_HP_MP_PARAMETERS"]))
    print(f"stub for smdistributed.modelparallel: {json.dumps(_settings, sort_keys=True)}", flush=True)


def local_rank() -> int:
    return int(os.environ["OMPI_COMM_WORLD_LOCAL_RANK"])


class DistributedModel:
    def __init__(self, module: Any) -> None:
        self.module = module

    def __call__(self, *inputs: Any) -> Any:
        return self.module(*inputs)

    def parameters(self) -> Any:
        return self.module.parameters()

    def state_dict(self) -> Any:
        return self.module.state_dict()

    def backward(self, loss: Any) -> None:
        (loss / _settings["microbatches"]).backward()


class DistributedOptimizer:
    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        for weights in self._weights():
            _world.Bcast(weights.detach().numpy(), 0)

    def _weights(self) -> list[Any]:
        return [weights for group in self._optimizer.param_groups for weights in group["params"]]

    def zero_grad(self) -> None:
        self._optimizer.zero_grad()

    def step(self) -> None:
        for weights in self._weights():
            _world.Allreduce(MPI.IN_PLACE, weights.grad.numpy())
            weights.grad /= size()
        self._optimizer.step()


class StepOutput:
    def __init__(self, parts: list[Any]) -> None:
        self._parts = parts

    def reduce_mean(self) -> Any:
        return torch.tensor(fmean(part.item() for part in self._parts))


def step(function: Callable[..., Any]) -> Callable[..., StepOutput]:
    def in_microbatches(model: Any, *batch: Any) -> StepOutput:
        parts = zip(*(torch.chunk(tensor, _settings["microbatches"]) for tensor in batch), strict=True)
        return StepOutput([function(model, *part) for part in parts])

    return in_microbatches
