"""Checks of DeepSpeed in an image without GPUs."""

from importlib.metadata import version


def installed() -> str:
    return version("deepspeed")


def check_operator_of_shared_memory_is_compiled() -> None:
    from deepspeed.git_version_info import installed_ops
    from deepspeed.ops.op_builder.cpu import ShareMemCommBuilder

    assert installed_ops["deepspeed_shm_comm"]
    assert ShareMemCommBuilder().load()
