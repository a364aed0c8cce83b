"""Versions in AWS's image for PyTorch."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

PACKAGES = {
    "sagemaker-training": "sagemaker-training",
    "sagemaker-pytorch-training": "sagemaker-pytorch-training",
    "smdistributed-dataparallel": "smddp",
    "smdistributed-modelparallel": "smp",
    "horovod": "horovod",
}


def installed() -> str:
    import torch

    return str(torch.__version__).split("+")[0]


def provided() -> dict[str, str]:
    import torch

    found = {
        "python": ".".join(platform.python_version_tuple()[:2]),
        "pytorch": installed(),
        "glibc": platform.libc_ver()[1],
    }
    if torch.version.cuda:
        found["cuda"] = str(torch.version.cuda)
        found["nccl"] = ".".join(str(number) for number in torch.cuda.nccl.version())
        for package in ("nvidia-cudnn-cu13", "nvidia-cudnn-cu12"):
            try:
                found["cudnn"] = version(package)
            except PackageNotFoundError:
                continue
    for package, name in PACKAGES.items():
        try:
            found[name] = version(package)
        except PackageNotFoundError:
            continue
    return found
