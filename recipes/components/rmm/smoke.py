"""Checks of RMM."""

import unittest
from importlib.metadata import distributions


def installed() -> str:
    versions = {package.name: package.version for package in distributions()}
    (version,) = {versions[name] for name in versions if name.startswith("rmm-cu")}
    return version


def check_can_be_loaded() -> None:
    import rmm

    assert rmm.__version__


def check_allocates_on_gpu() -> None:
    import torch

    if not torch.cuda.is_available():
        reason = "no GPU is available"
        raise unittest.SkipTest(reason)
    import rmm

    assert rmm.DeviceBuffer(size=1024).size == 1024
