"""Files that a build needs: artifacts, Python packages, Debian packages."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from bakehouse.catalog.apt_lock import Deb
from bakehouse.catalog.component import Artifact
from bakehouse.catalog.python_lock import Package
from bakehouse.plan.model import BootstrappedBase, Image, Stage
from bakehouse.util.oci import Sha256

FileKind = Literal["url", "debian", "wheel", "sdist", "deb"]
KINDS: Mapping[FileKind, str] = {
    "wheel": "wheels",
    "sdist": "Python sources",
    "url": "archives",
    "debian": "Debian sources",
    "deb": "Debian packages",
}
"""Names of the kinds, in the order of reports."""


@dataclass(frozen=True, slots=True)
class RequiredFile:
    """A file that a build needs, identified by its sha256."""

    kind: FileKind
    file: str
    sha256: Sha256 | None
    """None if unknown."""
    bytes: int | None
    """None if unknown."""
    address: str
    """Source of the file.

    A URL, `name==version` of a Python package, `package=version` of a Debian source, or the path of a Debian
    package on a mirror. Debian packages that not every mirror has are identified by a URL.
    """

    origin: str = ""
    """URL or path of a Python package that indexes may not have."""

    @property
    def project(self) -> str:
        """Name of a Python package on an index."""
        return self.address.partition("==")[0]


@dataclass(frozen=True)
class RequiredFiles:
    """All files that images need, without duplicates."""

    files: tuple[RequiredFile, ...]
    images: Mapping[RequiredFile, tuple[str, ...]]
    """Images that need each file."""
    stages: tuple[tuple[RequiredFile, ...], ...]
    """Groups of files that are needed together."""

    @property
    def unknown(self) -> tuple[RequiredFile, ...]:
        """Files without a known sha256."""
        return tuple(file for file in self.files if file.sha256 is None)


def required_files(images: Iterable[Image]) -> RequiredFiles:
    """Return the files needed to build images from scratch."""
    groups = [(image.name, group) for image in images for group in _steps(image)]
    complete: dict[tuple[str, str | None], RequiredFile] = {}
    for _, group in groups:
        for file in group:
            # Locks record the size of a file, but an artifact of the same file may not.
            first = complete.setdefault((file.file, file.sha256), file)
            if first.bytes is None and file.bytes is not None:
                complete[file.file, file.sha256] = replace(first, bytes=file.bytes)
    users: dict[RequiredFile, dict[str, None]] = {}
    stages: dict[tuple[RequiredFile, ...], None] = {}
    for name, group in groups:
        files = tuple(complete[file.file, file.sha256] for file in group)
        stages[files] = None
        for file in files:
            users.setdefault(file, {})[name] = None
    return RequiredFiles(
        files=tuple(users),
        images={file: tuple(names) for file, names in users.items()},
        stages=tuple(filter(None, stages)),
    )


def _steps(image: Image) -> Iterator[tuple[RequiredFile, ...]]:
    """Yield the files of each step of an image, including those of its base."""
    for stage in image.stages:
        yield files_of(stage)
        yield debs(stage.debs)
    if isinstance(image.base, BootstrappedBase):
        yield debs(image.base.debs)
    yield debs(image.toolchain_debs)
    yield debs(image.apt_debs)


def debs(packages: Iterable[Deb]) -> tuple[RequiredFile, ...]:
    """Return the files of Debian packages."""
    return tuple(
        RequiredFile("deb", deb.file, Sha256(deb.sha256), deb.bytes, deb.url or deb.path) for deb in packages
    )


def files_of(stage: Stage) -> tuple[RequiredFile, ...]:
    """Return the files that a stage downloads, without distribution packages."""
    packages = map(_package, (*stage.wheels, *stage.sdists, *stage.build_requirements))
    return (*map(_artifact, stage.artifacts.values()), *packages)


def _artifact(artifact: Artifact) -> RequiredFile:
    kind = _python(artifact.file) if artifact.kind == "pypi" else artifact.kind
    sha256 = Sha256(artifact.sha256) if artifact.sha256 else None
    return RequiredFile(kind, artifact.file, sha256, artifact.bytes, artifact.source)


def _package(package: Package) -> RequiredFile:
    source = f"{package.name}=={package.version}"
    sha256, kind = Sha256(package.sha256), _python(package.file)
    return RequiredFile(kind, package.file, sha256, package.bytes, source, package.origin)


def _python(file: str) -> FileKind:
    return "wheel" if file.endswith(".whl") else "sdist"
