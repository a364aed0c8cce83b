"""Checks of the additional packages of AWS's training images."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

MODULES = """
    bokeh boto3 bs4 click cloudpickle cv2 imageio ipykernel mlflow numba packaging pandas PIL plotly
    requests s3fs sagemaker scipy seaborn shap sklearn smclarify urllib3 yaml
"""


def installed() -> str:
    listing = Path("/usr/share/bakehouse/batteries").read_text()
    assert "/sagemaker-" in listing
    return "2026.11"


def check_all_modules_can_be_loaded() -> None:
    # matplotlib writes a cache of fonts
    with tempfile.TemporaryDirectory() as home:
        command = [sys.executable, "-c", f"import {', '.join(MODULES.split())}"]
        subprocess.run(command, env={**os.environ, "HOME": home}, check=True)


def check_awscli_runs() -> None:
    subprocess.run(["aws", "--version"], capture_output=True, check=True)


def check_a_model_is_trained_on_a_table() -> None:
    import pandas
    from sklearn.linear_model import LinearRegression

    table = pandas.DataFrame({"x": [1.0, 2.0, 3.0], "y": [2.0, 4.0, 6.0]})
    with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
        table.to_parquet(file.name)
        table = pandas.read_parquet(file.name)
    model = LinearRegression().fit(table[["x"]], table["y"])
    assert abs(model.coef_[0] - 2) < 1e-9


def check_images_are_resized() -> None:
    import cv2
    import numpy

    assert cv2.resize(numpy.zeros((8, 8, 3), numpy.uint8), (4, 4)).shape == (4, 4, 3)
