"""The component `batteries`, compared with the packages of AWS's training image."""

from bakehouse.catalog.catalog import load_catalog
from bakehouse.catalog.project import HOME
from bakehouse.catalog.python_lock import normal_name
from bakehouse.catalog.recipe import load_recipes
from bakehouse.resolve.resolver import resolve

AWS = """
    aiohttp bokeh boto3 botocore click cloudpickle cryptography deepspeed fastai gitpython imageio
    mako mlflow mpi4py msgpack numba opencv-python packaging pandas pillow plotly pyasn1
    python-multipart pyyaml requests s3fs sagemaker sagemaker-pytorch-training sagemaker-training
    scikit-learn scipy seaborn shap smclarify soupsieve sqlparse starlette torch torchaudio
    torchvision tornado urllib3
"""
"""Dependencies of AWS's image of PyTorch 2.13 for CPUs, with its extra `sagemaker`.

docker/pytorch/2.13/cpu/pyproject.toml of https://github.com/aws/deep-learning-containers, commit 027f24321a03
"""
OTHERS = ("awscli", "beautifulsoup4", "ipykernel")
"""Packages that users of AWS's other training images have."""
ABSENT = {
    "deepspeed": "the image `pytorch-deepspeed-cpu` has it",
    "fastai": "needs torchvision",
    "msgpack": "AWS pins it for deepspeed",
    "opencv-python": "opencv-python-headless brings the same module without windows",
    "python-multipart": "AWS pins it for fastai",
    "torch": "an artifact, not a locked package",
    "torchaudio": "its wheels for CPUs are in PyTorch's own index only",
    "torchvision": "its wheels for CPUs are in PyTorch's own index only",
}


def test_an_image_with_batteries_has_the_packages_of_the_image_of_aws() -> None:
    catalog = load_catalog([HOME / "recipes"])
    recipe = load_recipes([HOME / "recipes"], catalog)["pytorch-full-cpu"]
    resolution = resolve(recipe, catalog)
    packages = {normal_name(package.name) for owned in resolution.owners.values() for package in owned}
    assert {*AWS.split(), *OTHERS} - packages == {*ABSENT}
    assert "opencv-python-headless" in packages
