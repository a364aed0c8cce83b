"""Checks of NVIDIA's compatibility libraries: only hosts with an old driver use them."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path

PROGRAM = "/usr/local/lib/start-job.d/cuda-compat"


def library() -> Path:
    found = sorted(Path("/usr/local").glob("cuda-*.*/compat/libcuda.so.*.*"))
    assert len(found) == 1, [str(path) for path in found]
    return found[0]


def installed() -> str:
    found = re.search(r"cuda-(\d+\.\d+)/compat", str(library()))
    assert found
    return found[1]


def output_for(driver: str) -> str:
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {driver}  Wed Nov 18 2026\n")
        file.flush()
        env = {**os.environ, "CUDA_COMPAT_DRIVER_FILE": file.name, "LD_LIBRARY_PATH": ""}
        return subprocess.run([PROGRAM], env=env, capture_output=True, text=True, check=True).stdout.strip()


def check_an_older_driver_gets_them() -> None:
    branches = Path("/usr/local/lib/cuda-compat/branches").read_text().split()
    assert output_for(f"{branches[-1]}.10.01") == f"LD_LIBRARY_PATH={library().parent}"


def check_its_own_branch_does_not() -> None:
    assert not output_for(library().name.removeprefix("libcuda.so."))
