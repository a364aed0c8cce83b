"""Checks of SageMaker's data parallel library."""

import importlib
import unittest
from importlib.metadata import version


def installed() -> str:
    return version("smdistributed-dataparallel")


def check_is_a_backend_of_torch() -> None:
    import torch

    if not torch.cuda.is_available():
        reason = "no GPU is available"
        raise unittest.SkipTest(reason)
    importlib.import_module("smdistributed.dataparallel.torch.torch_smddp")
