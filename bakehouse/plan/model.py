"""What is to be built: images made of stages, each addressed by what goes into it."""

import re
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
from bakehouse.catalog.trim import TrimChoice
from bakehouse.util.hashing import key_of
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
class InstalledComponent:
    """One component as it is in an image."""

    component: str
    version: str
    variant: str
    smoke: Path | None = None
    """The component's smoke.py, on this machine."""
    provides: tuple[tuple[str, str], ...] = ()
    """What it brings under other names, such as `nccl`, with the versions declared."""

    @property
    def title(self) -> str:
        """Name, version and variant, such as `pytorch 2.13.0 (cpu-py311)`."""
        return f"{self.component} {self.version}{f' ({self.variant})' if self.variant else ''}"

    @property
    def label(self) -> str:
        """The same as a file name, such as `pytorch-2.13.0-cpu-py311`."""
        words = filter(None, (self.component, self.version, self.variant))
        return re.sub(r"[^A-Za-z0-9._+-]", "_", "-".join(words))


@dataclass(frozen=True, slots=True)
class Stage:
    """One component's build, ending in a tree under /out that the image receives as one layer."""

    name: str
    key: StageKey
    part: InstalledComponent
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
    debs_list: str = ""
    """Path in `inputs/` of the list of `debs`."""
    dropped: tuple[str, ...] = ()
    """Patterns of files that `finish-layer` removes, or keeps if they start with `!`."""
    layer: int = 0
    """Smaller numbers lie lower in an image."""

    @property
    def packages(self) -> str:
        """Name of the stage that downloads `debs`; empty if there are none."""
        return f"{self.name}-debs" if self.debs else ""

    @property
    def title(self) -> str:
        """Component, version and variant, such as `pytorch 2.13.0 (cpu-py311)`."""
        return self.part.title if self.name != REQUIREMENTS else "Python packages of the recipe"

    @property
    def finish(self) -> str:
        """The command that turns /out into a layer; it needs the mount of `bin/finish-layer`."""
        return wrapped(["finish-layer", self.name, *map(shlex.quote, self.dropped)], "        ", " \\")

    @property
    def requirements(self) -> str:
        """Path in `inputs/` of the requirements file of `wheels`."""
        return f"requirements/{self._label}.txt"

    @property
    def sources(self) -> str:
        """Path in `inputs/` of the requirements file of `sdists`."""
        return f"requirements/{self._label}-sources.txt"

    def file(self, name: str) -> str:
        """Path in `inputs/` of one of the component's files. Raises KeyError for an unknown name."""
        if name not in self.files:
            raise KeyError(name)
        return f"components/{self.name}/{name}"

    @property
    def inputs(self) -> dict[str, bytes]:
        """The files that its steps can read, by their paths in `inputs/`."""
        files = {self.file(name): content for name, content in self.files.items()}
        if self.wheels:
            files[self.requirements] = _requirements_file(self.wheels)
        if self.sdists:
            files[self.sources] = _requirements_file(self.sdists)
        if self.debs:
            files[self.debs_list] = debs_file(self.debs)
        return files

    @property
    def _label(self) -> str:
        """A name that no other list of packages has in any image."""
        if self.name == REQUIREMENTS:
            lines = [package.requirement for package in (*self.wheels, *self.sdists)]
            return f"{self.name}-{key_of(lines)[:8]}"
        return self.part.label


@dataclass(frozen=True, slots=True)
class Image:
    """An image to be built, resolved and addressed."""

    name: str
    key: ImageKey
    summary: str
    base: BootstrappedBase | RegistryBase
    parts: tuple[InstalledComponent, ...]
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
    base_part: InstalledComponent = InstalledComponent("", "", "")
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
    def toolchain_list(self) -> str:
        """Path in `inputs/` of the list of `toolchain_debs`."""
        return f"debs/{self.base_part.label}/toolchain.txt"

    @property
    def apt_list(self) -> str:
        """Path in `inputs/` of the list of `apt_debs`, which images with the same packages share."""
        return f"debs/{self.base_part.label}/image-{key_of([deb.sha256 for deb in self.apt_debs])[:8]}.txt"

    @property
    def inputs(self) -> dict[str, bytes]:
        """The package lists of its own steps, by their paths in `inputs/`."""
        lists = {self.toolchain_list: self.toolchain_debs, self.apt_list: self.apt_debs}
        return {path: debs_file(debs) for path, debs in lists.items() if debs}

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
    def all_parts(self) -> tuple[InstalledComponent, ...]:
        """The base and what was put on it."""
        return (self.base_part, *self.parts) if self.base_part.component else self.parts

    @property
    def download_bytes(self) -> int:
        """Bytes of all files that a build downloads, as far as the locks record them."""
        stages = self.stages
        packages = sum(one.bytes for stage in stages for one in (*stage.wheels, *stage.sdists))
        artifacts = sum(one.bytes or 0 for stage in stages for one in stage.artifacts.values())
        return packages + artifacts + sum(deb.bytes for deb in self.debs)

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


def wrapped(words: Iterable[str], indent: str, end: str = "", width: int = 100) -> str:
    """Join words by spaces; where a line gets long, `end` ends it and `indent` starts the next one."""
    lines: list[list[str]] = [[]]
    for word in words:
        if lines[-1] and sum(len(other) + 1 for other in lines[-1]) + len(word) > width:
            lines.append([])
        lines[-1].append(word)
    return f"{end}\n{indent}".join(" ".join(line) for line in lines)


def debs_file(debs: Iterable[Deb]) -> bytes:
    """A list of packages as `download-debs` reads it: `sha256 path [site]` lines."""
    rows = (f"{deb.sha256} {deb.path}{f' {deb.site}' if deb.site else ''}\n" for deb in debs)
    return "".join(rows).encode()


def _requirements_file(packages: Iterable[Package]) -> bytes:
    return "".join(f"{package.requirement}\n" for package in packages).encode()


def in_layers(stages: Iterable[Stage]) -> tuple[Stage, ...]:
    """Stages in the order of their layers; what users install is on top, as it may replace anything."""
    return tuple(sorted(stages, key=lambda stage: (stage.name == REQUIREMENTS, stage.layer)))


def ships(stage_text: str, name: str) -> bool:
    """Return whether the text of a component contains the stage of its name, which becomes a layer."""
    return re.search(rf" AS {re.escape(name)}$", stage_text, re.MULTILINE) is not None


def packages_below(stages: Iterable[Stage]) -> tuple[str, ...]:
    """The stages that end in Python packages: what is compiled against some of them needs them all."""
    return tuple(
        stage.name
        for stage in stages
        if "packages(" in stage.template and (stage.wheels or stage.sdists or stage.artifacts)
    )
