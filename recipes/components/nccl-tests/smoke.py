"""NVIDIA's tests of NCCL as the image has them. They can't tell their version without a GPU."""

import subprocess
from pathlib import Path

FOLDER = Path("/opt/nccl-tests")


def check_libraries_are_found() -> None:
    for program in ("all_reduce_perf", "broadcast_perf"):
        listed = subprocess.run(["ldd", FOLDER / program], capture_output=True, text=True, check=True).stdout
        # The driver's library comes with the host
        lost = [
            line.strip() for line in listed.splitlines() if "not found" in line and "libcuda.so" not in line
        ]
        assert not lost, lost
