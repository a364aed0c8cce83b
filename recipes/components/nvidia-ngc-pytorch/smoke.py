"""Versions in NVIDIA's PyTorch image, and the NCCL plugin that a training process opens in it.

The image has plugins of HPC-X, and some releases have AWS's. NCCL uses TCP between instances with EFA if it
opens another plugin than AWS's. The check needs neither a GPU nor an EFA.
"""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

AMAZON, HPCX = Path("/opt/amazon"), Path("/opt/hpcx")
_SELECT = "set NCCL_NET_PLUGIN to `ofi` for AWS's plugin"


def installed() -> str | None:
    """Return the release of the image."""
    return os.environ.get("NVIDIA_PYTORCH_VERSION")


def provided() -> dict[str, str]:
    import torch

    found = {
        "python": ".".join(platform.python_version_tuple()[:2]),
        "pytorch": str(torch.__version__).split("+")[0],
        "glibc": platform.libc_ver()[1],
    }
    if torch.version.cuda:
        found["cuda"] = str(torch.version.cuda)
        found["nccl"] = ".".join(str(number) for number in torch.cuda.nccl.version())
    return found


def check_nccl_opens_the_plugin_for_efa() -> None:
    selected = os.environ.get("NCCL_NET_PLUGIN", "")
    name = f"libnccl-net-{selected}.so" if selected else "libnccl-net.so"
    paths = plugins()
    opened = next((path for path in paths if path.name == name and path.parent in search_path()), None)
    of_aws = [path for path in paths if AMAZON in path.resolve().parents]
    if not of_aws:
        problem = "the image has no plugin for EFA, so NCCL uses TCP between instances"
        hint = "add the component `efa`"
    elif opened is None:
        problem = f"NCCL finds no {name}, so it uses TCP between instances with EFA"
        hint = _SELECT
    elif AMAZON not in opened.resolve().parents:
        problem = f"NCCL opens {opened}, so it uses TCP between instances with EFA"
        hint = _SELECT
    else:
        return
    listed = ", ".join(map(str, paths)) or "none"
    message = f"{problem}; {hint}. NCCL_NET_PLUGIN: {selected or 'not set'}; plugins: {listed}"
    raise AssertionError(message)


def plugins() -> list[Path]:
    """Return all NCCL plugins of the image: on the loader's path, of HPC-X and of EFA's installer."""
    paths = {path for directory in search_path() for path in directory.glob("libnccl-net*.so")}
    for root in (HPCX, AMAZON):
        paths.update(root.rglob("libnccl-net*.so"))
    return sorted(paths)


def search_path() -> list[Path]:
    """Return the directories that the loader searches for a plugin, first to last."""
    configured = [Path(path) for path in os.environ.get("LD_LIBRARY_PATH", "").split(":") if path]
    cache = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    lines = [line for line in cache.splitlines() if "libnccl-net" in line]
    return [*configured, *(Path(line.split("=>")[1].strip()).parent for line in lines)]
