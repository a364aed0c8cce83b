"""Readers of scanners' reports: JSON of Trivy, Grype and Amazon ECR."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from bakehouse.commands.security.document import DocumentError, DocumentValue, invalid, parse, read
from bakehouse.commands.security.findings import PackageKind, Vulnerability, named
from bakehouse.errors import RecipeError

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_TRIVY_TYPES: dict[str, PackageKind] = {"debian": "Debian", "ubuntu": "Debian", "python-pkg": "Python"}
_GRYPE_TYPES: dict[str, PackageKind] = {"deb": "Debian", "python": "Python"}
_INSPECTOR_MANAGERS: dict[str, PackageKind] = {
    "OS": "Debian",
    "PIP": "Python",
    "PIPENV": "Python",
    "POETRY": "Python",
    "PYTHONPKG": "Python",
}


@dataclass(frozen=True, slots=True)
class ScannedPackage:
    """A package as a scanner names it."""

    kind: PackageKind
    name: str
    version: str


@dataclass(frozen=True, slots=True)
class ScannerReport:
    """A scanner's report of one image."""

    path: Path
    tool: str
    day: str
    """Empty if the report has no time."""
    image: str
    """Name of the image in the report; can be empty."""
    digests: frozenset[str]
    """Digests of the manifest or the configuration."""
    covers: frozenset[PackageKind]
    """Kinds of packages for which the scanner reports all known vulnerabilities."""
    findings: tuple[tuple[ScannedPackage, Vulnerability], ...]
    dismissed: int = 0
    """Number of findings that the report itself states to be without impact."""


def load(path: Path) -> ScannerReport:
    """Read a report. Raises RecipeError."""
    try:
        document = parse(read(path))
        for is_format, reader in _FORMATS:
            if is_format(document):
                return reader(path, document)
    except DocumentError as error:
        raise invalid(path, "a valid report of a scanner", error) from error
    message = "its format is unknown"
    raise _unknown(path, DocumentError(message))


def _unknown(path: Path, error: DocumentError) -> RecipeError:
    hint = "use JSON of Trivy, Grype or `aws ecr describe-image-scan-findings`"
    return invalid(path, "a report of a scanner", error, hint)


def _digests(*nodes: DocumentValue) -> frozenset[str]:
    return frozenset(digest for node in nodes for digest in _DIGEST.findall(unquote(node.text)))


def _title(*words: str) -> str:
    return " ".join(filter(None, words))


def _severity(node: DocumentValue) -> str:
    return node.text.upper()


def _trivy(path: Path, report: DocumentValue) -> ScannerReport:
    metadata = report["Metadata"]
    results = list(report["Results"])
    covers: set[PackageKind] = set()
    for result in results:
        kind = _TRIVY_TYPES.get(result["Type"].text)
        if kind and result["Class"].text in ("os-pkgs", "lang-pkgs"):
            covers.add(kind)
    return ScannerReport(
        path,
        _title("Trivy", report["Trivy"]["Version"].text),
        report["CreatedAt"].day,
        report["ArtifactName"].text,
        _digests(report["ArtifactName"], metadata["ImageID"], *metadata["RepoDigests"]),
        frozenset(covers),
        tuple(finding for result in results for finding in _trivy_findings(result)),
    )


def _trivy_findings(result: DocumentValue) -> Iterator[tuple[ScannedPackage, Vulnerability]]:
    kind = _TRIVY_TYPES.get(result["Type"].text, "other")
    for item in result["Vulnerabilities"]:
        package = ScannedPackage(kind, item["PkgName"].needed, item["InstalledVersion"].text)
        id, aliases = named(item["VulnerabilityID"].needed, item["VendorIDs"].texts)
        yield package, Vulnerability(id, item["FixedVersion"].text, aliases, _severity(item["Severity"]))


