"""A stub for SMDDP's backend of torch.distributed: gloo by another name."""

from typing import Any

import torch.distributed as dist  # type: ignore[import-not-found]


def _gloo(store: Any, rank: int, size: int, timeout: Any) -> Any:
    return dist.ProcessGroupGloo(store, rank, size, timeout=timeout)


dist.Backend.register_backend("smddp", _gloo, devices=["cpu"])
