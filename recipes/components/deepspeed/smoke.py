"""Checks of DeepSpeed."""

from importlib.metadata import version


def installed() -> str:
    return version("deepspeed")


def check_can_be_loaded() -> None:
    import deepspeed

    assert deepspeed.__version__
    assert callable(deepspeed.initialize)
