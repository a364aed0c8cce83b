"""Writes the bill of materials of an image: what is installed in it, and what the plan knows of that.

The same image gives the same bytes: there is no date in them, and the serial number is made of the digest.
"""

import json
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from bakehouse import __version__
from bakehouse.analysis.packages import Distribution, Installed
from bakehouse.catalog.python_lock import Package
from bakehouse.plan.model import Image
from bakehouse.publish import purls
from bakehouse.util.oci import Digest

if TYPE_CHECKING:
    from cyclonedx.model import HashType, Property
    from cyclonedx.model.component import Component
    from packageurl import PackageURL

MEDIA_TYPE = "application/vnd.cyclonedx+json"
UNKNOWN = "unknown"


def text_of(image: Image, digest: Digest, installed: Installed) -> bytes:
    """A CycloneDX document about the image that has this digest."""
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.output.json import JsonV1Dot6

    purl = purls.of_image(image.name, digest)
    about = Component(type=ComponentType.CONTAINER, name=image.name, version=digest, bom_ref=purl)
    about.purl = _parsed(purl)
    about.properties.update(_properties(image, installed))
    components = [*_parts(image), *_system_packages(installed), *_distributions(image, installed)]
    bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_URL, purl), components=components)
    bom.metadata.component = about
    bom.metadata.tools.components.add(
        Component(type=ComponentType.APPLICATION, name="bakehouse", version=__version__, bom_ref="bakehouse")
    )
    bom.register_dependency(about, components)
    document = json.loads(JsonV1Dot6(bom).output_as_string())
    # The library always writes one.
    del document["metadata"]["timestamp"]
    return (json.dumps(document, indent=1, sort_keys=True) + "\n").encode()


def _properties(image: Image, installed: Installed) -> Iterator["Property"]:
    from cyclonedx.model import Property

    system = f"{installed.system} {installed.system_version}".strip() or UNKNOWN
    yield Property(name="bakehouse:key", value=image.key)
    yield Property(name="bakehouse:system", value=system)
    if installed.packages is None:
        yield Property(name="bakehouse:system-packages", value=UNKNOWN)


def _parts(image: Image) -> Iterator["Component"]:
    """The components of the recipe, each with the files that it was made from."""
    from cyclonedx.model import ExternalReference, ExternalReferenceType, Property, XsUri
    from cyclonedx.model.component import Component, ComponentType

    files = {stage.part.component: stage.artifacts.values() for stage in image.stages}
    for part in image.all_parts:
        made = Component(
            type=ComponentType.LIBRARY,
            name=part.component,
            version=part.version,
            bom_ref=f"part:{part.component}",
            purl=_parsed(purls.of_part(part)),
        )
        if part.variant:
            made.properties.add(Property(name="bakehouse:variant", value=part.variant))
        for artifact in files.get(part.component, ()):
            made.external_references.add(
                ExternalReference(
                    type=ExternalReferenceType.DISTRIBUTION,
                    url=XsUri(purls.of_artifact(artifact)),
                    comment=artifact.file if artifact.sha256 else f"{artifact.file}, sha256 {UNKNOWN}",
                    hashes=_hashes(artifact.sha256),
                )
            )
        yield made


def _system_packages(installed: Installed) -> Iterator["Component"]:
    from cyclonedx.model.component import Component, ComponentType

    for package in installed.packages or ():
        purl = purls.of_system_package(package, installed.system, installed.system_version)
        yield Component(
            type=ComponentType.LIBRARY,
            name=package.name,
            version=package.version,
            bom_ref=purl,
            purl=_parsed(purl),
        )


def _distributions(image: Image, installed: Installed) -> Iterator["Component"]:
    """Python's distributions, with the sha256 of those that are installed from a lock."""
    from cyclonedx.model import Property
    from cyclonedx.model.component import Component, ComponentType

    locked = {_identity(one): one.sha256 for stage in image.stages for one in (*stage.wheels, *stage.sdists)}
    for one in installed.distributions:
        purl = purls.of_distribution(one)
        yield Component(
            type=ComponentType.LIBRARY,
            name=one.name,
            version=one.version,
            bom_ref=f"{purl}#{one.folders[0]}",
            purl=_parsed(purl),
            hashes=_hashes(locked.get(_identity(one))),
            properties=[Property(name="bakehouse:folder", value=folder) for folder in one.folders],
        )


def _identity(package: Package | Distribution) -> tuple[str, str]:
    return canonicalize_name(package.name), package.version


def _hashes(sha256: str | None) -> list["HashType"]:
    from cyclonedx.model import HashAlgorithm, HashType

    return [HashType(alg=HashAlgorithm.SHA_256, content=sha256)] if sha256 else []


def _parsed(purl: str) -> "PackageURL":
    from packageurl import PackageURL

    return PackageURL.from_string(purl)
