"""Plans of builds: images made of stages, each addressed by a key over its inputs."""

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NewType

from bakehouse.catalog.apt_lock import Deb
from bakehouse.catalog.component import Artifact
from bakehouse.catalog.python_lock import Package
from bakehouse.catalog.recipe import FORMATS, Content
from bakehouse.catalog.size_budget import REQUIREMENTS, Budget
from bakehouse.catalog.trim import TrimChoice
from bakehouse.catalog.user_smoke import UserSmoke
from bakehouse.util.hashing import key_of
from bakehouse.util.oci import PLATFORM, Digest

StageKey = NewType("StageKey", str)
"""64 hex digits: a hash of all inputs of a stage."""
ImageKey = NewType("ImageKey", str)
"""64 hex digits: a hash of all inputs of an image."""
DNF_TEMPLATE = "dnf.j2"
"""Macros of images whose steps install packages with dnf; part of the keys of these images alone."""


@dataclass(frozen=True, slots=True)
class BootstrappedBase:
    """A base made on this machine with mmdebstrap."""

    reference: str
    """The name in FROM, such as `bakehouse/debian:12-<key8>`."""
    suite: str
    packages: tuple[str, ...]
    debs: tuple[Deb, ...] = ()
    """All packages of the base; empty if the suite has no lock, so that mirrors decide the versions."""
    platform: str = PLATFORM


@dataclass(frozen=True, slots=True)
class RegistryBase:
    """A base pulled from an image registry."""

    reference: str
    digest: Digest | None
    """None if it is not recorded yet; `push` refuses such images."""
    locks_apt: bool = False
    """True if all distribution packages that steps add to the base are locked."""

    @property
    def pinned(self) -> str:
        return f"{self.reference}@{self.digest}" if self.digest else self.reference


@dataclass(frozen=True, slots=True)
class InstalledComponent:
    """A component in an image."""

    component: str
    version: str
    variant: str
    smoke: Path | None = None
    """The component's smoke.py, on this machine."""
    provides: tuple[tuple[str, str], ...] = ()
    """Other names that the component provides, such as `nccl`, with the declared versions."""

    @property
    def title(self) -> str:
        """Name, version and variant, such as `pytorch 2.13.0 (cpu-py311)`."""
        return f"{self.component} {self.version}{f' ({self.variant})' if self.variant else ''}"

    @property
    def label(self) -> str:
        """The title as a file name, such as `pytorch-2.13.0-cpu-py311`."""
        return _file_name("-".join(filter(None, (self.component, self.version, self.variant))))


@dataclass(frozen=True, slots=True)
class Stage:
    """The build of one component; its result is a tree in /out, which becomes one layer of the image."""

    name: str
    key: StageKey
    part: InstalledComponent
    source: Path
    """The directory of the component, for errors with a location."""
    template: str
    artifacts: Mapping[str, Artifact]
    wheels: tuple[Package, ...]
    sdists: tuple[Package, ...]
    build_apt: tuple[str, ...]
    facts: Mapping[str, str]
    files: Mapping[str, bytes]
    debs: tuple[Deb, ...] = ()
    """Locked packages that `build_apt` adds to the toolchain."""
    trims: tuple[TrimChoice, ...] = ()
    """Trims of the component and whether they are applied."""
    debs_list: str = ""
    """Path in `inputs/` of the list of `debs`."""
    dropped: tuple[str, ...] = ()
    """Patterns of files that `finish-layer` removes, or keeps if they start with `!`."""
    layer: int = 0
    """Position among the layers of an image; smaller numbers are lower."""
    is_partial: bool = False
    """Other stages or the base contain some packages of the component's lock."""

    @property
    def packages(self) -> str:
        """Name of the stage that downloads `debs`; empty if there are none."""
        return f"{self.name}-debs" if self.debs else ""

    @property
    def installs_packages(self) -> bool:
        """Return whether the stage installs Python packages or wheels."""
        return "packages(" in self.template and bool(self.wheels or self.sdists or self.artifacts)

    @property
    def title(self) -> str:
        """Component, version and variant, such as `pytorch 2.13.0 (cpu-py311)`."""
        return self.part.title if self.name != REQUIREMENTS else "Python packages of the recipe"

    @property
    def finish(self) -> str:
        """The command that prepares /out as a layer; the step must mount `bin/finish-layer`."""
        return wrapped(["finish-layer", self.name, *map(shlex.quote, self.dropped)], "        ", " \\")

    @property
    def requirements(self) -> str:
        """Path in `inputs/` of the requirements file of `wheels`. Raises LookupError if there are none."""
        if not self.wheels:
            message = f"{self.part.title} locks no wheels"
            raise LookupError(message)
        return f"requirements/{self._label}.txt"

    @property
    def wheels_stage(self) -> str:
        """Name of the stage that makes wheels of `sdists`; empty if there are none."""
        return f"{self.name}-wheels" if self.sdists else ""

    @property
    def sdists_list(self) -> str:
        """Path in `inputs/` of the list of `sdists`. Raises LookupError if there are none."""
        if not self.sdists:
            message = f"{self.part.title} locks no source distributions"
            raise LookupError(message)
        return f"requirements/{self._label}-sdists.txt"

    def file(self, name: str) -> str:
        """Return the path in `inputs/` of a file of the component. Raises KeyError for an unknown name."""
        if name not in self.files:
            raise KeyError(name)
        return f"components/{self.name}/{name}"

    @property
    def inputs(self) -> dict[str, bytes]:
        """Files that the steps of the stage can read, by path in `inputs/`."""
        files = {self.file(name): content for name, content in self.files.items()}
        if self.wheels:
            files[self.requirements] = _requirements_file(self.wheels)
        if self.sdists:
            files[self.sdists_list] = _requirements_file(self.sdists)
        if self.debs:
            files[self.debs_list] = debs_file(self.debs)
        return files

    @property
    def _label(self) -> str:
        """A name that is unique among the package lists of all images."""
        name = self.name if self.name == REQUIREMENTS else self.part.label
        if self.name != REQUIREMENTS and not self.is_partial:
            return name
        lines = [package.requirement for package in (*self.wheels, *self.sdists)]
        return f"{name}-{key_of(lines)[:8]}"


