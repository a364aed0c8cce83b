"""Checks of the SageMaker Training Toolkit."""

import os
import shutil
from importlib.metadata import version
from pathlib import Path


def installed() -> str:
    return version("sagemaker-training")


def check_train_is_on_path() -> None:
    assert shutil.which("train") is not None


def check_directories_of_a_job_exist() -> None:
    """Without /opt/ml/output the toolkit cannot report a failure, and the job would exit with 0."""
    names = ["input/data", "model", "output/data"]
    if Path("/opt/ml/output").is_mount():
        # In a job, the platform's directory hides that of the image, and start-job adds `data`
        names[2] = "output"
    missing = [name for name in names if not Path("/opt/ml", name).is_dir()]
    assert not missing, missing


def check_code_folder_is_first_on_path() -> None:
    assert os.environ["PATH"].split(":")[0] == "/opt/ml/code"
    assert os.environ["SAGEMAKER_SUBMIT_DIRECTORY"] == "/opt/ml/code"
