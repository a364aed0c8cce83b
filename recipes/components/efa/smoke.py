"""What EFA's installer put into the image."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

PLUGIN = Path("/opt/amazon/ofi-nccl/lib/libnccl-net-ofi.so")


def installed() -> str:
    found = re.search(r"installer version: *(\S+)", Path("/opt/amazon/efa_installed_packages").read_text())
    assert found, "efa_installed_packages names no version"
    return found[1]


def provided() -> dict[str, str]:
    mpi = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=True).stdout
    fabric = subprocess.run(["fi_info", "--version"], capture_output=True, text=True, check=True).stdout
    texts = {
        "open-mpi": re.search(r"\(Open MPI\) (\d+\.\d+\.\d+)", mpi),
        "libfabric": re.search(r"libfabric: (\d+\.\d+\.\d+)", fabric),
    }
    if PLUGIN.exists():
        plugin = PLUGIN.read_bytes().decode("latin-1")
        texts["aws-ofi-nccl"] = re.search(r"aws-ofi-nccl (\d+\.\d+\.\d+)", plugin)
    return {name: found[1] for name, found in texts.items() if found}


def check_daemon_runs_without_environment() -> None:
    """What ssh starts on another host has neither PATH nor library path of the image."""
    command = ["/opt/amazon/openmpi/bin/orted", "--help"]
    ended = subprocess.run(command, env={}, capture_output=True, text=True, check=False)
    assert "Usage" in ended.stdout + ended.stderr, f"exit {ended.returncode}: {ended.stderr.strip()}"


def check_plugin_finds_cuda() -> None:
    """The plugin opens libcudart.so; a CUDA base without headers has it under its versioned name alone."""
    if Path("/usr/local/cuda").exists():
        assert Path("/opt/amazon/efa/lib/libcudart.so").is_file()
