"""The plugin as the image has it. It can't tell its version."""

import ctypes


def check_can_be_loaded() -> None:
    """With its libfabric, and with the face that NCCL 2.10 looks for."""
    assert ctypes.CDLL("libnccl-net.so").ncclNetPlugin_v4
