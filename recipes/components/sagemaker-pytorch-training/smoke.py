"""Checks of the SageMaker toolkit for PyTorch."""

import importlib
import os
from importlib.metadata import version


def installed() -> str:
    return version("sagemaker-pytorch-training")


def check_training_module_can_be_loaded() -> None:
    module, function = os.environ["SAGEMAKER_TRAINING_MODULE"].split(":")
    assert callable(getattr(importlib.import_module(module), function))
