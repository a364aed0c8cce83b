"""Check of RMM's library, which does not report its version."""

import ctypes


def check_can_be_loaded() -> None:
    """Load the library with the CUDA runtime that it was compiled for."""
    assert ctypes.CDLL("librmm.so").cnmemGetErrorString
