"""GPUs of instance types, and whether a released image fits them.

The facts are the catalogue's, in `instance_gpus.json`: looking up an address has no time to read YAML.
"""

import json
import operator
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bakehouse.errors import Diagnostic, UsageError
from bakehouse.util.suggest import nearest

FILE = Path(__file__).parent / "data/instance_gpus.json"
_ARM = re.compile(r"ml\.(?:[a-z]+[0-9]+g[a-z]*|[a-z0-9]+-gb[0-9]+)\.")
"""Graviton's and Grace's types, as AWS names them."""
_NEURON = re.compile(r"ml\.(?:trn|inf)[0-9]")
_BOUND = re.compile(r"(?P<sign>~=|[=!]=|[<>]=?)\s*(?P<version>[0-9]+(?:\.[0-9]+)*)(?P<all>\.\*)?")
_FITS = {">=": operator.ge, "<=": operator.le, "<": operator.lt, ">": operator.gt}


@dataclass(frozen=True, slots=True)
class InstanceGpus:
    """The GPUs of an instance type."""

    name: str
    gpu: bool
    architecture: str = ""
    """Empty where it has no GPU, or where nobody has written down which."""

    def unfit(self, *, gpu: bool, architecture: str) -> str:
        """Why an image doesn't run on it, as a clause; empty where it does."""
        if gpu and not self.gpu:
            return f"is for GPUs, but `{self.name}` has none"
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
    if is_arm(name) or _NEURON.match(name):
        why = "its processor is Arm, the images are for x86" if is_arm(name) else "it has Neuron devices"
        hint = "use an instance type with NVIDIA GPUs or without GPUs"
        raise UsageError(Diagnostic(f"no image runs on `{name}`: {why}", hint=hint))
    known = _known()
    found = known.get(name)
    if found is None:
        hint = meant(name) or "name an image; `bake list` lists them"
        raise UsageError(Diagnostic(f"unknown instance type `{name}`", hint=hint))
    if found == "unknown":
        message = f"the catalogue does not record the GPUs of `{name}`"
        raise UsageError(Diagnostic(message, hint="name an image; `bake list` lists them"))
    return InstanceGpus(name, gpu=found != "none", architecture="" if found == "none" else found)


def is_arm(name: str) -> bool:
    """Return whether an instance type has an Arm processor; all images are for x86."""
    return _ARM.match(name) is not None


def meant(name: str) -> str:
    """A hint at the instance type that an unknown one was meant to be; empty where none is like it."""
    near = nearest(name, _known())
    return f"did you mean `{near}`?" if near else ""


@cache
def _known() -> dict[str, str]:
    """The architecture of each type's GPUs, `none` or `unknown`."""
    return dict(json.loads(FILE.read_text(encoding="utf-8")))


def is_within(architecture: str, ranges: str) -> bool:
    """Return whether an architecture is in a range such as `>=7.5,<10`; unreadable parts are ignored."""
    return all(_fits(architecture, bound) for bound in _BOUND.finditer(ranges))


def _fits(architecture: str, bound: re.Match[str]) -> bool:
    sign, version = bound["sign"], bound["version"]
    has, wanted = _numbers(architecture), _numbers(version)
    if compare := _FITS.get(sign):
        return bool(compare(has, wanted))
    told = version.count(".") + 1
    if sign == "~=":
        return has >= wanted and has[: told - 1] == wanted[: told - 1]
    digits = told if bound["all"] else len(wanted)
    return (has[:digits] == wanted[:digits]) == (sign == "==")


def _numbers(version: str) -> tuple[int, ...]:
    numbers = tuple(int(number) for number in version.split("."))
    return (*numbers, *(0,) * (4 - len(numbers)))
