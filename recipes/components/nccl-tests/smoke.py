"""Check of NVIDIA's NCCL tests, which report their version only on a GPU."""

import subprocess
from pathlib import Path

DIRECTORY = Path("/opt/nccl-tests")


def check_libraries_are_found() -> None:
    for program in ("all_reduce_perf", "broadcast_perf"):
        command = ["ldd", DIRECTORY / program]
        libraries = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        # The host provides the driver's library.
        missing = [line.strip() for line in libraries if "not found" in line and "libcuda.so" not in line]
        assert not missing, missing
