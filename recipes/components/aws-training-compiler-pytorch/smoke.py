"""Versions in AWS's image with Training Compiler."""

from __future__ import annotations

import platform


def installed() -> str:
    import torch

    return str(torch.__version__).split("+")[0]


def provided() -> dict[str, str]:
    return {
        "python": ".".join(platform.python_version_tuple()[:2]),
        "pytorch": installed(),
        "glibc": platform.libc_ver()[1],
    }
