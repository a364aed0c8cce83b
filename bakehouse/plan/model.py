"""Plans of builds: images made of stages, each identified by the key of its last step."""

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NewType

from bakehouse import __version__
from bakehouse.catalog.apt_lock import Deb
from bakehouse.catalog.component import Artifact
from bakehouse.catalog.python_lock import Package
from bakehouse.catalog.recipe import FORMATS, Content
from bakehouse.catalog.size_budget import REQUIREMENTS, Budget
from bakehouse.catalog.trim import TrimChoice
from bakehouse.catalog.user_smoke import UserSmoke
from bakehouse.plan import base_steps
from bakehouse.plan.image_layer import ImageLayer
from bakehouse.plan.known_facts import NOTHING, KnownFacts
from bakehouse.plan.required_imports import RequiredImport
from bakehouse.plan.wheel_layers import LARGE_BYTES, wheel_layers
from bakehouse.util.hashing import key_of
from bakehouse.util.oci import PLATFORM, Digest

StageKey = NewType("StageKey", str)
"""64 hex digits: the key of the last step of a stage."""
ImageKey = NewType("ImageKey", str)
"""64 hex digits: a hash of the last step of an image and of its configuration without labels."""
DESCRIPTION_LABEL = "org.opencontainers.image.description"
"""Label with the summary of an image."""
OWN_PYTHON = "python"
"""The component whose packages are in /opt/venv."""
LATEST = "latest"
"""Tag of the last build of an image."""
DNF_TEMPLATE = "dnf.j2"
"""Macros of images whose steps install packages with dnf."""


@dataclass(frozen=True, slots=True)
class BootstrappedBase:
    """A base that BuildKit makes from locked Debian packages."""

    reference: str
    """The name in FROM, such as `bakehouse/debian:12-<key8>`."""
    suite: str
    packages: tuple[str, ...]
    debs: tuple[Deb, ...] = ()
    """All packages of the base; empty if the suite has no lock, so that the base cannot be made."""
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
    gpu: Path | None = None
    """The gpu.py that uses all GPUs in an image with the component, on this machine."""

    @property
    def title(self) -> str:
        """Name, version and variant, such as `pytorch 2.13.0 (cpu-py311)`."""
        return f"{self.component} {self.version_text}"

    @property
    def version_text(self) -> str:
        """Version and variant, such as `2.13.0 (cpu-py311)`."""
        return f"{self.version} ({self.variant})" if self.variant else self.version

    @property
    def label(self) -> str:
        """The title as a file name, such as `pytorch-2.13.0-cpu-py311`."""
        return _file_name("-".join(filter(None, (self.component, self.version, self.variant))))


@lru_cache(64)
def key_of_bootstrapped(lock: str, packages: tuple[str, ...], debs: tuple[Deb, ...]) -> str:
    """Return the key of a bootstrapped base; `lock` is the name of its lock of distribution packages."""
    return key_of(lock, packages, [deb.sha256 for deb in debs], base_steps.KEY)


