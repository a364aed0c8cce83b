"""Checks of torchaudio."""

from importlib.metadata import version


def installed() -> str:
    return version("torchaudio")


def check_compiled_operators_work() -> None:
    import torch
    from torchaudio.functional import lfilter

    filtered = lfilter(torch.ones(4), torch.tensor([1.0, 0.5]), torch.tensor([0.5, 0.0]), clamp=False)
    assert torch.allclose(filtered, torch.tensor([0.5, 0.25, 0.375, 0.3125]))
