"""Checks of Megatron Core."""

from importlib.metadata import version


def installed() -> str:
    return version("megatron-core")


def check_extension_is_importable() -> None:
    """The data sets index their documents with it."""
    from megatron.core.datasets import helpers_cpp

    assert callable(helpers_cpp.build_sample_idx_int32)


def check_parallel_state_starts() -> None:
    """One process is a tensor, pipeline and data parallel group of its own."""
    import tempfile
    from pathlib import Path

    import torch
    from megatron.core import parallel_state

    with tempfile.TemporaryDirectory() as directory:
        store = torch.distributed.FileStore(str(Path(directory, "store")), 1)
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
        try:
            parallel_state.initialize_model_parallel(tensor_model_parallel_size=1)
            assert parallel_state.get_data_parallel_world_size() == 1
        finally:
            parallel_state.destroy_model_parallel()
            torch.distributed.destroy_process_group()
