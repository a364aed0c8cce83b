"""AWS's image as it is."""

from __future__ import annotations

import platform
from importlib.metadata import version


def installed() -> str:
    import torch

    return ".".join(str(torch.__version__).split(".")[:2])


def provided() -> dict[str, str]:
    import torch

    return {
        "python": ".".join(platform.python_version_tuple()[:2]),
        "pytorch": str(torch.__version__).split("+")[0],
        "cuda": str(torch.version.cuda),
        "nccl": ".".join(str(number) for number in torch.cuda.nccl.version()),
        "cudnn": version("nvidia-cudnn-cu13"),
        "glibc": platform.libc_ver()[1],
        "sagemaker-training": version("sagemaker-training"),
        "sagemaker-pytorch-training": version("sagemaker-pytorch-training"),
    }