def _grype(path: Path, report: DocumentValue) -> ScannerReport:
    descriptor, source = report["descriptor"], report["source"]
    target = source["target"]
    if source["type"].text != "image":
        message = f"`source.type` is `{source['type'].text}`, not `image`"
        raise DocumentError(message)
    names = (target["userInput"], target["imageID"], target["manifestDigest"], *target["repoDigests"])
    is_debian = report["distro"]["name"].text in ("debian", "ubuntu")
    return ScannerReport(
        path,
        _title("Grype", descriptor["version"].text),
        descriptor["timestamp"].day,
        target["userInput"].text,
        _digests(*names),
        frozenset[PackageKind](("Debian", "Python") if is_debian else ("Python",)),
        tuple(_grype_findings(report["matches"])),
    )


def _grype_findings(matches: DocumentValue) -> Iterator[tuple[ScannedPackage, Vulnerability]]:
    for match in matches:
        artifact, vulnerability = match["artifact"], match["vulnerability"]
        kind = _GRYPE_TYPES.get(artifact["type"].text, "other")
        package = ScannedPackage(kind, artifact["name"].needed, artifact["version"].text)
        related = [related_entry["id"].text for related_entry in match["relatedVulnerabilities"]]
        id, aliases = named(vulnerability["id"].needed, related)
        fixed = ", ".join(vulnerability["fix"]["versions"].texts)
        yield package, Vulnerability(id, fixed, aliases, _severity(vulnerability["severity"]))


def _ecr(path: Path, report: DocumentValue) -> ScannerReport:
    status = report["imageScanStatus"]["status"].text
    if status not in ("COMPLETE", "ACTIVE"):
        message = f"the status of the scan is {status or 'missing'}"
        raise DocumentError(message)
    if report["nextToken"].text:
        message = "it is only one page of the findings"
        raise DocumentError(message)
    scan = report["imageScanFindings"]
    is_enhanced = "enhancedFindings" in scan
    active = [item for item in scan["enhancedFindings"] if item["status"].text != "CLOSED"]
    shown = [item for item in active if item["status"].text != "SUPPRESSED"]
    findings = _inspector_findings(shown) if is_enhanced else _basic_findings(scan["findings"])
    return ScannerReport(
        path,
        f"Amazon ECR {'enhanced' if is_enhanced else 'basic'} scan",
        scan["imageScanCompletedAt"].day,
        report["repositoryName"].text,
        _digests(report["imageId"]["imageDigest"]),
        frozenset[PackageKind](("Debian", "Python") if is_enhanced else ("Debian",)),
        tuple(findings),
        len(active) - len(shown),
    )


def _basic_findings(findings: DocumentValue) -> Iterator[tuple[ScannedPackage, Vulnerability]]:
    for item in findings:
        attributes = {attribute["key"].text: attribute["value"].text for attribute in item["attributes"]}
        name = attributes.get("package_name") or "unknown package"
        package = ScannedPackage("Debian", name, attributes.get("package_version", ""))
        yield package, Vulnerability(item["name"].needed, "", (), _severity(item["severity"]))


def _inspector_findings(findings: Iterable[DocumentValue]) -> Iterator[tuple[ScannedPackage, Vulnerability]]:
    for item in findings:
        details = item["packageVulnerabilityDetails"]
        id, aliases = named(details["vulnerabilityId"].needed, details["relatedVulnerabilities"].texts)
        for vulnerable in details["vulnerablePackages"]:
            kind = _INSPECTOR_MANAGERS.get(vulnerable["packageManager"].text, "other")
            release = vulnerable["release"].text
            version = f"{vulnerable['version'].text}{f'-{release}' if release else ''}"
            epoch = vulnerable["epoch"].value
            if isinstance(epoch, int) and epoch:
                version = f"{epoch}:{version}"
            fixed = vulnerable["fixedInVersion"].text
            package = ScannedPackage(kind, vulnerable["name"].needed, version)
            fixed = "" if fixed == "NotAvailable" else fixed
            yield package, Vulnerability(id, fixed, aliases, _severity(item["severity"]))


_FORMATS: tuple[
    tuple[Callable[[DocumentValue], bool], Callable[[Path, DocumentValue], ScannerReport]], ...
] = (
    (lambda document: "ArtifactName" in document and "SchemaVersion" in document, _trivy),
    (lambda document: "matches" in document and "source" in document, _grype),
    (lambda document: "imageScanStatus" in document, _ecr),
)
