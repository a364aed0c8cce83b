"""Checks of the additional packages of AWS's training images."""

import base64
import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest
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


def check_files_are_encrypted_and_searched_after_tensorflow() -> None:
    """TensorFlow's BoringSSL and RE2 replace those of pyarrow that is imported later."""
    if importlib.util.find_spec("tensorflow") is None:
        # An image without TensorFlow: the check does not apply.
        reason = ""
        raise unittest.SkipTest(reason)
    # In a process of its own, because other checks import pyarrow first
    program = "import tensorflow, runpy, sys; runpy.run_path(sys.argv[1])['encrypt_and_search']()"
    subprocess.run([sys.executable, "-c", program, __file__], check=True)


def encrypt_and_search() -> None:
    import pyarrow
    from pyarrow import compute, parquet
    from pyarrow.parquet import encryption

    class Keys(encryption.KmsClient):  # type: ignore[misc]
        def wrap_key(self, key: bytes, master: str) -> bytes:
            return base64.b64encode(key)

        def unwrap_key(self, wrapped: bytes, master: str) -> bytes:
            return base64.b64decode(wrapped)

    factory, connection = (
        encryption.CryptoFactory(lambda configuration: Keys()),
        encryption.KmsConnectionConfig(),
    )
    table = pyarrow.table({"text": [str(number) for number in range(10_000)]})
    for algorithm in ("AES_GCM_V1", "AES_GCM_CTR_V1"):
        plan = encryption.EncryptionConfiguration(
            footer_key="footer", column_keys={"column": ["text"]}, encryption_algorithm=algorithm
        )
        with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
            properties = factory.file_encryption_properties(connection, plan)
            with parquet.ParquetWriter(file.name, table.schema, encryption_properties=properties) as writer:
                writer.write_table(table)
            keys = factory.file_decryption_properties(connection)
            assert parquet.ParquetFile(file.name, decryption_properties=keys).read().equals(table), algorithm
    assert compute.sum(compute.match_substring_regex(table["text"], "^[12].*9$")).as_py() == 222
    assert compute.replace_substring_regex(table["text"][:12], "(.)0", r"\1x").to_pylist()[10] == "1x"
