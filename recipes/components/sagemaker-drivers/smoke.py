"""Checks of the programs that the drivers of SageMaker SDK v3 need."""

import shutil
import subprocess
import unittest
from pathlib import Path


def check_the_script_finds_python_and_pip() -> None:
    script = "command -v python3 || command -v python; command -v pip3 || command -v pip"
    programs = subprocess.run(["/bin/bash", "-c", script], capture_output=True, text=True, check=True).stdout
    assert len(programs.splitlines()) == 2, programs


def check_the_mpi_driver_finds_its_parts() -> None:
    if shutil.which("mpirun") is None:
        # An image without MPI: the check does not apply.
        reason = ""
        raise unittest.SkipTest(reason)
    import mpi4py
    import paramiko

    assert mpi4py.__version__
    assert paramiko.SSHClient
    assert Path("/usr/sbin/sshd").exists()