@dataclass(frozen=True)
class Stage:
    """The build of one component; its result is a tree in /out, which becomes one layer of the image."""

    part: InstalledComponent
    template: str
    source: Path
    """The directory of the component, for errors with a location."""
    artifacts: Mapping[str, Artifact] = field(default_factory=dict)
    locked: tuple[Package, ...] = ()
    """Python packages, wheels and source distributions, in the order of the lock."""
    build_apt: tuple[str, ...] = ()
    debs: tuple[Deb, ...] = ()
    """Locked packages that `build_apt` adds to the toolchain."""
    facts: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    """Patterns of files that `finish-layer` removes, or keeps if they start with `!`."""
    trims: tuple[TrimChoice, ...] = ()
    """Trims of the component and whether they are applied."""
    debs_list: str = ""
    """Path in `inputs/` of the list of `debs`."""
    layer: int = 0
    """Position among the layers of an image; smaller numbers are lower."""
    is_partial: bool = False
    """True if other stages or the base contain some packages of the component's lock."""
    image: str = ""
    """Name of the image whose recipe has the packages; empty for the packages of components."""
    python: str = ""
    """Python such as `3.11`, if `layout-wheels` writes the layers of the packages; empty if pip does."""
    key: StageKey = StageKey("")
    """Empty until the stage is rendered."""
    wheels_key: StageKey = StageKey("")
    """Key of the stage that makes wheels of source distributions; empty if there is none."""

    @property
    def inputs_of_text(self) -> tuple[object, ...]:
        """Everything that the rendered text depends on; equal for images that share the stage."""
        artifacts = (
            (name, file.kind, file.source, file.file, file.sha256) for name, file in self.artifacts.items()
        )
        return (
            *(self.part.component, self.part.version, self.part.variant, self.template, *artifacts),
            *(tuple(package.key_input for package in self.locked), self.build_apt, self.debs),
            *(tuple(self.facts.items()), tuple(self.files.items()), self.dropped, self.image),
            *(self.debs_list, self.is_partial, self.python),
        )

    @property
    def name(self) -> str:
        return self.part.component

    @cached_property
    def wheels(self) -> tuple[Package, ...]:
        return tuple(package for package in self.locked if not package.is_sdist)

    @cached_property
    def sdists(self) -> tuple[Package, ...]:
        return tuple(package for package in self.locked if package.is_sdist)

    @cached_property
    def layers(self) -> dict[str, tuple[Package, ...]]:
        """The packages of each layer that `layout-wheels` writes, by the name of the layer."""
        if not self.python:
            return {}
        if self.image:
            return wheel_layers(self.name, self.locked)
        files = map(_artifact_wheel, self.artifacts.values())
        return wheel_layers(self.name, (*self.locked, *files), max_small=1)

    def code_layer(self, layer: str) -> str:
        """Return the name of the layer of byte code of a layer; each component has only one."""
        return layer if self.image else f"{self.name}~modules"

    @property
    def copied(self) -> tuple[str, ...]:
        """The directories below /out that become layers; empty for /out itself."""
        if self.image:
            paths = (f"{kind}/{layer}/" for layer in self.layers for kind in ("files", "byte-code"))
            return tuple(paths) or ("",)
        codes = dict.fromkeys(f"byte-code/{self.code_layer(layer)}/" for layer in self.layers)
        return (*(f"files/{layer}/" for layer in self.layers), *codes) or ("",)

    @property
    def copied_keys(self) -> tuple[str, ...]:
        """Keys of the content of each of the `copied` layers, apart from the base and its Python."""
        groups = ((path, self.layers[path.split("/")[1]]) for path in self.copied)
        return tuple(
            key_of(
                *(__version__, path, self.python, self.dropped, [package.key_input for package in group]),
                self.wheels_key if any(package.is_sdist for package in group) else "",
            )
            for path, group in groups
        )

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
        """The command that prepares /out; the step must mount its script."""
        words = (
            ["/opt/venv/bin/python /usr/local/bin/layout-wheels"]
            if self.layers
            else ["finish-layer", self.name]
        )
        return wrapped([*words, *map(shlex.quote, self.dropped)], "        ", " \\")

    @property
    def requirements(self) -> str:
        """Path in `inputs/` of the requirements file of `wheels`. Raises LookupError if there are none."""
        if not (self.wheels or (self.layers and self.artifacts)):
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

    @property
    def locks_build(self) -> bool:
        """Return whether the build requirements of all source distributions are locked."""
        return bool(self.sdists) and all(package.build is not None for package in self.sdists)

    @property
    def build_list(self) -> str:
        """Path in `inputs/` of the build requirements of each of the `sdists`."""
        return f"requirements/{self._label}-build.txt"

    @property
    def build_requirements(self) -> tuple[Package, ...]:
        """Build requirements of all source distributions, without duplicates."""
        packages = (package for sdist in self.sdists for package in sdist.build or ())
        return tuple({package.sha256: package for package in packages}.values())

    def file(self, name: str) -> str:
        """Return the path in `inputs/` of a file of the component. Raises KeyError for an unknown name."""
        if name not in self.files:
            raise KeyError(name)
        return f"components/{self.name}/{name}"

    @property
    def inputs(self) -> dict[str, bytes]:
        """Files that the steps of the stage can read, by path in `inputs/`."""
        files = {self.file(name): content for name, content in self.files.items()}
        if self.wheels or (self.layers and self.artifacts):
            files[self.requirements] = self._list(built=False)
        if self.sdists:
            files[self.sdists_list] = self._list(built=True)
        if self.locks_build:
            files[self.build_list] = _build_file(self.sdists)
        if self.debs:
            files[self.debs_list] = debs_file(self.debs)
        return files

    def _list(self, *, built: bool) -> bytes:
        """Return a requirements file, in which a comment names the layer of the packages below it."""
        if not self.layers:
            return _requirements_file(self.sdists if built else self.wheels)
        groups = {
            layer: [package for package in group if package.is_sdist == built]
            for layer, group in self.layers.items()
        }
        return b"".join(
            f"# layer {layer} {self.code_layer(layer)}\n".encode() + _requirements_file(group)
            for layer, group in groups.items()
            if group
        )

    @property
    def _label(self) -> str:
        """A name that is unique among the package lists of all images.

        The name for a recipe's own packages does not depend on their versions, so that an upgrade renames no
        committed file. For BuildKit, steps that read equal lists under different names are a single step.
        """
        if self.image:
            return f"{self.name}-{self.image}"
        # Images on a vendor's base have the same packages in another form
        name = f"{self.part.label}-layers" if self.layers else self.part.label
        if not self.is_partial:
            return name
        packages = (
            *self.wheels,
            *self.sdists,
            *(build for sdist in self.sdists for build in sdist.build or ()),
        )
        lines = [package.requirement for package in packages]
        return f"{name}-{key_of(lines)[:8]}"


