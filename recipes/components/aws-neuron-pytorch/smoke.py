"""Versions in AWS's Neuron image for PyTorch, and imports that need no Neuron device."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import version


def provided() -> dict[str, str]:
    """Return versions without build tags, and that of torch without its patch release, which is unknown."""
    return {
        "python": ".".join(platform.python_version_tuple()[:2]),
        "glibc": platform.libc_ver()[1],
        "pytorch": ".".join(version("torch").split(".")[:2]),
        "torch-neuronx": version("torch-neuronx").partition("+")[0],
        "neuronx-cc": version("neuronx-cc").partition("+")[0],
    }


def check_framework_fits_pytorch() -> None:
    """A build for another PyTorch fails with an undefined symbol."""
    import torch_neuronx
    import torch_xla

    assert torch_neuronx.__name__
    assert torch_xla.__name__


def check_compiler_starts() -> None:
    subprocess.run(["neuronx-cc", "--version"], capture_output=True, check=True)