@dataclass(frozen=True, slots=True)
class Image:
    """A resolved image with its key."""

    name: str
    key: ImageKey
    summary: str
    base: BootstrappedBase | RegistryBase
    parts: tuple[InstalledComponent, ...]
    gpu: bool
    launchers: tuple[str, ...]
    """The launchers in the image: `torchrun`, `mpirun` or both."""
    training_module: str | None
    """Value of SAGEMAKER_TRAINING_MODULE; None for the plain SageMaker Training Toolkit."""
    entry_point: str | None = None
    """File name of the training code that the image contains in /opt/ml/code."""
    environment: Mapping[str, str] | None = None
    stages: tuple[Stage, ...] = ()
    apt: tuple[str, ...] = ()
    """Distribution packages of the image, for any package manager; templates use this name."""
    uses_dnf: bool = False
    """Steps of the image or of its build stages install packages with dnf."""
    path: tuple[str, ...] = ()
    library_path: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    content: Content = field(default_factory=Content)
    base_part: InstalledComponent = InstalledComponent("", "", "")
    base_facts: Mapping[str, str] = field(default_factory=dict)
    build_base: str = ""
    """Image that build stages start from; empty if it is the base."""
    frozen: tuple[str, ...] = ()
    """Names and globs of Python packages of the base that must not change."""
    toolchain: tuple[str, ...] = ()
    """Distribution packages that build stages share."""
    gpu_architecture: str = ""
    """GPU architectures that the components support, such as `>=7.5,<10`; empty if none declares them."""
    gpu_targets: tuple[tuple[str, str], ...] = ()
    """The instance types of the recipe's `targets` with their GPU architectures; not part of the key."""
    neuron_architecture: str = ""
    """NeuronCore versions that the components support, such as `>=2,<5`; empty without Neuron support."""
    required: tuple[str, ...] = ()
    """Smoke checks that must pass before a release."""
    efa_bandwidth: int = 0
    """GB/s on the bus that the check `efa_bandwidth` must reach; 0 without a limit. Not part of the key."""
    budgets: tuple[Budget, ...] = ()
    """Size limits of components; not part of the key."""
    smoke: UserSmoke | None = None
    """The user's own smoke test; not part of the key."""
    recipe_directory: str = "recipes"
    """Directory of the recipe, relative to the project; not part of the key."""
    known_problems: tuple[tuple[str, str], ...] = ()
    """Reported problems of the combination, each with its source; not part of the key."""
    format: str = FORMATS[0]
    """Format of the stored and pushed image."""
    unpinned: tuple[Artifact, ...] = ()
    """Artifacts without a sha256. `build` warns of them, and `push` refuses the image."""
    apt_debs: tuple[Deb, ...] = ()
    """Locked packages that `apt` adds to the base."""
    apt_list: str = ""
    """Path in `inputs/` of the list of `apt_debs`, which images with the same packages share."""
    toolchain_debs: tuple[Deb, ...] = ()
    """Locked packages that `toolchain` adds to the base."""
    toolchain_list: str = ""
    """Path in `inputs/` of the list of `toolchain_debs`."""
    platform: str = PLATFORM

    @property
    def locks_apt(self) -> bool:
        """Return whether all distribution packages of the image are locked by sha256."""
        return bool(self.base.debs) if isinstance(self.base, BootstrappedBase) else self.base.locks_apt

    @property
    def installs_apt(self) -> bool:
        """Return whether the image has a layer of distribution packages."""
        return bool(self.apt_debs) if self.locks_apt else bool(self.apt)

    @property
    def debs(self) -> tuple[Deb, ...]:
        """All locked distribution packages that a build needs, without duplicates."""
        base = self.base.debs if isinstance(self.base, BootstrappedBase) else ()
        stages = (deb for stage in self.stages for deb in stage.debs)
        return tuple(dict.fromkeys((*base, *self.toolchain_debs, *stages, *self.apt_debs)))

    @property
    def reference(self) -> str:
        """The name of the built image on this machine."""
        return f"bakehouse/{self.name}:{self.key[:8]}"

    @property
    def inputs(self) -> dict[str, bytes]:
        """Package lists of the steps that belong to no component, by path in `inputs/`."""
        lists = {self.toolchain_list: self.toolchain_debs, self.apt_list: self.apt_debs}
        return {path: debs_file(debs) for path, debs in lists.items() if debs}

    @property
    def layers(self) -> tuple[Stage, ...]:
        """The stages in the order of their layers, lowest first."""
        return in_layers(self.stages)

    @property
    def names(self) -> tuple[str, str]:
        """All tags that a build sets, the one with the key first."""
        return self.reference, f"bakehouse/{self.name}:latest"

    @property
    def target(self) -> str:
        """Name in a bake file, which does not allow dots."""
        return self.name.replace(".", "_")

    @property
    def all_parts(self) -> tuple[InstalledComponent, ...]:
        """The base and the components on it."""
        return (self.base_part, *self.parts) if self.base_part.component else self.parts

    @property
    def download_bytes(self) -> int:
        """Bytes of all files that a build downloads, as far as the locks record them."""
        packages = self.wheel_bytes
        files = (file for stage in self.stages for file in stage.artifacts.values())
        artifacts = sum(file.bytes or 0 for file in files)
        return packages + artifacts + sum(deb.bytes for deb in self.debs)

    @property
    def wheel_bytes(self) -> int:
        """Bytes of all Python packages as downloaded: a lower bound of the image size."""
        packages = (package for stage in self.stages for package in (*stage.wheels, *stage.sdists))
        return sum(package.bytes for package in packages)


