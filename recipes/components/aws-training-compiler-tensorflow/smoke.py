"""Versions in AWS's image with Training Compiler."""

from __future__ import annotations

import platform


def installed() -> str:
    import tensorflow

    return str(tensorflow.__version__).split("+")[0]


def provided() -> dict[str, str]:
    return {
        "python": ".".join(platform.python_version_tuple()[:2]),
        "tensorflow": installed(),
        "glibc": platform.libc_ver()[1],
    }
