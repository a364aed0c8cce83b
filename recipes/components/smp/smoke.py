"""Checks of SageMaker's model parallel library."""

import importlib
import unittest
from importlib.metadata import version


def installed() -> str:
    return version("smdistributed-modelparallel")


def check_can_be_imported() -> None:
    import torch

    if not torch.cuda.is_available():
        reason = "no GPU is available"
        raise unittest.SkipTest(reason)
    importlib.import_module("smdistributed.modelparallel.torch")
