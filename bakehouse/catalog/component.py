"""Components as their directories describe them: every fact with its location."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Literal

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from bakehouse.catalog.apt_lock import lock_name
from bakehouse.catalog.python_lock import Lock, Package
from bakehouse.catalog.system_packages import NO_PACKAGES, Manager, SystemPackages, manager_of
from bakehouse.catalog.upstream import Upstream
from bakehouse.errors import Location
from bakehouse.util.oci import PLATFORM, architecture_of

INSTANCE = "instance"
"""The component whose variants are instance types. Images target it but do not contain it."""
DRIVER = "driver"
"""Name of the host's driver in requirements; no image provides it."""
CUDA_COMPAT = "cuda-compat"
"""The component that makes newer CUDA run on the driver branches of its fact `branches`."""

ArtifactKind = Literal["url", "pypi", "debian"]


@dataclass(frozen=True, slots=True)
class Requirement:
    """Requirement on the versions of a component or of a name that components provide."""

    name: str
    specifier: str
    location: Location

    def allows(self, version: str) -> bool:
        return _allows(self.specifier, version)


@cache
def _allows(specifier: str, version: str) -> bool:
    # `===` compares texts, not versions.
    return _range(specifier).contains(version if "===" in specifier else _version(version), prereleases=True)


# Both are slow to parse and occur in many pairs.
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
    """None if unknown."""
    location: Location
    """Location of the sha256."""
    bytes: int | None = None
    """None if unknown. Not part of any build key, because the sha256 identifies the file."""
    size_location: Location | None = None
    """Location of the size, or of the sha256 that it can follow; None if there is no such place."""

    @property
    def address(self) -> str:
        """Argument of the build's `download`: a URL, or `debian:package=version`."""
        return self.source if self.kind == "url" else f"{self.kind}:{self.source}"

    @property
    def is_wheel(self) -> bool:
        return self.file.endswith(".whl")

    @property
    def pin_name(self) -> str:
        """Name of the artifact in `pins.yaml`: a URL, or `debian:package=version/file`."""
        return self.source if self.kind == "url" else f"{self.address}/{self.file}"


@dataclass(frozen=True, slots=True)
class Incompatibility:
    """Components that do not work together, with the public source."""

    parts: tuple[Requirement, ...]
    """The incompatibility applies to images that contain all of them."""
    reason: str
    source: str
    is_error: bool
    """True if such images are refused; False if Bakehouse only warns."""
    location: Location
    content: str = ""
    """Content of a base that causes it, such as `efa 1.49.0`; empty if the component itself does."""
    is_unconfirmed: bool = False
    """Its confidence is low."""


@dataclass(frozen=True, slots=True)
class BaseSource:
    """Source of a base image."""

    suite: str = ""
    """A Debian suite to bootstrap; empty when the base is pulled."""
    platform: str = PLATFORM
    packages: tuple[str, ...] = ()
    reference: str = ""
    digest: str | None = None
    digest_location: Location | None = None
    build_reference: str = ""
    """Base of build stages with its digest, if it differs (devel images of CUDA)."""
    build_location: Location | None = None
    """Location of the digest of `build_reference`."""

    @property
    def lock_name(self) -> str:
        """Name of the lock of the suite's packages for its platform."""
        return lock_name(self.suite, self.platform)


@dataclass(frozen=True, slots=True)
class Trim:
    """Files of one kind that images can omit."""

    kind: str
    files: tuple[str, ...] = ()
    """Patterns relative to the root of the image."""
    reason: str = ""
    evidence: str = "cpu"
    """Kind of evidence: `never-loaded`, `gpu` or `cpu`."""
    location: Location | None = None


