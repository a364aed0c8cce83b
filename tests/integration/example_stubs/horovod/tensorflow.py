"""A stub for Horovod: the rank `RANK` of 2, which trains without the other."""

import os
from typing import Any


def init() -> None:
    pass


def rank() -> int:
    return int(os.environ["RANK"])


local_rank = rank


def size() -> int:
    return 2


local_size = size


def broadcast_variables(variables: Any, root_rank: int) -> None:
    pass


def DistributedGradientTape(tape: Any) -> Any:
    return tape


def allreduce(value: Any) -> Any:
    return value
