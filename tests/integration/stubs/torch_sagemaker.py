"""A stub for SMP 2's Python module: it reads its settings and leaves sharding to PyTorch."""

import json
import os
from types import SimpleNamespace
from typing import Any

state = SimpleNamespace()


def init() -> None:
    settings = json.loads(os.environ["SM_HP_MP_PARAMETERS"])
    state.hybrid_shard_degree = settings["hybrid_shard_degree"]
    print(f"stub for torch.sagemaker: {json.dumps(settings, sort_keys=True)}", flush=True)


def transform(model: Any) -> Any:
    return model
