"""Checks of mpi4py."""

from importlib.metadata import version


def installed() -> str:
    return version("mpi4py")


def check_finds_open_mpi() -> None:
    from mpi4py import MPI

    assert "Open MPI" in MPI.Get_library_version(), MPI.Get_library_version()