def key_with_code(recipe_key: ImageKey, content: Content) -> ImageKey:
    """Return the key in tags and release records. Without training code, it is the recipe key."""
    if not content.code:
        return recipe_key
    code = [[file.target, file.sha256, file.is_executable] for file in content.code]
    return ImageKey(key_of(recipe_key, code))


@dataclass(frozen=True, slots=True)
class Image:
    """A resolved image with its keys."""

    name: str
    summary: str
    base: BootstrappedBase | RegistryBase
    all_parts: tuple[InstalledComponent, ...]
    """The base and the components on it."""
    content: Content
    """Content of the recipe, with distribution packages of only the image's package manager."""
    gpu: bool
    launchers: tuple[str, ...]
    """The launchers in the image: `torchrun`, `mpirun` or both."""
    build_base: str = ""
    """Image that build stages start from; empty if it is the base."""
    toolchain: tuple[str, ...] = ()
    """Distribution packages that build stages share."""
    toolchain_debs: tuple[Deb, ...] = ()
    """Locked packages that `toolchain` adds to the base; empty if the image has no stages."""
    base_facts: Mapping[str, str] = field(default_factory=dict)
    frozen: tuple[str, ...] = ()
    """Names and globs of Python packages of the base that must not change."""
    uses_dnf: bool = False
    """True if steps of the image or of its build stages install packages with dnf."""
    stages: tuple[Stage, ...] = ()
    """In build order."""
    apt: tuple[str, ...] = ()
    """Distribution packages of the image, for any package manager; templates use this name."""
    apt_debs: tuple[Deb, ...] = ()
    """Locked packages that `apt` adds to the base."""
    environment: Mapping[str, str] = field(default_factory=dict)
    path: tuple[str, ...] = ()
    """Directories that components add to PATH, without duplicates."""
    library_path: tuple[str, ...] = ()
    """Directories that components add to LD_LIBRARY_PATH, without duplicates."""
    entrypoint: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    """Versions of Python packages that installations in the image must keep."""
    recipe_key: ImageKey = ImageKey("")
    """Key without the training code. Committed files contain it, so editing code does not change them."""
    key: ImageKey = ImageKey("")
    layer_keys: tuple[ImageLayer, ...] = ()
    """The layers above the base, lowest first; empty for images without keys."""
    rendered: Mapping[str, bytes] | None = field(default=None, compare=False, repr=False)
    """The Dockerfile and its inputs that the keys are of, by path; None for images without keys."""
    labels: Mapping[str, str] = field(default_factory=dict)
    gpu_architecture: str = ""
    """GPU architectures that the components support, such as `>=7.5,<10`; empty if none declares them."""
    gpu_targets: tuple[tuple[str, str], ...] = ()
    """The instance types of the recipe's `targets` with their GPU architectures."""
    neuron_architecture: str = ""
    """NeuronCore versions that the components support, such as `>=2,<5`; empty without Neuron support."""
    required: tuple[str, ...] = ()
    """Smoke checks that must pass before a release."""
    efa_bandwidth: int = 0
    """Bus bandwidth in GB/s that the check `efa_bandwidth` must reach; 0 without a minimum."""
    budgets: tuple[Budget, ...] = ()
    """Size limits of components."""
    smoke: UserSmoke | None = None
    """The user's own smoke test."""
    recipe_directory: str = "recipes"
    """Directory of the recipe, relative to the project."""
    recipe_file: Path = Path()
    format: str = FORMATS[0]
    """Format of the stored and pushed image."""
    unpinned: tuple[Artifact, ...] = ()
    """Artifacts without a sha256. `build` warns of them, and `push` refuses the image."""
    platform: str = PLATFORM
    requirements: tuple[RequiredImport, ...] = ()
    """Packages in the recipe's requirements, which a smoke check imports."""
    known: KnownFacts = NOTHING

    @property
    def contents(self) -> frozenset[str]:
        """Names of the components, and names that these provide."""
        names = (name for part in self.all_parts for name, _ in part.provides)
        return frozenset((*(part.component for part in self.all_parts), *names))

    @property
    def toolchain_list(self) -> str:
        """Path in `inputs/` of the list of `toolchain_debs`."""
        return f"debs/{self.base_part.label}/toolchain.txt"

    @property
    def apt_list(self) -> str:
        """Path in `inputs/` of the list of `apt_debs`."""
        return f"debs/{self.base_part.label}/image-{self.name}.txt" if self.apt_debs else ""

    @property
    def constraints_list(self) -> str:
        """Path in `inputs/` of the list of `constraints`, which images with the same packages share."""
        return f"constraints/{key_of(self.constraints)[:8]}.txt"

    @property
    def training_module(self) -> str | None:
        """Value of SAGEMAKER_TRAINING_MODULE; None for the plain SageMaker Training Toolkit."""
        return self.environment.get("SAGEMAKER_TRAINING_MODULE")

    @property
    def entry_point(self) -> str | None:
        """File name of the training code that the image contains in /opt/ml/code."""
        return self.content.entry_point

    @property
    def base_part(self) -> InstalledComponent:
        return self.all_parts[0]

    @property
    def parts(self) -> tuple[InstalledComponent, ...]:
        """The components on the base."""
        return self.all_parts[1:]

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
        return reference_of(self.name, self.key)

    @property
    def inputs(self) -> dict[str, bytes]:
        """Lists of the steps that belong to no component, by path in `inputs/`."""
        lists = {self.toolchain_list: self.toolchain_debs, self.apt_list: self.apt_debs}
        files = {path: debs_file(debs) for path, debs in lists.items() if debs}
        if self.constraints:
            files[self.constraints_list] = "".join(f"{line}\n" for line in self.constraints).encode()
        return files

    @property
    def layers(self) -> tuple[Stage, ...]:
        """The stages in the order of their layers, lowest first."""
        return sorted_by_layer(self.stages)

    @property
    def own_packages(self) -> Stage | None:
        """The stage of the recipe's packages, if `layout-wheels` writes their layers."""
        return next((stage for stage in self.stages if stage.image and stage.layers), None)

    @property
    def layer_names(self) -> tuple[str, ...]:
        """Keys of the content of each layer above the base; empty for code, and for unpinned steps."""
        own = self.own_packages
        copied = iter(own.copied_keys if own else ())
        names = (
            next(copied) if own and layer.stages[:1] == (own.name,) else layer.key
            for layer in self.layer_keys
        )
        return tuple(
            name if layer.is_pinned else "" for name, layer in zip(names, self.layer_keys, strict=True)
        )

    @property
    def names(self) -> tuple[str, str]:
        """All tags that a build sets, the one with the key first."""
        return self.reference, reference_of(self.name, LATEST)

    @property
    def target(self) -> str:
        """Name in a bake file, which must not contain dots."""
        return self.name.replace(".", "_")

    @property
    def download_bytes(self) -> int:
        """Bytes of all files that a build downloads and whose size is recorded in the locks."""
        packages = self.wheel_bytes
        files = (file for stage in self.stages for file in stage.artifacts.values())
        artifacts = sum(file.bytes or 0 for file in files)
        return packages + artifacts + sum(deb.bytes for deb in self.debs)

    @property
    def wheel_bytes(self) -> int:
        """Bytes of all Python packages as downloaded: a lower bound of the image size."""
        packages = (package for stage in self.stages for package in (*stage.wheels, *stage.sdists))
        return sum(package.bytes for package in packages)


