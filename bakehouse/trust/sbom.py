"""Bill of materials (SBOM) of an image in CycloneDX, and the package URLs (purl) that it uses.

The same image gives the same bytes: they contain no date, and the serial number derives from the digest.
"""

import json
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from packaging.utils import canonicalize_name

from bakehouse import __version__
from bakehouse.analysis.packages import Distribution, Installed
from bakehouse.catalog.apt_lock import Deb
from bakehouse.catalog.component import Artifact
from bakehouse.catalog.python_lock import Package
from bakehouse.plan.model import Image
from bakehouse.util.oci import Digest

if TYPE_CHECKING:
    from cyclonedx.model import HashType, Property
    from cyclonedx.model.component import Component, ComponentType

MEDIA_TYPE = "application/vnd.cyclonedx+json"
UNKNOWN = "unknown"


def text_of(image: Image, digest: Digest, installed: Installed) -> bytes:
    """Return the CycloneDX document of the image with this digest."""
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.output.json import JsonV1Dot6

    purl = _purl("oci", image.name, digest)
    subject = _component(ComponentType.CONTAINER, image.name, digest, purl)
    subject.properties.update(_properties(image, installed))
    components = [*_recipe_components(image), *_system_packages(installed), *_distributions(image, installed)]
    bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_URL, purl), components=components)
    bom.metadata.component = subject
    bom.metadata.tools.components.add(
        Component(type=ComponentType.APPLICATION, name="bakehouse", version=__version__, bom_ref="bakehouse")
    )
    bom.register_dependency(subject, components)
    document = json.loads(JsonV1Dot6(bom).output_as_string())
    # The library always writes a timestamp.
    del document["metadata"]["timestamp"]
    return (json.dumps(document, indent=1, sort_keys=True) + "\n").encode()


def _component(kind: "ComponentType", name: str, version: str, purl: str, reference: str = "") -> "Component":
    from cyclonedx.model.component import Component
    from packageurl import PackageURL

    parsed = PackageURL.from_string(purl)
    return Component(type=kind, name=name, version=version, bom_ref=reference or purl, purl=parsed)


def _properties(image: Image, installed: Installed) -> Iterator["Property"]:
    from cyclonedx.model import Property

    system = f"{installed.system} {installed.system_version}".strip() or UNKNOWN
    yield Property(name="bakehouse:key", value=image.key)
    yield Property(name="bakehouse:system", value=system)
    if installed.packages is None:
        yield Property(name="bakehouse:system-packages", value=UNKNOWN)


def _recipe_components(image: Image) -> Iterator["Component"]:
    """Components of the recipe, each with its source files."""
    from cyclonedx.model import ExternalReference, ExternalReferenceType, Property, XsUri
    from cyclonedx.model.component import ComponentType

    artifacts = {stage.part.component: stage.artifacts.values() for stage in image.stages}
    for part in image.all_parts:
        purl = _purl("generic", part.component, part.version)
        reference = f"part:{part.component}"
        component = _component(ComponentType.LIBRARY, part.component, part.version, purl, reference)
        if part.variant:
            component.properties.add(Property(name="bakehouse:variant", value=part.variant))
        for artifact in artifacts.get(part.component, ()):
            component.external_references.add(
                ExternalReference(
                    type=ExternalReferenceType.DISTRIBUTION,
                    url=XsUri(artifact_uri(artifact)),
                    comment=artifact.file if artifact.sha256 else f"{artifact.file}, sha256 {UNKNOWN}",
                    hashes=_hashes(artifact.sha256),
                )
            )
        yield component


def _system_packages(installed: Installed) -> Iterator["Component"]:
    """Packages of dpkg or rpm."""
    from cyclonedx.model.component import ComponentType

    system = installed.system
    distro = f"{system}-{installed.system_version}" if installed.system_version else system
    for package in installed.packages or ():
        qualifiers = {"arch": package.architecture, "distro": distro}
        version = package.version
        if installed.kind == "rpm" and ":" in version:
            qualifiers["epoch"], _, version = version.partition(":")
        namespace = system or ("debian" if installed.kind == "deb" else "")
        purl = _purl(installed.kind, package.name, version, namespace=namespace, **qualifiers)
        yield _component(ComponentType.LIBRARY, package.name, package.version, purl)


def _distributions(image: Image, installed: Installed) -> Iterator["Component"]:
    """Installed Python distributions; those from a lock have its sha256."""
    from cyclonedx.model import Property
    from cyclonedx.model.component import ComponentType

    locked = {
        _identity(package): package.sha256
        for stage in image.stages
        for package in (*stage.wheels, *stage.sdists)
    }
    for distribution in installed.distributions:
        purl = distribution_purl(distribution)
        reference = f"{purl}#{distribution.folders[0]}"
        name, version = distribution.name, distribution.version
        component = _component(ComponentType.LIBRARY, name, version, purl, reference)
        component.hashes.update(_hashes(locked.get(_identity(distribution))))
        component.properties.update(
            Property(name="bakehouse:folder", value=folder) for folder in distribution.folders
        )
        yield component


def _identity(package: Package | Distribution) -> tuple[str, str]:
    return canonicalize_name(package.name), package.version


def _hashes(sha256: str | None) -> list["HashType"]:
    from cyclonedx.model import HashAlgorithm, HashType

    return [HashType(alg=HashAlgorithm.SHA_256, content=sha256)] if sha256 else []


def deb_purl(deb: Deb) -> str:
    """Return the URL of a locked package, or its purl if every mirror of Debian has it."""
    return deb.url or _purl("deb", deb.name, deb.version, namespace="debian")


def distribution_purl(package: Distribution | Package) -> str:
    """Return the purl of a Python distribution, installed or locked."""
    return _purl("pypi", package.name, package.version)


def reference_purl(reference: str) -> str:
    """Return the purl of an image by the reference that it is pulled by."""
    repository, _, tag = reference.rpartition(":")
    if not repository or "/" in tag:
        repository, tag = reference, ""
    return _purl("oci", repository.rpartition("/")[2], "", repository_url=repository, tag=tag)


def suite_purl(suite: str) -> str:
    """Return the purl of the Debian suite that a base is bootstrapped from."""
    return _purl("generic", "apt-suite", suite)


def artifact_uri(artifact: Artifact) -> str:
    """Return the origin of a file: its URL, or the purl of its package in a package index."""
    if artifact.kind == "url":
        return public_url(artifact.source)
    if artifact.kind == "debian":
        name, _, version = artifact.source.partition("=")
        return _purl("deb", name, version, namespace="debian", arch="source")
    name, _, version = artifact.source.partition("==")
    return _purl("pypi", name, version)


def public_url(url: str) -> str:
    """Return a URL without its possibly secret parts: user, password and query."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _purl(kind: str, name: str, version: str, namespace: str = "", **qualifiers: str) -> str:
    from packageurl import PackageURL

    given = {key: value for key, value in qualifiers.items() if value}
    return PackageURL(kind, namespace or None, name, version or None, given).to_string()
