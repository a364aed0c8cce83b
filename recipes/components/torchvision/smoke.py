"""Checks of torchvision."""

from importlib.metadata import version


def installed() -> str:
    return version("torchvision")


def check_compiled_operators_work() -> None:
    import torch
    from torchvision.ops import nms

    boxes = torch.tensor([[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 1.0], [2.0, 2.0, 3.0, 3.0]])
    assert nms(boxes, torch.tensor([0.5, 0.9, 0.7]), 0.5).tolist() == [1, 2]


def check_images_are_encoded_and_decoded() -> None:
    import torch
    from torchvision.io import decode_png, encode_png

    image = torch.arange(3 * 8 * 8, dtype=torch.uint8).reshape(3, 8, 8)
    assert torch.equal(decode_png(encode_png(image)), image)