def reference_of(name: str, tag: str) -> str:
    """Return the name of an image on this machine, with a key or `LATEST` as its tag."""
    return f"bakehouse/{name}:{tag[:8]}"


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


def _artifact_wheel(file: Artifact) -> Package:
    """Return a wheel that no package index has. It has a layer of its own, whatever its size."""
    return Package(file.file.partition("-")[0], "", file.sha256 or "", file.file, LARGE_BYTES, file.location)


def _requirements_file(packages: Iterable[Package]) -> bytes:
    lines = (package.requirement if package.version else f"# wheel {package.name}" for package in packages)
    return "".join(f"{line}\n" for line in lines).encode()


def _build_file(sdists: Iterable[Package]) -> bytes:
    """Return the input of `build-sdists`: each file name, and below it the build requirements."""
    groups = (f"# {sdist.file}\n".encode() + _requirements_file(sdist.build or ()) for sdist in sdists)
    return b"".join(groups)


def sorted_by_layer(stages: Iterable[Stage]) -> tuple[Stage, ...]:
    """Sort stages by layer. Packages of the recipe are on top, because they can replace any file."""
    return tuple(sorted(stages, key=lambda stage: (stage.name == REQUIREMENTS, stage.layer)))


def defines_layer(stage_text: str, name: str) -> bool:
    """Return whether the text of a component defines the stage that becomes its layer."""
    return f" AS {name}\n" in f"{stage_text}\n"
