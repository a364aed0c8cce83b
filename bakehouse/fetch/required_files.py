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
    """A URL, `name==version` of a Python package, `package=version` of a Debian source, a path in a pool.

    A package of the distribution that not every mirror has is known by a URL, too.
    """

    @property
    def project(self) -> str:
        """Name of a Python package on an index."""
        return self.address.partition("==")[0]


@dataclass(frozen=True)
class RequiredFiles:
    """All files that images need, each once."""

    files: tuple[RequiredFile, ...]
    images: Mapping[RequiredFile, tuple[str, ...]]
    """Which images need each."""
    stages: tuple[tuple[RequiredFile, ...], ...]
    """Groups of files that are needed together."""

    @property
    def unknown(self) -> tuple[RequiredFile, ...]:
        """Files without a known sha256."""
        return tuple(one for one in self.files if one.sha256 is None)


def required_files(images: Iterable[Image]) -> RequiredFiles:
    """Return the files needed to build images from scratch."""
    needing: dict[RequiredFile, dict[str, None]] = {}
    together: dict[tuple[RequiredFile, ...], None] = {}
    known: dict[tuple[str, str | None], RequiredFile] = {}
    for image in images:
        for group in _steps(image):
            # The same file may stand in a lock, which tells its size, and as an artifact, which may not.
            merged = tuple(_merged(one, known) for one in group)
            together[merged] = None
            for one in merged:
                needing.setdefault(one, {})[image.name] = None
    final = {one: known[one.file, one.sha256] for one in needing}
    by: dict[RequiredFile, dict[str, None]] = {}
    for one, names in needing.items():
        by.setdefault(final[one], {}).update(names)
    return RequiredFiles(
        tuple(by),
        {one: tuple(names) for one, names in by.items()},
        tuple(tuple(final[one] for one in group) for group in together if group),
    )


def _merged(file: RequiredFile, known: dict[tuple[str, str | None], RequiredFile]) -> RequiredFile:
    there = known.setdefault((file.file, file.sha256), file)
    if there.bytes is None and file.bytes is not None:
        known[file.file, file.sha256] = replace(there, bytes=file.bytes)
    return file


def _steps(image: Image) -> Iterator[tuple[RequiredFile, ...]]:
    """Yield the files of each step of an image, including those of its base."""
    for stage in image.stages:
        yield tuple(_of_stage(stage))
        yield debs(stage.debs)
    if isinstance(image.base, BootstrappedBase):
        yield debs(image.base.debs)
    yield debs(image.toolchain_debs)
    yield debs(image.apt_debs)


def debs(packages: Iterable[Deb]) -> tuple[RequiredFile, ...]:
    """Packages of the distribution."""
    return tuple(
        RequiredFile("deb", one.file, Sha256(one.sha256), one.bytes, one.url or one.path) for one in packages
    )


def _of_stage(stage: Stage) -> Iterator[RequiredFile]:
    yield from map(_artifact, stage.artifacts.values())
    yield from map(_package, (*stage.wheels, *stage.sdists))


def _artifact(one: Artifact) -> RequiredFile:
    kind = _python(one.file) if one.kind == "pypi" else one.kind
    return RequiredFile(kind, one.file, Sha256(one.sha256) if one.sha256 else None, one.bytes, one.source)


def _package(one: Package) -> RequiredFile:
    return RequiredFile(
        _python(one.file), one.file, Sha256(one.sha256), one.bytes, f"{one.name}=={one.version}"
    )


def _python(file: str) -> FileKind:
    return "wheel" if file.endswith(".whl") else "sdist"
