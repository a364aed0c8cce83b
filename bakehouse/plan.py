"""Turns a Resolution into a Plan: stages addressed by content, images made of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NewType

StageKey = NewType("StageKey", str)
"""64 hex digits over everything that goes into a stage."""
ImageKey = NewType("ImageKey", str)
"""64 hex digits over everything that goes into an image."""
Sha256 = NewType("Sha256", str)
"""64 hex digits over the bytes of a file."""
Digest = NewType("Digest", str)
"""`sha256:` and 64 hex digits: an OCI object's address."""

PLATFORM = "linux/amd64"


@dataclass(frozen=True, slots=True)
class BootstrappedBase:
    """A base made on this machine with mmdebstrap."""

    reference: str
    """`bakehouse/debian:12-<key8>`: what FROM names."""
    suite: str
    packages: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RegistryBase:
    """A base pulled from an image registry."""

    reference: str
    digest: Digest | None
    """None where nobody knows it yet: refused by `push`."""


@dataclass(frozen=True, slots=True)
class Part:
    """One component as it is in an image."""

    component: str
    version: str
    variant: str
    smoke: Path | None = None
    """The component's smoke.py, on this machine."""


@dataclass(frozen=True, slots=True)
class Image:
    """An image to be built, resolved and addressed."""

    name: str
    key: ImageKey
    summary: str
    base: BootstrappedBase | RegistryBase
    parts: tuple[Part, ...]
    gpu: bool
    launchers: tuple[str, ...]
    """Which of `torchrun`, `mpirun` the image carries."""
    training_module: str | None
    """What SAGEMAKER_TRAINING_MODULE names; None is the plain toolkit."""
    entry_point: str | None = None
    """Training code baked at /opt/ml/code, as its own file name there."""
    environment: Mapping[str, str] | None = None

    @property
    def reference(self) -> str:
        """The name of the built image on this machine."""
        return f"bakehouse/{self.name}:{self.key[:8]}"
