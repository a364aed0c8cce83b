"""The component `batteries`, compared with the packages of AWS's training images."""

import pytest

from bakehouse.catalog.python_lock import normal_name
from tests.support import own_recipes

AWS = {
    "pytorch": """
        aiohttp bokeh boto3 botocore click cloudpickle cryptography deepspeed fastai gitpython imageio
        mako mlflow mpi4py msgpack numba opencv-python packaging pandas pillow plotly pyasn1
        python-multipart pyyaml requests s3fs sagemaker sagemaker-pytorch-training sagemaker-training
        scikit-learn scipy seaborn shap smclarify soupsieve sqlparse starlette torch torchaudio
        torchvision tornado urllib3
    """,
    "tensorflow": """
        absl-py aiohttp awscli bokeh boto3 botocore cloudpickle cryptography gitpython h5py imageio
        jupyterlab keras mistune mlflow mpi4py numba numpy opencv-python packaging pandas pillow plotly
        protobuf psutil pyasn1 pybind11 pyjwt python-dateutil requests s3fs sagemaker
        sagemaker-experiments sagemaker-studio-analytics-extension sagemaker-studio-sparkmagic-lib
        sagemaker-tensorflow-training sagemaker-training scikit-learn scipy seaborn shap smclarify
        soupsieve sparkmagic sqlparse starlette tensorflow-cpu tensorflow-datasets tensorflow-io torch
        tornado urllib3 werkzeug y-py
    """,
}
"""Dependencies of AWS's images of PyTorch 2.13 and TensorFlow 2.21 for CPUs, with their extra `sagemaker`.

docker/{pytorch/2.13,tensorflow/2.21}/cpu/pyproject.toml of https://github.com/aws/deep-learning-containers,
commits 027f24321a03 and 16ee598d57
"""
OTHERS = ("awscli", "beautifulsoup4", "ipykernel")
"""Packages that users of AWS's other training images have."""
NOTEBOOK = "for notebooks in SageMaker Studio, not for jobs"
ABSENT = {
    "pytorch": {
        "opencv-python": "opencv-python-headless brings the same module without windows",
        "torch": "an artifact, not a locked package",
    },
    "tensorflow": {
        "jupyterlab": NOTEBOOK,
        "mistune": "AWS pins it for jupyterlab",
        "opencv-python": "opencv-python-headless brings the same module without windows",
        "pyjwt": "AWS pins it for jupyterlab",
        "sagemaker-experiments": "without a release since 2023",
        "sagemaker-studio-analytics-extension": NOTEBOOK,
        "sagemaker-studio-sparkmagic-lib": NOTEBOOK,
        "sparkmagic": NOTEBOOK,
        "tensorflow-io": "compiled for TensorFlow 2.16",
        "torch": "the images of PyTorch have it",
        "y-py": NOTEBOOK,
    },
}


@pytest.mark.parametrize("framework", AWS)
def test_an_image_with_batteries_has_the_packages_of_the_image_of_aws(framework: str) -> None:
    resolution = own_recipes.resolved(f"{framework}-full-cpu")
    packages = {normal_name(package.name) for owned in resolution.owners.values() for package in owned}
    packages |= {normal_name(package.name) for package in resolution.user_packages}
    assert {*AWS[framework].split(), *OTHERS} - packages == {*ABSENT[framework]}
    assert "opencv-python-headless" in packages
