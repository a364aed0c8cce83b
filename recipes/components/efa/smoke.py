"""Checks of the files that the EFA installer adds, and of NCCL's use of them.

NCCL falls back to TCP silently if it finds no plugin, cannot load it, or knows none of its interfaces. These
checks need neither a GPU nor an EFA device.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import subprocess
import sys
import unittest
from pathlib import Path
from typing import Any

AMAZON = Path("/opt/amazon")
SYSTEM = (Path("/lib"), Path("/usr/lib"), Path("/lib/x86_64-linux-gnu"), Path("/usr/lib/x86_64-linux-gnu"))
"""Directories that the loader searches last."""

_FACE = re.compile(rb"ncclNetPlugin_v(\d+)")
_NCCL = """
import ctypes, importlib.util, json, pathlib
try:
    import torch
except ImportError:
    wheel = importlib.util.find_spec("nvidia.nccl") if importlib.util.find_spec("nvidia") else None
    places = wheel.submodule_search_locations if wheel else []
    for name in [*(f"{place}/lib/libnccl.so.2" for place in places), "libnccl.so.2"]:
        try:
            ctypes.CDLL(name)
            break
        except OSError:
            pass
loaded = [pathlib.Path(line.split(None, 5)[5].strip()) for line in open("/proc/self/maps") if "/" in line]
found = [one for one in loaded if one.name.startswith("libnccl.so")]
# PyTorch before 2.0 has NCCL inside this one
found = found or [one for one in loaded if one.name == "libtorch_cuda.so"]
print(json.dumps(sorted(set(map(str, found)))))
"""
_PLUGIN = """
import ctypes, json, os, sys
lost = []
for name in sys.argv[1:]:
    try:
        plugin = ctypes.CDLL(name, mode=os.RTLD_NOW | os.RTLD_LOCAL)
        break
    except OSError as error:
        lost.append(str(error))
else:
    print(json.dumps({"error": "; ".join(lost)}))
    raise SystemExit
loaded = sorted({line.split(None, 5)[5].strip() for line in open("/proc/self/maps") if "/" in line})
faces = [number for number in range(2, 30) if hasattr(plugin, f"ncclNetPlugin_v{number}")]
print(json.dumps({"loaded": loaded, "faces": faces}))
"""


def installed() -> str:
    found = re.search(r"installer version: *(\S+)", (AMAZON / "efa_installed_packages").read_text())
    assert found, "efa_installed_packages names no version"
    return found[1]


def provided() -> dict[str, str]:
    mpi = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=True).stdout
    fabric = subprocess.run(["fi_info", "--version"], capture_output=True, text=True, check=True).stdout
    texts = {
        "open-mpi": re.search(r"\(Open MPI\) (\d+\.\d+\.\d+)", mpi),
        "libfabric": re.search(r"libfabric: (\d+\.\d+\.\d+)", fabric),
    }
    for plugin in sorted((AMAZON / "ofi-nccl").rglob("libnccl-net*.so")):
        texts["aws-ofi-nccl"] = re.search(
            r"aws-ofi-nccl (\d+\.\d+\.\d+)", plugin.read_bytes().decode("latin-1")
        )
    return {name: found[1] for name, found in texts.items() if found}


def check_daemon_runs_without_environment() -> None:
    """Programs started by ssh on another host lack the image's PATH and library path."""
    command = [str(AMAZON / "openmpi/bin/orted"), "--help"]
    ended = subprocess.run(command, env={"HOME": "/root"}, capture_output=True, text=True, check=False)
    assert "Usage" in ended.stdout + ended.stderr, f"exit {ended.returncode}: {ended.stderr.strip()}"


def check_plugin_finds_cuda() -> None:
    """The plugin opens libcudart.so; a CUDA base without headers has it under its versioned name alone."""
    if Path("/usr/local/cuda").exists():
        assert (AMAZON / "efa/lib/libcudart.so").is_file()


def check_one_nccl_plugin() -> None:
    """With two plugins on the loader path, the order of directories decides."""
    found = plugins(nccl().parent)
    assert found, "no NCCL plugin is on the loader's path: NCCL would use TCP"
    assert len(found) == 1, (
        f"{len(found)} NCCL plugins are on the loader's path: {', '.join(map(str, found))}"
    )


def check_nccl_plugin_loads() -> None:
    """And it is the one on the path that NCCL opens by its name."""
    known = set(map(str, plugins(nccl().parent)))
    loaded, _ = opened()
    assert known & set(loaded), f"NCCL would open another plugin than {', '.join(known)}"


def check_nccl_plugin_uses_this_libfabric() -> None:
    nccl()
    loaded, _ = opened()
    found = [path for path in loaded if Path(path).name.startswith("libfabric.so")]
    assert found, "the plugin loads no libfabric"
    wrong = [path for path in found if (AMAZON / "efa") not in Path(path).parents]
    assert not wrong, f"the plugin loads {wrong[0]}, not the libfabric of EFA's installer"


def check_nccl_takes_the_plugin() -> None:
    """NCCL looks for the faces of a plugin by their names, which it has as texts."""
    library = nccl()
    _, given = opened()
    wanted = faces_wanted(library)
    assert wanted, f"{library} names no face of a plugin"
    assert set(wanted) & set(given), (
        f"the plugin has the faces {_text(given)}, NCCL ({library}) takes {_text(wanted)}: NCCL would use TCP"
    )


def nccl() -> Path:
    """The NCCL that a training process really loads."""
    found = _ask(_NCCL)
    if not found:
        reason = "no NCCL in this image"
        raise unittest.SkipTest(reason)
    assert len(found) == 1, f"{len(found)} NCCLs are loaded: {', '.join(found)}"
    return Path(found[0])


def plugins(beside: Path) -> list[Path]:
    """The NCCL plugins that the loader may find, links followed."""
    listed = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    cached = [
        Path(line.split("=>")[1].strip()).parent for line in listed.splitlines() if "libnccl-net" in line
    ]
    own = [Path(one) for one in os.environ.get("LD_LIBRARY_PATH", "").split(":") if one]
    found = {
        path.resolve()
        for folder in {beside, *own, *cached, *SYSTEM}
        for path in folder.glob("libnccl-net*.so*")
    }
    return sorted(path for path in found if path.is_file())


def opened() -> tuple[list[str], list[int]]:
    """Return loaded libraries and interface versions after opening the plugin by name, as NCCL does."""
    asked = os.environ.get("NCCL_NET_PLUGIN", "")
    answer = _ask(_PLUGIN, *([asked, f"libnccl-net-{asked}.so"] if asked else ["libnccl-net.so"]))
    error = answer.get("error", "")
    if "libcuda.so.1" in error:
        reason = f"needs the host's driver: {error}"
        raise unittest.SkipTest(reason)
    assert not error, f"the plugin can't be loaded, and NCCL would use TCP: {error}"
    return answer["loaded"], answer["faces"]


def faces_wanted(library: Path) -> list[int]:
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return sorted({int(number) for number in _FACE.findall(content)})


def _ask(code: str, *arguments: str) -> Any:
    """The answer of a process of its own: what it loads doesn't stay."""
    ended = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    last = (ended.stderr.strip().splitlines() or [f"exit {ended.returncode}"])[-1]
    assert ended.returncode == 0, last
    return json.loads(ended.stdout.splitlines()[-1])


def _text(faces: list[int]) -> str:
    return ", ".join(f"v{number}" for number in faces) or "none"