@dataclass(frozen=True, slots=True)
class Plan:
    images: tuple[Image, ...]

    @property
    def stages(self) -> dict[StageKey, Stage]:
        """Stages of all images by key, without duplicates."""
        return {stage.key: stage for image in self.images for stage in image.stages}


def wrapped(words: Iterable[str], indent: str, end: str = "", width: int = 100) -> str:
    """Join words by spaces and wrap long lines; `end` ends a line and `indent` starts the next one."""
    pieces: list[str] = []
    column = 0
    for word in words:
        if pieces:
            fits = column + len(word) <= width
            pieces.append(" " if fits else f"{end}\n{indent}")
            column = column if fits else 0
        pieces.append(word)
        column += len(word) + 1
    return "".join(pieces)


@lru_cache(4096)
def _file_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._+-]", "_", text)


def debs_file(debs: Iterable[Deb]) -> bytes:
    """Return the input of `download-debs`: one line `sha256 path [site]` per package."""
    rows = (f"{deb.sha256} {deb.path}{f' {deb.site}' if deb.site else ''}\n" for deb in debs)
    return "".join(rows).encode()


def _requirements_file(packages: Iterable[Package]) -> bytes:
    return "".join(f"{package.requirement}\n" for package in packages).encode()


def in_layers(stages: Iterable[Stage]) -> tuple[Stage, ...]:
    """Sort stages by layer. Packages of the recipe are on top, because they can replace any file."""
    return tuple(sorted(stages, key=lambda stage: (stage.name == REQUIREMENTS, stage.layer)))


def ships(stage_text: str, name: str) -> bool:
    """Return whether the text of a component defines the stage that becomes its layer."""
    return f" AS {name}\n" in f"{stage_text}\n"
