"""SageMaker's model parallel library as the image has it."""

import importlib
import unittest
from importlib.metadata import version


def installed() -> str:
    return version("smdistributed-modelparallel")


def check_can_be_imported() -> None:
    import torch

    if not torch.cuda.is_available():
        reason = "no GPU in sight"
        raise unittest.SkipTest(reason)
    importlib.import_module("smdistributed.modelparallel.torch")
