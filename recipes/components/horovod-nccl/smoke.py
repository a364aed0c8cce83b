"""Checks of Horovod with NCCL."""

from __future__ import annotations

import importlib
import importlib.util
from importlib.metadata import version


def installed() -> str:
    return version("horovod")


def check_adds_up_over_mpi() -> None:
    """Sum over one rank, with the library that MPI jobs load."""
    name = "torch" if importlib.util.find_spec("torch") else "tensorflow"
    horovod = importlib.import_module(f"horovod.{name}")
    framework = importlib.import_module(name)
    assert horovod.mpi_built(), "Horovod was compiled without MPI"
    assert horovod.nccl_built(), "Horovod was compiled without NCCL"
    horovod.init()
    assert horovod.size() == 1
    summed = horovod.allreduce(framework.ones(3), op=horovod.Sum)
    assert [float(value) for value in summed] == [1.0, 1.0, 1.0]
    horovod.shutdown()
