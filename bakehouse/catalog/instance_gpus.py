"""GPUs and Neuron devices of instance types, and whether a released image fits them.

Image URI look-ups read `instance_gpus.json`, which is made from the catalogue, because YAML is too slow.
"""

import json
import operator
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bakehouse.errors import UsageError
from bakehouse.util.files import read_text
from bakehouse.util.oci import ARM64, PLATFORM
from bakehouse.util.suggest import nearest

FILE = Path(__file__).parent / "data/instance_gpus.json"
_TYPE = re.compile(r"ml\.[a-z][a-z0-9-]*\.(?:[1-9][0-9]*xlarge|xlarge|large|medium|small)")
"""Form of an instance type, as all types of SageMaker have it."""
_ARM = re.compile(r"ml\.(?:[a-z]+[0-9]+g[a-z]*|[a-z0-9]+-gb[0-9]+)\.")
"""Instance types with Graviton or Grace processors."""
_INFERENTIA = re.compile(r"ml\.inf[0-9]")
NEURON = "neuron "
"""Start of the architecture of types with Neuron devices in `instance_gpus.json`."""
_BOUND = re.compile(r"(?P<sign>~=|[=!]=|[<>]=?)\s*(?P<version>[0-9]+(?:\.[0-9]+)*)(?P<all>\.\*)?")
_FITS = {">=": operator.ge, "<=": operator.le, "<": operator.lt, ">": operator.gt}


@dataclass(frozen=True, slots=True)
class InstanceGpus:
    """The accelerators of an instance type: GPUs or Neuron devices."""

    name: str
    gpu: bool
    architecture: str = ""
    """Empty if it is unknown or there is no GPU."""
    neuron_architecture: str = ""
    """Version of its NeuronCores; empty without Neuron devices."""
    platform: str = PLATFORM

    def unfit(
        self, *, gpu: bool, architecture: str, neuron_architecture: str = "", platform: str = PLATFORM
    ) -> str:
        """Return why an image does not run on it, as a clause; empty if it does.

        `architecture` and `neuron_architecture` are the ranges that the image supports. An image without the
        second does not use Neuron devices.
        """
        if platform != self.platform:
            return f"is for {platform}, but `{self.name}` is {self.platform}"
        if neuron_architecture and not self.neuron_architecture:
            return f"needs Neuron devices, but `{self.name}` has none"
        if self.neuron_architecture and not neuron_architecture:
            return f"does not use Neuron devices, but `{self.name}` has them"
        if self.neuron_architecture and not is_within(self.neuron_architecture, neuron_architecture):
            return (
                f"supports NeuronCores of version {neuron_architecture}, "
                f"but `{self.name}` has version {self.neuron_architecture}"
            )
        if gpu and not self.gpu:
            return f"needs GPUs, but `{self.name}` has none"
        if self.gpu and not gpu:
            return f"is for CPUs only, but `{self.name}` has GPUs"
        if self.architecture and not is_within(self.architecture, architecture):
            return (
                f"has code for GPUs of architecture {architecture}, but `{self.name}` has {self.architecture}"
            )
        return ""


def find_gpus(name: str) -> InstanceGpus:
    """Return the GPUs of an instance type or of the SDK's local mode. Raises UsageError if unknown."""
    if name in ("local", "local_gpu"):
        return InstanceGpus(name, gpu=name == "local_gpu")
    if _INFERENTIA.match(name):
        raise UsageError(
            f"no training job runs on `{name}`: SageMaker offers it for inference only",
            hint="use a type with Trainium, such as `ml.trn1.32xlarge`",
        )
    architecture = _architectures().get(name)
    if architecture is None:
        raise UsageError(
            f"unknown instance type `{name}`",
            hint=instance_type_hint(name) or "name an image; `bake list` lists them",
        )
    if architecture == "unknown":
        raise UsageError(
            f"the catalogue does not record the GPUs of `{name}`",
            hint="name an image; `bake list` lists them",
        )
    if architecture.startswith(NEURON):
        return InstanceGpus(name, gpu=False, neuron_architecture=architecture.removeprefix(NEURON))
    is_cpu = architecture == "none"
    return InstanceGpus(
        name, gpu=not is_cpu, architecture="" if is_cpu else architecture, platform=platform_of(name)
    )


def platform_of(name: str) -> str:
    """Return the platform of the images that an instance type runs."""
    return ARM64 if _ARM.match(name) else PLATFORM


def is_instance_type(name: str) -> bool:
    """Return whether a name has the form of an instance type; SageMaker may have more than the catalogue."""
    return bool(_TYPE.fullmatch(name))


def instance_type_hint(name: str) -> str:
    """Return a hint with the types of a family, or with the most similar type; empty if none is similar."""
    short = name.lower().removeprefix("ml.").strip(".")
    family = f"ml.{short}."
    if types := sorted((known for known in _architectures() if known.startswith(family)), key=_size):
        names = ", ".join(f"`{known}`" for known in types)
        return f"use one of {names}" if types[1:] else f"did you mean {names}?"
    near = nearest(short, (known.removeprefix("ml.") for known in _architectures()))
    # Sizes such as `large` are the longer part of a name: the families have to be similar, too.
    is_similar = "." not in short or nearest(short.partition(".")[0], [near.partition(".")[0]], 0.5)
    return f"did you mean `ml.{near}`?" if near and is_similar else ""


def _size(name: str) -> tuple[int, str]:
    """Return a key that sorts the types of a family by size."""
    size = name.rpartition(".")[2].removesuffix("xlarge")
    return (int(size or 1) if size.isdigit() or not size else 0, name)


@cache
def _architectures() -> dict[str, str]:
    """Return the accelerator architecture of each instance type: `8.0`, `neuron 2`, `none` or `unknown`."""
    return dict(json.loads(read_text(FILE)))


def is_within(architecture: str, ranges: str) -> bool:
    """Return whether an architecture is in a range such as `>=7.5,<10`; unreadable parts are ignored."""
    return all(_fits(architecture, bound) for bound in _BOUND.finditer(ranges))


def _fits(architecture: str, bound: re.Match[str]) -> bool:
    sign, version = bound["sign"], bound["version"]
    actual, limit = _numbers(architecture), _numbers(version)
    if compare := _FITS.get(sign):
        return bool(compare(actual, limit))
    digits = version.count(".") + 1
    if sign == "~=":
        return actual >= limit and actual[: digits - 1] == limit[: digits - 1]
    if not bound["all"]:
        digits = len(limit)
    return (actual[:digits] == limit[:digits]) == (sign == "==")


def _numbers(version: str) -> tuple[int, ...]:
    numbers = tuple(int(number) for number in version.split("."))
    return (*numbers, *(0,) * (4 - len(numbers)))
