"""A script that runs smoke checks in an image's root file system, on a machine without a container engine."""

import json
import shlex
from dataclasses import dataclass

from bakehouse.builder.verify import PROBES
from bakehouse.cluster.remote_smoke import RemoteSmoke
from bakehouse.util.files import read_text

ARCHIVE = "rootfs.tar.gz"
"""Name of the file with the root file system, next to the script."""
RESULTS = "results.json"
_PROBE = PROBES / "bare_machine.sh"
_END = "END_OF_CHECKS"


@dataclass(frozen=True, slots=True)
class RootFileSystem:
    """The file with an image's root file system."""

    sha256: str
    config: bytes
    """Configuration of the image, as JSON."""


def bare_script(remote: RemoteSmoke, root: RootFileSystem, seconds: int) -> str:
    """Return the script for `sh`. It contains the checks and the environment of the image."""
    config = json.loads(root.config).get("config") or {}
    variables = dict(variable.split("=", 1) for variable in config.get("Env") or ())
    variables |= {"HOME": "/root", "HOSTNAME": "algo-1", **_gpu_variables(remote)}
    words = [shlex.quote(f"{name}={value}") for name, value in variables.items()]
    values = {
        "sha256": root.sha256,
        "directory": config.get("WorkingDir") or "/",
        "gpus": str(remote.gpus),
        "seconds": str(seconds),
    }
    lines = [
        "#!/bin/sh",
        f"# Smoke checks of {remote.uri}",
        *(f"{name}={shlex.quote(value)}" for name, value in values.items()),
        "in_environment() {",
        "    exec env -i \\",
        *(f"        {word} \\" for word in words),
        '        "$@"',
        "}",
        "write_checks() {",
        f"    cat <<'{_END}'",
        remote.script().decode() + _END,
        "}",
    ]
    return "\n".join(lines) + "\n" + read_text(_PROBE)


def _gpu_variables(remote: RemoteSmoke) -> dict[str, str]:
    """Return the variables that select GPUs: the machine may have more."""
    if not remote.gpus:
        # The first GPU would be used without this.
        return {"CUDA_VISIBLE_DEVICES": ""}
    ids = remote.gpu_ids or tuple(map(str, range(remote.gpus)))
    # The numbers of Docker and nvidia-smi have this order.
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(ids)}
