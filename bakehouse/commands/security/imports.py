"""Findings of scanners, joined to the images that they are about."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from packaging.utils import canonicalize_name
from packaging.version import Version

from bakehouse.commands.security.contents import PythonPackage, deb_usages, is_newer, python_packages
from bakehouse.commands.security.findings import PackageFinding, PackageKind, Source, Usage, Vulnerability
from bakehouse.commands.security.scanner_reports import ScannedPackage, ScannerReport, load
from bakehouse.errors import Diagnostic, Location, Problems, UsageError
from bakehouse.plan.model import Image
from bakehouse.registry.manifest import short
from bakehouse.util.files import display_path
from bakehouse.util.format import format_count


class PublishedBuild(Protocol):
    """A build of an image in a registry, as its release record names it."""

    @property
    def key(self) -> str: ...
    @property
    def digest(self) -> str: ...
    @property
    def config(self) -> str: ...


BuildsOf = Callable[[str], Sequence[PublishedBuild]]
"""Returns the published builds of an image."""


@dataclass(slots=True)
class Imported:
    """Findings of scanners."""

    sources: list[Source] = field(default_factory=list)
    findings: list[PackageFinding] = field(default_factory=list)
    covered: dict[str, frozenset[PackageKind]] = field(default_factory=dict)
    """Kinds of packages that a scanner read, by image."""


def import_reports(paths: Iterable[Path], images: Sequence[Image], builds_of: BuildsOf) -> Imported:
    """Return the findings of reports. Raises UsageError for reports of other images or builds."""
    imported = Imported()
    problems = Problems()
    builds = {image.name: builds_of(image.name) for image in images}
    for path in paths:
        report = load(path)
        image = _image_of(report, images, builds, problems)
        if image is None:
            continue
        title = ", ".join(filter(None, (display_path(path), report.day, _dismissed(report))))
        imported.sources.append(Source(report.tool, title, (image.name,)))
        imported.findings += _findings(report, image)
        known = imported.covered.get(image.name, frozenset())
        imported.covered[image.name] = known | report.covers
    problems.raise_as(UsageError)
    return imported


def _dismissed(report: ScannerReport) -> str:
    return f"{format_count(report.dismissed, 'finding')} dismissed by it" if report.dismissed else ""


def _image_of(
    report: ScannerReport,
    images: Sequence[Image],
    builds: Mapping[str, Sequence[PublishedBuild]],
    problems: Problems,
) -> Image | None:
    """Return the image of a report; None, with a problem, if it is not of the current build of an image."""
    location = Location(report.path, 1, 1)
    file = display_path(report.path)
    if not report.digests:
        message = f"`{file}` names no digest of an image"
        hint = "scan the pushed image, and use the JSON format of the scanner"
        problems.add(Diagnostic(message, location, hint=hint))
        return None
    older = None
    for image in images:
        for build in builds[image.name]:
            if report.digests & {build.digest, build.config}:
                if build.key == image.key:
                    return image
                older = (image, build)
    facts = [("scanned", digest) for digest in sorted(report.digests)]
    if older:
        image, build = older
        message = f"`{file}` is of an older build of `{image.name}`, {short(build.digest)}"
        hint = f"scan the build of the current recipe: `bake uri {image.name}` shows it"
    else:
        message = f"`{file}` is of another image{f', `{report.image}`' if report.image else ''}"
        facts += [("published", item) for item in _present(images, builds)]
        hint = "push the image, and scan the digest in its release record"
    problems.add(Diagnostic(message, location, facts=tuple(facts), hint=hint))
    return None


def _present(images: Sequence[Image], builds: Mapping[str, Sequence[PublishedBuild]]) -> Iterator[str]:
    """Yield the digests of the current builds, with their images."""
    for image in images:
        digests = {build.digest for build in builds[image.name] if build.key == image.key}
        yield from (f"{digest} {image.name}" for digest in sorted(digests))


def _findings(report: ScannerReport, image: Image) -> Iterator[PackageFinding]:
    python = python_packages([image])
    vulnerabilities: dict[ScannedPackage, dict[str, Vulnerability]] = {}
    for package, vulnerability in report.findings:
        kind = _kind(package, image, python)
        named = ScannedPackage(kind, _name(kind, package.name), package.version)
        vulnerabilities.setdefault(named, {})[vulnerability.id] = vulnerability
    for package, by_id in vulnerabilities.items():
        found = tuple(sorted(by_id.values()))
        yield PackageFinding(
            kind=package.kind,
            name=package.name,
            version=package.version,
            newer=_newest(package.kind, found),
            source=report.tool,
            packages=(package.name,),
            vulnerabilities=found,
            usages=_usages(package, image, python),
        )


def _name(kind: PackageKind, name: str) -> str:
    return canonicalize_name(name) if kind == "Python" else name


def _kind(package: ScannedPackage, image: Image, python: Iterable[PythonPackage]) -> PackageKind:
    """Return the kind of a package; if the report does not name it, the image may lock the package."""
    if package.kind != "other":
        return package.kind
    if any((deb.name, deb.version) == (package.name, package.version) for deb in image.debs):
        return "Debian"
    name = canonicalize_name(package.name)
    is_locked = any((locked.name, locked.version) == (name, package.version) for locked in python)
    return "Python" if is_locked else "other"


def _usages(
    package: ScannedPackage, image: Image, python: Mapping[PythonPackage, tuple[Usage, ...]]
) -> tuple[Usage, ...]:
    """Return the steps that install a package; the image itself if its plan does not contain the package."""
    usages: tuple[Usage, ...] = ()
    if package.kind == "Debian":
        steps = deb_usages([image], lambda deb: (deb.name, deb.version) == (package.name, package.version))
        usages = tuple(usage for usage in steps if usage.in_image)
    elif package.kind == "Python":
        usages = tuple(
            usage
            for locked, steps in python.items()
            if (locked.name, locked.version) == (package.name, package.version)
            for usage in steps
        )
    return usages or (Usage(image.name, "contents of the image", in_image=True),)


def _newest(kind: PackageKind, vulnerabilities: Iterable[Vulnerability]) -> str:
    """Return the newest version that fixes one of the vulnerabilities.

    It is empty if none has a single fix, or if the fixes cannot be compared.
    """
    fixes = {
        vulnerability.fixed
        for vulnerability in vulnerabilities
        if vulnerability.fixed and ", " not in vulnerability.fixed
    }
    try:
        if kind == "Python":
            return str(max(map(Version, fixes), default=""))
        newest = ""
        for fixed in sorted(fixes):
            newest = fixed if not newest or is_newer(fixed, newest) else newest
        return newest
    except ValueError:
        return ""
