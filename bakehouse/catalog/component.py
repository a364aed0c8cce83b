"""Components as their folders describe them: every fact with its place, nothing chosen yet."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from bakehouse.catalog.python_lock import Lock, Package
from bakehouse.errors import Location

INSTANCE = "instance"
"""The component whose variants are instance types: what an image is for, and no part of it."""
DRIVER = "driver"
"""What requirements call the driver of the host, which no image brings."""

ArtifactKind = Literal["url", "pypi", "debian"]


@dataclass(frozen=True, slots=True)
class Requirement:
    """That a component, or what another one provides, must be of certain versions."""

    name: str
    specifier: str
    location: Location

    def allows(self, version: str) -> bool:
        return _allows(self.specifier, version)


@cache
def _allows(specifier: str, version: str) -> bool:
    # With `===` the text counts, not what it means
    return _range(specifier).contains(version if "===" in specifier else _version(version), prereleases=True)


# Both are asked for in many pairs, and slow to read
_range = cache(SpecifierSet)
_version = cache(Version)


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file identified by its sha256: any mirror that holds those bytes may serve it."""

    name: str
    kind: ArtifactKind
    source: str
    """A URL, `name==version` for pip, or `package=version` for apt-get source."""
    file: str
    sha256: str | None
    """None where nobody knows it yet."""
    location: Location
    """Where the sha256 stands."""
    bytes: int | None = None
    """None where nobody knows it yet. It is no part of any key: the sha256 says which file it is."""
    size_location: Location | None = None
    """Where the size stands, or the sha256 that it can be put behind; None where it has no place."""

    @property
    def address(self) -> str:
        """What the build's `fetch` takes: a URL, or `debian:package=version`."""
        return self.source if self.kind == "url" else f"{self.kind}:{self.source}"


@dataclass(frozen=True, slots=True)
class Incompatibility:
    """Parts that are known not to work together, with the public source of that."""

    parts: tuple[Requirement, ...]
    """All of them must be in the image for it to hold."""
    reason: str
    source: str
    is_certain: bool
    """Refused; where the evidence is one report it is warned of."""
    location: Location


@dataclass(frozen=True, slots=True)
class BaseSource:
    """Where a base image comes from."""

    suite: str = ""
    """A Debian suite to bootstrap; empty when the base is pulled."""
    packages: tuple[str, ...] = ()
    reference: str = ""
    digest: str | None = None
    build_reference: str = ""
    """The base of build stages, where it is another one (CUDA's devel image)."""


@dataclass(frozen=True, slots=True)
class Trim:
    """Files of one kind that an image can go without."""

    kind: str
    files: tuple[str, ...] = ()
    """Patterns below the image's root."""
    reason: str = ""
    evidence: str = "cpu"
    """How it is known: `never-loaded`, `gpu` or `cpu`."""
    location: Location | None = None


@dataclass(frozen=True, slots=True)
class VariantSpec:
    """What a component brings and asks: stated for it, a release or a variant, and merged downwards."""

    requires: tuple[Requirement, ...] = ()
    constraints: tuple[Requirement, ...] = ()
    """Holds only if the named part is in the image; never brings it in."""
    recommends: tuple[Requirement, ...] = ()
    """Brought in like `requires`, unless the recipe names it in `exclude`."""
    provides: Mapping[str, str] = field(default_factory=dict)
    artifacts: tuple[Artifact, ...] = ()
    conflicts: tuple[Incompatibility, ...] = ()
    lock: Lock | None = None
    apt: tuple[str, ...] = ()
    """Packages of the distribution that the image needs to run."""
    build_apt: tuple[str, ...] = ()
    """Packages of the distribution that only the component's build stage needs."""
    environment: Mapping[str, str] = field(default_factory=dict)
    path: tuple[str, ...] = ()
    library_path: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    """Further values the component's own template uses."""
    trims: Mapping[str, Trim] = field(default_factory=dict)
    """What images can go without, by its kind."""
    gpu: bool = False
    base: BaseSource | None = None

    @property
    def packages(self) -> tuple[Package, ...]:
        """The closure of Python packages, from the lock. Raises RecipeError where that can't be read."""
        return self.lock.packages if self.lock else ()

    @property
    def packages_by_name(self) -> Mapping[str, Package]:
        """The same by their normal names."""
        return self.lock.by_name if self.lock else {}


@dataclass(frozen=True, slots=True)
class Variant:
    """One build of a release, such as `cu130-py311`; the empty name is the only one."""

    name: str
    spec: VariantSpec
    location: Location


@dataclass(frozen=True, slots=True)
class Release:
    version: str
    variants: tuple[Variant, ...]
    location: Location


@dataclass(frozen=True, slots=True)
class Registries:
    """Where a base's images are, where each region has a registry of its own."""

    hosts: Mapping[str, str]
    """By region; the first is the one where a project names no region."""
    of: str
    """The component whose table it is; empty where it is its own."""
    location: Location


@dataclass(frozen=True, slots=True)
class Frozen:
    """Python packages of a base that nothing may replace."""

    pattern: str
    """Their name, or a glob of names."""
    known_as: str
    """What the base provides under this name is their version; empty where nobody knows it."""
    location: Location


@dataclass(frozen=True, slots=True)
class Component:
    """A part of an image: its facts, how to install it and how to check it."""

    name: str
    summary: str
    stage_order: int
    """Smaller numbers come first, and own shared Python packages."""
    folder: Path
    launchers: tuple[str, ...]
    releases: tuple[Release, ...]
    """Newest first."""
    template: str
    """The text of install.j2; empty where apt packages and settings are all."""
    smoke: Path | None
    files: Mapping[str, bytes]
    """What lies under the component's `files/`, for its template to place."""
    location: Location
    builds_on: tuple[str, ...] = ()
    """Components whose build stages its own one takes something from; it requires them too."""
    registries: Registries | None = None
    """None where images are named with their registry."""
    frozen: tuple[Frozen, ...] = ()
    """What a base has to keep; the first that matches a name counts."""
    layer_order: int = 0
    """Smaller numbers lie lower: an engine unpacks a layer again when one below it changes."""

    @property
    def is_base(self) -> bool:
        return any(variant.spec.base for release in self.releases for variant in release.variants)
