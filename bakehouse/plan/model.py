"""What is to be built: images made of stages, each addressed by what goes into it."""

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NewType

from bakehouse.catalog.apt_lock import Deb
from bakehouse.catalog.component import Artifact
from bakehouse.catalog.python_lock import Package
from bakehouse.catalog.recipe import FORMATS, Content
from bakehouse.catalog.size_budget import REQUIREMENTS, Budget
from bakehouse.catalog.trim import Choice as TrimChoice
from bakehouse.util.oci import Digest

StageKey = NewType("StageKey", str)
"""64 hex digits over everything that goes into a stage."""
ImageKey = NewType("ImageKey", str)
"""64 hex digits over everything that goes into an image."""


@dataclass(frozen=True, slots=True)
class BootstrappedBase:
    """A base made on this machine with mmdebstrap."""

    reference: str
    """`bakehouse/debian:12-<key8>`: what FROM names."""
    suite: str
    packages: tuple[str, ...]
    debs: tuple[Deb, ...] = ()
    """All that it is made of; empty where nothing of the suite is locked, and its mirrors decide."""


@dataclass(frozen=True, slots=True)
class RegistryBase:
    """A base pulled from an image registry."""

    reference: str
    digest: Digest | None
    """None where nobody knows it yet: refused by `push`."""
    locks_apt: bool = False
    """Whether all that steps add to it of the distribution are known files."""

    @property
    def pinned(self) -> str:
        return f"{self.reference}@{self.digest}" if self.digest else self.reference


@dataclass(frozen=True, slots=True)
class Part:
    """One component as it is in an image."""

    component: str
    version: str
    variant: str
    smoke: Path | None = None
    """The component's smoke.py, on this machine."""
    provides: tuple[tuple[str, str], ...] = ()
    """What it brings under other names, such as `nccl`, with the versions declared."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One component's build, ending in a tree under /out that the image receives as one layer."""

    name: str
    key: StageKey
    part: Part
    source: Path
    """The component's folder: where a failing line comes from."""
    template: str
    artifacts: Mapping[str, Artifact]
    wheels: tuple[Package, ...]
    sdists: tuple[Package, ...]
    build_apt: tuple[str, ...]
    facts: Mapping[str, str]
    files: Mapping[str, bytes]
    debs: tuple[Deb, ...] = ()
    """What `build_apt` adds to the toolchain, where it is locked."""
    trims: tuple[TrimChoice, ...] = ()
    """What it can go without."""
    dropped: tuple[str, ...] = ()
    """What `finish` is told to drop, and with `!` to keep."""
    layer: int = 0
    """Smaller numbers lie lower in an image."""

    @property
    def packages(self) -> str:
        """The name of the stage that has those files; empty where there are none."""
        return f"{self.name}-packages" if self.debs else ""

    @property
    def finish(self) -> str:
        """The command that makes a layer of what was installed."""
        return shlex.join(["finish", self.name, *self.dropped])


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
    stages: tuple[Stage, ...] = ()
    apt: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    library_path: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    content: Content = field(default_factory=Content)
    base_part: Part = Part("", "", "")
    base_facts: Mapping[str, str] = field(default_factory=dict)
    build_base: str = ""
    """What build stages start from, where it is not the base itself."""
    frozen: tuple[str, ...] = ()
    """Names and globs of the Python packages that the base has to keep."""
    toolchain: tuple[str, ...] = ()
    """The distribution's packages that build stages share."""
    gpu_architecture: str = ""
    """The GPUs that its parts have code for, as in `>=7.5,<10`; empty where they don't say."""
    required: tuple[str, ...] = ()
    """The smoke checks that have to have passed before it is released."""
    budgets: tuple[Budget, ...] = ()
    """What its parts may weigh; no part of its key."""
    format: str = FORMATS[0]
    """In what form it is stored and pushed."""
    unpinned: tuple[Artifact, ...] = ()
    """Artifacts whose sha256 nobody knows yet: built with a warning, refused by `push`."""
    apt_debs: tuple[Deb, ...] = ()
    """What `apt` adds to the base, where it is locked."""
    toolchain_debs: tuple[Deb, ...] = ()
    """What `toolchain` adds to the base, where it is locked."""

    @property
    def locks_apt(self) -> bool:
        """Whether each of the distribution's packages in it is a file that is known by its sha256."""
        return bool(self.base.debs) if isinstance(self.base, BootstrappedBase) else self.base.locks_apt

    @property
    def installs_apt(self) -> bool:
        """Whether it has a layer of the distribution's packages."""
        return bool(self.apt_debs) if self.locks_apt else bool(self.apt)

    @property
    def debs(self) -> tuple[Deb, ...]:
        """All of the distribution's packages that a build needs, each once."""
        base = self.base.debs if isinstance(self.base, BootstrappedBase) else ()
        stages = (deb for stage in self.stages for deb in stage.debs)
        return tuple(dict.fromkeys((*base, *self.toolchain_debs, *stages, *self.apt_debs)))

    @property
    def reference(self) -> str:
        """The name of the built image on this machine."""
        return f"bakehouse/{self.name}:{self.key[:8]}"

    @property
    def layers(self) -> tuple[Stage, ...]:
        """The stages in the order of their layers, lowest first."""
        return in_layers(self.stages)

    @property
    def names(self) -> tuple[str, str]:
        """All names that a build gives it, the one with its key first."""
        return self.reference, f"bakehouse/{self.name}:latest"

    @property
    def target(self) -> str:
        """Its name in a bake file, which takes no dots."""
        return self.name.replace(".", "_")

    @property
    def all_parts(self) -> tuple[Part, ...]:
        """The base and what was put on it."""
        return (self.base_part, *self.parts) if self.base_part.component else self.parts

    @property
    def wheel_bytes(self) -> int:
        """Bytes of all Python packages as downloaded: a floor for what the image will weigh."""
        return sum(one.bytes for stage in self.stages for one in (*stage.wheels, *stage.sdists))


@dataclass(frozen=True, slots=True)
class Plan:
    images: tuple[Image, ...]

    @property
    def stages(self) -> dict[StageKey, Stage]:
        """Every stage once, however many images use it."""
        return {stage.key: stage for image in self.images for stage in image.stages}


def in_layers(stages: Iterable[Stage]) -> tuple[Stage, ...]:
    """Stages in the order of their layers; what users install is on top, as it may replace anything."""
    return tuple(sorted(stages, key=lambda stage: (stage.name == REQUIREMENTS, stage.layer)))


def packages_below(stages: Iterable[Stage]) -> tuple[str, ...]:
    """The stages that end in Python packages: what is compiled against some of them needs them all."""
    return tuple(
        stage.name
        for stage in stages
        if "packages(" in stage.template and (stage.wheels or stage.sdists or stage.artifacts)
    )
