"""Run NVIDIA's all_reduce_perf over one and all GPUs, and read whether each number was right.

The exit code is 1 if a run fails, checks nothing or finds a wrong number, and 2 without GPUs.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys

PROGRAM = "/opt/nccl-tests/all_reduce_perf"
RANK = re.compile(r"^#\s+Rank\s+\d+\s.*\bdevice\s+\d+", re.MULTILINE)
OUT_OF_BOUNDS = re.compile(r"^# Out of bounds values\s*:\s*(\d+)\s+(OK|FAILED)", re.MULTILINE)
NO_GPU = re.compile(r"no CUDA-capable device|driver version is insufficient|libcuda\.so")


def problem(output: str, gpus: int) -> str:
    """Return the fault of a run; empty if all GPUs took part and all numbers were right."""
    ranks, bounds = len(RANK.findall(output)), OUT_OF_BOUNDS.search(output)
    if ranks != gpus:
        return f"{ranks} GPUs took part, not {gpus}"
    if not bounds:
        return "the numbers were not checked"
    return "" if bounds.groups() == ("0", "OK") else f"{bounds[1]} numbers are wrong"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpus", type=int, required=True)
    arguments = parser.parse_args()
    for size in sorted({1, arguments.gpus}):
        command = [PROGRAM, "-b", "8", "-e", "128M", "-f", "2", "-c", "1", "-g", str(size)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        print(done.stdout, flush=True)
        if done.returncode:
            return 2 if NO_GPU.search(done.stdout) else 1
        if reason := problem(done.stdout, size):
            print(f"all_reduce_perf over {size}: {reason}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
