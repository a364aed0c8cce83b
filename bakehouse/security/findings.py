"""Packages with vulnerabilities or pending updates, the steps that use them, and what was not scanned."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from bakehouse.catalog.apt_lock import Deb
from bakehouse.errors import Diagnostic, NotScannedError, VulnerableError
from bakehouse.plan.model import BootstrappedBase, Image
from bakehouse.util.format import format_count

PackageKind = Literal["Debian", "Python"]


@dataclass(frozen=True, slots=True, order=True)
class Vulnerability:
    """A vulnerability of a package."""

    id: str
    fixed: str
    """The version that fixes it."""


@dataclass(frozen=True, slots=True, order=True)
class Usage:
    """A step of an image that installs a package."""

    image: str
    step: str
    in_image: bool
    """False if only a build stage contains the package."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A package of a lock with known vulnerabilities, or with a pending update."""

    kind: PackageKind
    name: str
    """For Debian the source package."""
    version: str
    newer: str
    source: str
    """The suite or the data that has the update."""
    packages: tuple[str, ...]
    """The locked packages, which are those of one source."""
    vulnerabilities: tuple[Vulnerability, ...]
    usages: tuple[Usage, ...]

    @property
    def is_open(self) -> bool:
        """Return whether the update fixes vulnerabilities, as far as its publisher says so."""
        return bool(self.vulnerabilities) or self.source.endswith("-security")


@dataclass(frozen=True, slots=True)
class NotScanned:
    """Contents of images whose vulnerabilities are unknown."""

    what: str
    reason: str
    images: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SecurityReport:
    """The findings of images."""

    images: tuple[str, ...]
    findings: tuple[Finding, ...]
    not_scanned: tuple[NotScanned, ...]

    @property
    def open_findings(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.is_open)


def require_clean(report: SecurityReport) -> None:
    """Raise VulnerableError for open findings, or NotScannedError if some contents were not scanned."""
    if findings := report.open_findings:
        count = len({vulnerability.id for finding in findings for vulnerability in finding.vulnerabilities})
        problem = format_count(count, "known vulnerability", "known vulnerabilities")
        message = f"{format_count(len(findings), 'package')} with {problem if count else 'security updates'}"
        names = " ".join(sorted({package for finding in findings for package in finding.packages}))
        raise VulnerableError(Diagnostic(message, hint=f"run `bake lock --upgrade {names}`"))
    if report.not_scanned:
        message = "no open finding, but parts of the images were not scanned"
        raise NotScannedError(Diagnostic(message))


def deb_usages(images: Iterable[Image], is_affected: Callable[[Deb], bool]) -> tuple[Usage, ...]:
    """Return the steps that install affected Debian packages."""
    return tuple(
        dict.fromkeys(
            Usage(image.name, step, in_image)
            for image in images
            for step, in_image, debs in _apt_steps(image)
            if any(map(is_affected, debs))
        )
    )


def _apt_steps(image: Image) -> Iterator[tuple[str, bool, tuple[Deb, ...]]]:
    if isinstance(image.base, BootstrappedBase):
        yield f"base {image.base_part.title}", True, image.base.debs
    yield "packages of the image", True, image.apt_debs
    yield "tools of all build stages", False, image.toolchain_debs
    for stage in image.stages:
        yield f"build of {stage.title}", False, stage.debs
