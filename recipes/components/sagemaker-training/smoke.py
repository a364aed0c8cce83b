"""Checks of the SageMaker Training Toolkit."""

import os
import shutil
from importlib.metadata import version


def installed() -> str:
    return version("sagemaker-training")


def check_train_is_on_path() -> None:
    assert shutil.which("train") is not None


def check_code_folder_is_first_on_path() -> None:
    assert os.environ["PATH"].split(":")[0] == "/opt/ml/code"
    assert os.environ["SAGEMAKER_SUBMIT_DIRECTORY"] == "/opt/ml/code"
