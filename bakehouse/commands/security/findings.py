"""Packages with vulnerabilities, the steps that use them, and what was not scanned."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from bakehouse.errors import Diagnostic, NotScannedError, VulnerableError
from bakehouse.util.format import format_count

PackageKind = Literal["Debian", "Python", "other"]
PURL_KINDS: dict[str, PackageKind] = {"deb": "Debian", "pypi": "Python"}
"""Kinds of packages by type of package URL."""
ContentKind = Literal["Debian", "Python", "base", "files", "run"]
"""Kinds of contents: packages, vendor bases, files of components, and results of `run` steps."""
_WITHOUT_SOURCE: tuple[ContentKind, ...] = ("files", "run")
"""Kinds of contents that no scanner covers."""


@dataclass(frozen=True, slots=True, order=True)
class Vulnerability:
    """A vulnerability of a package."""

    id: str
    fixed: str
    """The version that fixes it; empty if none is known."""
    aliases: tuple[str, ...] = ()
    """Its names in other databases."""
    severity: str = ""
    """Its severity in capitals, such as `HIGH`, if a scanner rates it."""


@dataclass(frozen=True, slots=True)
class Waiver:
    """A decision that a vulnerability may stay in images until a day."""

    vulnerability: str
    status: str
    """`not affected`, `accepted` or `fixed`."""
    reason: str
    owner: str
    expires: str
    is_expired: bool
    images: tuple[str, ...]


@dataclass(frozen=True, slots=True, order=True)
class Usage:
    """A step of an image that installs a package."""

    image: str
    step: str
    in_image: bool
    """False if only a build stage contains the package."""


@dataclass(frozen=True, slots=True)
class PackageFinding:
    """A package of an image with known vulnerabilities."""

    kind: PackageKind
    name: str
    version: str
    newer: str
    """The version with all known fixes; empty if no fix is known."""
    source: str
    """The scanner."""
    packages: tuple[str, ...]
    """The installed packages."""
    vulnerabilities: tuple[Vulnerability, ...]
    usages: tuple[Usage, ...]
    waivers: tuple[Waiver, ...] = ()

    @property
    def open_vulnerabilities(self) -> tuple[Vulnerability, ...]:
        """The vulnerabilities that are not waived in all images."""
        return tuple(item for item in self.vulnerabilities if not self._is_waived(item))

    def _is_waived(self, vulnerability: Vulnerability) -> bool:
        waived = {
            image
            for waiver in self.waivers
            if waiver.vulnerability == vulnerability.id and not waiver.is_expired
            for image in waiver.images
        }
        return waived.issuperset(usage.image for usage in self.usages)

    @property
    def is_open(self) -> bool:
        """Return whether it has a vulnerability that is not waived."""
        return bool(self.open_vulnerabilities)


@dataclass(frozen=True, slots=True)
class NotScanned:
    """Contents of images whose vulnerabilities are unknown."""

    kind: ContentKind
    what: str
    reason: str
    images: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """A report of a scanner."""

    name: str
    title: str
    images: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SecurityReport:
    """The findings of images."""

    images: tuple[str, ...]
    sources: tuple[Source, ...]
    findings: tuple[PackageFinding, ...]
    not_scanned: tuple[NotScanned, ...]
    warnings: tuple[Diagnostic, ...] = ()
    """Mistakes in waivers."""

    @property
    def left_out(self) -> tuple[NotScanned, ...]:
        """Contents that a scanner can cover."""
        return tuple(item for item in self.not_scanned if item.kind not in _WITHOUT_SOURCE)

    @property
    def unknown(self) -> tuple[NotScanned, ...]:
        """Contents that cannot be scanned."""
        return tuple(item for item in self.not_scanned if item.kind in _WITHOUT_SOURCE)

    @property
    def open_findings(self) -> tuple[PackageFinding, ...]:
        return tuple(finding for finding in self.findings if finding.is_open)


def require_clean(report: SecurityReport, hint: str = "") -> None:
    """Raise VulnerableError for open findings, or NotScannedError if contents were left out of the scan.

    `hint` is for findings with a fix.
    """
    if findings := report.open_findings:
        count = len(
            {vulnerability.id for finding in findings for vulnerability in finding.open_vulnerabilities}
        )
        problem = format_count(count, "known vulnerability", "known vulnerabilities")
        # Several scanners can report one package
        packages = format_count(
            len({(finding.kind, finding.name, finding.version) for finding in findings}), "package"
        )
        has_fix = any(finding.newer for finding in findings)
        raise VulnerableError(f"{packages} with {problem}", hint=hint if has_fix else "")
    if report.left_out:
        raise NotScannedError("no open finding, but parts of the images were not scanned")


def named(id: str, aliases: Iterable[str]) -> tuple[str, tuple[str, ...]]:
    """Return the CVE number of a vulnerability if it has one, else its id, and its other names."""
    names = dict.fromkeys((id, *filter(None, aliases)))
    cves = sorted(name for name in names if name.startswith("CVE-"))
    chosen = id if id in cves or not cves else cves[0]
    return chosen, tuple(name for name in names if name != chosen)