@dataclass(frozen=True, slots=True)
class VariantSpec:
    """Specification of a component, release or variant, merged with the levels above it."""

    requires: tuple[Requirement, ...] = ()
    constraints: tuple[Requirement, ...] = ()
    """Applies only if the named component is in the image; never adds it."""
    recommends: tuple[Requirement, ...] = ()
    """Added like `requires`, unless the recipe lists it in `exclude`."""
    tested: tuple[Requirement, ...] = ()
    """Known versions of an open range in `requires`; it is not known whether the others work."""
    provides: Mapping[str, str] = field(default_factory=dict)
    artifacts: tuple[Artifact, ...] = ()
    conflicts: tuple[Incompatibility, ...] = ()
    lock: Lock | None = None
    replaces: tuple[str, ...] = ()
    """Packages of the lock that replace those in the locks of other components."""
    system_packages: SystemPackages = NO_PACKAGES
    """Packages of the distribution that the image needs to run."""
    build_packages: SystemPackages = NO_PACKAGES
    """Packages of the distribution that only the component's build stage needs."""
    environment: Mapping[str, str] = field(default_factory=dict)
    path: tuple[str, ...] = ()
    library_path: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    """Further values the component's own template uses."""
    trims: Mapping[str, Trim] = field(default_factory=dict)
    """Files that images can omit, by kind."""
    gpu: bool = False
    base: BaseSource | None = None
    platforms: tuple[str, ...] = (PLATFORM,)
    """Platforms that builds of it exist for."""

    @property
    def manager(self) -> Manager:
        """The package manager of a base."""
        return manager_of(self.provides)

    @property
    def packages(self) -> tuple[Package, ...]:
        """The closure of Python packages, from the lock. Raises RecipeError if the lock is unreadable."""
        return self.lock.packages if self.lock else ()

    @property
    def packages_by_name(self) -> Mapping[str, Package]:
        """The same by normal name."""
        return self.lock.by_name if self.lock else {}

    @property
    def replacing(self) -> Mapping[str, Package]:
        """The packages that replace those in the locks of other components, by normal name."""
        return self.lock.replacing if self.lock and self.replaces else {}


@dataclass(frozen=True, slots=True)
class Variant:
    """A build of a release, such as `cu130-py311`; the name is empty if the release has only one."""

    name: str
    spec: VariantSpec
    location: Location
    platform: str = PLATFORM

    def matches(self, glob: str) -> bool:
        """Return whether a glob matches its name; the architecture at the end may be missing."""
        architecture = architecture_of(self.platform)
        return fnmatchcase(self.name, glob) or (
            self.platform != PLATFORM
            and fnmatchcase(self.name.removesuffix(architecture).removesuffix("-"), glob)
        )


@dataclass(frozen=True, slots=True)
class Release:
    version: str
    variants: tuple[Variant, ...]
    location: Location
    source: str = ""
    """URL of the publisher's page about it, for readers."""


@dataclass(frozen=True, slots=True)
class Registries:
    """Registries of a base with one registry for each region."""

    hosts: Mapping[str, str]
    """By region; the first one is the default."""
    of: str
    """The component that defines the table; empty if it is this one."""
    location: Location


@dataclass(frozen=True, slots=True)
class Frozen:
    """Python packages of a base that must not be replaced."""

    pattern: str
    """Name, or glob of names."""
    known_as: str
    """Name under which the base provides their version; empty if unknown."""
    location: Location


WHEELS_TEMPLATE = """\
{% block build %}
FROM {{ package_stage }} AS {{ stage.name }}
{{ packages(stage, pip) }}
{% endblock %}
"""
"""The end of the template of a component that consists of Python packages."""


@dataclass(frozen=True, slots=True)
class Component:
    """A part of an image: its facts, how to install it and how to check it."""

    name: str
    summary: str
    stage_order: int
    """Smaller numbers come first, and own shared Python packages."""
    directory: Path
    launchers: tuple[str, ...]
    releases: tuple[Release, ...]
    """Newest first."""
    template: str
    """The text of install.j2, with WHEELS_TEMPLATE if that has no build; empty without packages of Python."""
    smoke: Path | None
    files: Mapping[str, bytes]
    """Files below the component's `files/`, for its template."""
    location: Location
    builds_on: tuple[str, ...] = ()
    """Components whose build stages its own build stage uses; it requires them too."""
    registries: Registries | None = None
    """None if image names include their registry."""
    frozen: tuple[Frozen, ...] = ()
    """Packages that a base must keep; the first matching entry counts."""
    layer_order: int = 0
    """Smaller numbers come first. Engines unpack a layer again if a lower layer changes."""
    gpu: Path | None = None
    """The gpu.py that uses all GPUs in an image with the component."""
    upstream: Upstream | None = None
    """None if the component does not say where its releases appear."""

    @property
    def specs(self) -> tuple[VariantSpec, ...]:
        """The specifications of all variants of all releases."""
        return tuple(variant.spec for release in self.releases for variant in release.variants)

    @property
    def is_base(self) -> bool:
        return any(spec.base for spec in self.specs)

    @property
    def has_upstream(self) -> bool:
        return self.upstream is not None and self.upstream.kind != "none"
