"""RMM as the image has it."""

import unittest
from importlib.metadata import distributions


def installed() -> str:
    found = {one.name: one.version for one in distributions()}
    (version,) = {found[name] for name in found if name.startswith("rmm-cu")}
    return version


def check_can_be_loaded() -> None:
    import rmm

    assert rmm.__version__


def check_allocates_on_gpu() -> None:
    import torch

    if not torch.cuda.is_available():
        reason = "no GPU in sight"
        raise unittest.SkipTest(reason)
    import rmm

    assert rmm.DeviceBuffer(size=1024).size == 1024
