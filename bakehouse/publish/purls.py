"""Names packages and files as package URLs (purl), for what is said about an image in public."""

from urllib.parse import urlsplit, urlunsplit

from bakehouse.analysis.packages import Distribution, SystemPackage
from bakehouse.catalog.apt_lock import Deb
from bakehouse.catalog.component import Artifact
from bakehouse.catalog.python_lock import Package
from bakehouse.plan.model import Part
from bakehouse.util.oci import Digest


def of_image(name: str, digest: Digest) -> str:
    """An image, wherever it lies."""
    return _purl("oci", name, digest)


def of_part(part: Part) -> str:
    """A component of the catalogue."""
    return _purl("generic", part.component, part.version)


def of_system_package(package: SystemPackage, system: str, version: str) -> str:
    """A package of a Debian or of what derives from it."""
    qualifiers = {"arch": package.architecture, "distro": f"{system}-{version}" if version else system}
    return _purl("deb", package.name, package.version, namespace=system or "debian", **qualifiers)


def of_deb(deb: Deb) -> str:
    """Where it was found when it was locked; a package of Debian where every mirror of the suite has it."""
    return deb.url or _purl("deb", deb.name, deb.version, namespace="debian")


def of_distribution(package: Distribution | Package) -> str:
    """A Python distribution, installed or to be installed."""
    return _purl("pypi", package.name, package.version)


def of_reference(reference: str) -> str:
    """An image by the name that it is pulled by."""
    place, _, tag = reference.rpartition(":")
    if not place or "/" in tag:
        place, tag = reference, ""
    return _purl("oci", place.rpartition("/")[2], "", repository_url=place, tag=tag)


def of_suite(suite: str) -> str:
    """A suite of Debian, or of what derives from it, that a base is made from."""
    return _purl("generic", "apt-suite", suite)


def of_artifact(artifact: Artifact) -> str:
    """Where a file is from: its URL, or the package that a package index has it as."""
    if artifact.kind == "url":
        return public_url(artifact.source)
    if artifact.kind == "debian":
        name, _, version = artifact.source.partition("=")
        return _purl("deb", name, version, namespace="debian", arch="source")
    name, _, version = artifact.source.partition("==")
    return _purl("pypi", name, version)


def public_url(url: str) -> str:
    """An address without what may be secret in it: a password, a signature in its query."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _purl(kind: str, name: str, version: str, namespace: str = "", **qualifiers: str) -> str:
    from packageurl import PackageURL

    given = {key: value for key, value in qualifiers.items() if value}
    return PackageURL(kind, namespace or None, name, version or None, given).to_string()
