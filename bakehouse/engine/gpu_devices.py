"""Requests for this machine's GPUs and EFA devices, depending on the features of the engine."""

import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

CDI_GPU = "nvidia.com/gpu"
"""Kind of NVIDIA's devices in specifications of CDI."""
FABRIC = Path("/dev/infiniband")


def device_arguments(info: Mapping[str, Any], gpus: Sequence[str], fabric: Path = FABRIC) -> dict[str, Any]:
    """Return the arguments of a container with GPUs; `info` is the answer of `docker info`.

    The nvidia runtime takes precedence over CDI, as in the engine. The container gets all EFA devices of this
    machine.
    """
    from docker.types import DeviceRequest, Ulimit

    if "nvidia" not in (info.get("Runtimes") or {}) and info.get("CDISpecDirs"):
        request = DeviceRequest(driver="cdi", device_ids=[f"{CDI_GPU}={gpu}" for gpu in gpus])
    else:
        request = DeviceRequest(device_ids=[*gpus], capabilities=[["gpu"]])
    arguments: dict[str, Any] = {"device_requests": [request]}
    is_local = info.get("Name") == socket.gethostname()
    if is_local and (devices := sorted(fabric.glob("uverbs*"))):
        arguments["devices"] = [f"{device}:{device}:rw" for device in devices]
        # libfabric pins the memory that the devices read
        arguments["ulimits"] = [Ulimit(name="memlock", soft=-1, hard=-1)]
    return arguments
