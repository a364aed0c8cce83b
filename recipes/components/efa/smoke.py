"""Checks of the software that EFA's installer installed, and of its use by NCCL.

NCCL silently uses TCP if it finds no plugin, cannot load it, or supports none of its interface versions.
These checks need neither a GPU nor an EFA.
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
"""Last directories of the loader's search."""

_INTERFACE = re.compile(rb"ncclNetPlugin_v(\d+)")
_NCCL = """
import ctypes, importlib.util, json, pathlib
try:
    import torch
except ImportError:
    wheel = importlib.util.find_spec("nvidia.nccl") if importlib.util.find_spec("nvidia") else None
    directories = wheel.submodule_search_locations if wheel else []
    for name in [*(f"{directory}/lib/libnccl.so.2" for directory in directories), "libnccl.so.2"]:
        try:
            ctypes.CDLL(name)
            break
        except OSError:
            pass
loaded = [pathlib.Path(line.split(None, 5)[5].strip()) for line in open("/proc/self/maps") if "/" in line]
libraries = [path for path in loaded if path.name.startswith("libnccl.so")]
# PyTorch before 2.0 contains NCCL in this library.
libraries = libraries or [path for path in loaded if path.name == "libtorch_cuda.so"]
print(json.dumps(sorted(set(map(str, libraries)))))
"""
_PLUGIN = """
import ctypes, json, os, sys
errors = []
for name in sys.argv[1:]:
    try:
        plugin = ctypes.CDLL(name, mode=os.RTLD_NOW | os.RTLD_LOCAL)
        break
    except OSError as error:
        errors.append(str(error))
else:
    print(json.dumps({"error": "; ".join(errors)}))
    raise SystemExit
loaded = sorted({line.split(None, 5)[5].strip() for line in open("/proc/self/maps") if "/" in line})
versions = [number for number in range(2, 30) if hasattr(plugin, f"ncclNetPlugin_v{number}")]
print(json.dumps({"loaded": loaded, "versions": versions}))
"""


def installed() -> str:
    found = re.search(r"installer version: *(\S+)", (AMAZON / "efa_installed_packages").read_text())
    assert found, "efa_installed_packages contains no version"
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
    """Programs that ssh starts on another host have neither PATH nor library path of the image."""
    command = [str(AMAZON / "openmpi/bin/orted"), "--help"]
    process = subprocess.run(command, env={"HOME": "/root"}, capture_output=True, text=True, check=False)
    assert "Usage" in process.stdout + process.stderr, f"exit {process.returncode}: {process.stderr.strip()}"


def check_plugin_finds_cuda() -> None:
    """The plugin opens libcudart.so, but a CUDA base without headers only has its versioned name."""
    if Path("/usr/local/cuda").exists():
        assert (AMAZON / "efa/lib/libcudart.so").is_file()


def check_one_nccl_plugin() -> None:
    """With two plugins on the loader's path, the order of directories would decide."""
    paths = plugins(nccl().parent)
    assert paths, "no NCCL plugin is on the loader's path, so NCCL uses TCP"
    assert len(paths) == 1, (
        f"{len(paths)} NCCL plugins are on the loader's path: {', '.join(map(str, paths))}"
    )


def check_nccl_plugin_loads() -> None:
    """NCCL opens the plugin on the loader's path by its name."""
    expected = set(map(str, plugins(nccl().parent)))
    loaded, _ = load_plugin()
    assert expected & set(loaded), f"NCCL opens another plugin than {', '.join(expected)}"


def check_nccl_plugin_uses_this_libfabric() -> None:
    nccl()
    loaded, _ = load_plugin()
    libraries = [path for path in loaded if Path(path).name.startswith("libfabric.so")]
    assert libraries, "the plugin loads no libfabric"
    wrong = [path for path in libraries if (AMAZON / "efa") not in Path(path).parents]
    assert not wrong, f"the plugin loads {wrong[0]}, not the libfabric of EFA's installer"


def check_nccl_takes_the_plugin() -> None:
    """NCCL supports a version of the plugin's interface. It contains the names of these versions."""
    library = nccl()
    _, provided_versions = load_plugin()
    supported = supported_versions(library)
    assert supported, f"{library} supports no version of the plugin interface"
    assert set(supported) & set(provided_versions), (
        f"the plugin has interface versions {_text(provided_versions)}, but NCCL ({library}) supports "
        f"{_text(supported)}, so NCCL uses TCP"
    )


def nccl() -> Path:
    """Return the NCCL that a training process loads."""
    libraries = _run(_NCCL)
    if not libraries:
        # An image without NCCL: the check does not apply.
        reason = ""
        raise unittest.SkipTest(reason)
    assert len(libraries) == 1, f"{len(libraries)} NCCL libraries are loaded: {', '.join(libraries)}"
    return Path(libraries[0])


def plugins(nccl_directory: Path) -> list[Path]:
    """Return the NCCL plugins that the loader can find, with links resolved.

    With NCCL_NET_PLUGIN, only those of this name count: NCCL does not open the others.
    """
    selected = os.environ.get("NCCL_NET_PLUGIN", "")
    pattern = f"libnccl-net-{selected}.so*" if selected and "/" not in selected else "libnccl-net*.so*"
    cache = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    cached = [
        Path(line.split("=>")[1].strip()).parent for line in cache.splitlines() if "libnccl-net" in line
    ]
    configured = [Path(path) for path in os.environ.get("LD_LIBRARY_PATH", "").split(":") if path]
    paths = {
        path.resolve()
        for directory in {nccl_directory, *configured, *cached, *SYSTEM}
        for path in directory.glob(pattern)
    }
    return sorted(path for path in paths if path.is_file())


def load_plugin() -> tuple[list[str], list[int]]:
    """Return the libraries in a process that opened the plugin like NCCL, and its interface versions."""
    name = os.environ.get("NCCL_NET_PLUGIN", "")
    answer = _run(_PLUGIN, *([name, f"libnccl-net-{name}.so"] if name else ["libnccl-net.so"]))
    error = answer.get("error", "")
    if "libcuda.so.1" in error:
        reason = f"needs the host's driver: {error}"
        raise unittest.SkipTest(reason)
    assert not error, f"the plugin can't be loaded, so NCCL uses TCP: {error}"
    return answer["loaded"], answer["versions"]


def supported_versions(library: Path) -> list[int]:
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return sorted({int(number) for number in _INTERFACE.findall(content)})


def _run(code: str, *arguments: str) -> Any:
    """Run code in its own process, so that its libraries do not stay loaded, and return its JSON answer."""
    process = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    last = (process.stderr.strip().splitlines() or [f"exit {process.returncode}"])[-1]
    assert process.returncode == 0, last
    return json.loads(process.stdout.splitlines()[-1])


def _text(versions: list[int]) -> str:
    return ", ".join(f"v{number}" for number in versions) or "none"
