"""Versions in AWS's image for TensorFlow."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

PACKAGES = {
    "sagemaker-training": "sagemaker-training",
    "sagemaker-tensorflow-training": "sagemaker-tensorflow-training",
    "smdistributed-dataparallel": "smddp",
    "smdistributed-modelparallel": "smp",
    "horovod": "horovod",
}


def installed() -> str:
    import tensorflow

    return str(tensorflow.__version__).split("+")[0]


def provided() -> dict[str, str]:
    found = {
        "python": ".".join(platform.python_version_tuple()[:2]),
        "tensorflow": installed(),
        "glibc": platform.libc_ver()[1],
    }
    for package, name in PACKAGES.items():
        try:
            found[name] = version(package)
        except PackageNotFoundError:
            continue
    return found
