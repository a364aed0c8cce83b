"""Run the example with parameter servers on one worker that has several devices, which are parts of a CPU.

The strategy counts GPUs only, so this replaces its lists of devices.
"""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

COUNT = 2
ADDRESSES = {"master": ["localhost:2222"], "worker": ["localhost:2223"], "ps": ["localhost:2224"]}


def start_all() -> None:
    model = Path("/tmp/model")
    model.mkdir()
    processes = {}
    for role in ADDRESSES:
        config = json.dumps({"cluster": ADDRESSES, "task": {"type": role, "index": 0}})
        environment = {**os.environ, "TF_CONFIG": config, "SM_MODEL_DIR": str(model)}
        processes[role] = subprocess.Popen([sys.executable, __file__, role], env=environment)
    code = processes["master"].wait() or processes["worker"].wait()
    processes["ps"].kill()
    sys.exit(code)


def start(role: str) -> None:
    import tensorflow as tf  # type: ignore[import-untyped]
    from tensorflow.python.distribute import (  # type: ignore[import-untyped]
        parameter_server_strategy_v2,
    )

    server = tf.distribute.Server
    if role == "ps":
        cluster = {"chief": ADDRESSES["master"], "worker": ADDRESSES["worker"], "ps": ADDRESSES["ps"]}
        server(cluster, job_name="ps", task_index=0, protocol="grpc").join()
    devices = tf.compat.v1.ConfigProto(device_count={"CPU": COUNT})
    tf.distribute.Server = lambda *args, **options: server(*args, config=devices, **options)
    extended = parameter_server_strategy_v2.ParameterServerStrategyV2Extended
    extended._set_num_gpus = lambda self: setattr(self, "_num_gpus_per_worker", COUNT)
    extended.worker_devices = tuple(f"/device:CPU:{number}" for number in range(COUNT))
    runpy.run_path("/examples/tensorflow-parameter-server/train.py")


start(sys.argv[1]) if sys.argv[1:] else start_all()
