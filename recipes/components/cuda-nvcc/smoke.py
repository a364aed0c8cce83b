"""Check that the CUDA compiler is only in build stages."""

import shutil
from importlib.metadata import PackageNotFoundError, version


def check_it_does_not_ship() -> None:
    assert shutil.which("nvcc") is None
    try:
        message = f"the image has nvidia-cuda-nvcc {version('nvidia-cuda-nvcc')}"
    except PackageNotFoundError:
        return
    raise AssertionError(message)
