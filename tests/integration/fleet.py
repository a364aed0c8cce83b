"""The images that any machine can build."""

from dataclasses import dataclass

from bakehouse.builder.built_image import BuiltImage
from bakehouse.builder.timings import StepTime

FLEET = ("mpi-cpu", "pytorch-cpu", "tensorflow-cpu")


@dataclass(frozen=True)
class Fleet:
    """The images that any machine can build, and the steps of the one call that built them."""

    images: dict[str, BuiltImage]
    steps: tuple[StepTime, ...]
