"""Image manifests, and the checks of what SageMaker accepts."""

import hashlib
import json
from dataclasses import dataclass

from bakehouse.errors import Reason
from bakehouse.util.json_reader import parse_json
from bakehouse.util.oci import PLATFORM, ContentId, Digest

DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX = "application/vnd.oci.image.index.v1+json"
GZIP_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
_DOCKER_CONFIG = "application/vnd.docker.container.image.v1+json"
_OCI_CONFIG = "application/vnd.oci.image.config.v1+json"
_OCI_LAYER = "application/vnd.oci.image.layer.v1.tar"
KINDS = (DOCKER_MANIFEST, DOCKER_INDEX, OCI_MANIFEST, OCI_INDEX)


@dataclass(frozen=True, slots=True)
class Form:
    """Media types of an image format."""

    title: str
    manifest: str
    config: str
    layer: str
    compression: str

    def __str__(self) -> str:
        return f"{self.title} image with {self.compression} layers"


FORMS = {
    "docker": Form("Docker schema 2", DOCKER_MANIFEST, _DOCKER_CONFIG, GZIP_LAYER, "gzip"),
    "oci": Form("OCI", OCI_MANIFEST, _OCI_CONFIG, f"{_OCI_LAYER}+gzip", "gzip"),
    "oci-zstd": Form("OCI", OCI_MANIFEST, _OCI_CONFIG, f"{_OCI_LAYER}+zstd", "zstd"),
}
"""Formats by the `format` of recipes. SageMaker is known to accept `docker`."""


class UnreadableManifestError(ValueError):
    """Invalid manifest."""


@dataclass(frozen=True, slots=True)
class Descriptor:
    """Reference of a manifest to a blob or to another manifest."""

    media_type: str
    digest: Digest
    bytes: int
    attests: bool = False
    """The manifest is an attestation about an image, not an image."""
    platform: str = ""
    """Platform of a manifest of an index, such as `linux/amd64`."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest or an index, with the bytes that its digest is computed from."""

    content: bytes
    media_type: str
    config: Descriptor | None
    layers: tuple[Descriptor, ...] = ()
    members: tuple[Descriptor, ...] = ()
    """Manifests of an index."""

    @property
    def digest(self) -> Digest:
        return digest_of(self.content)

    @property
    def image(self) -> Digest | None:
        """Return the digest of the image for SageMaker's platform; None if an index has none."""
        if self.media_type not in (OCI_INDEX, DOCKER_INDEX):
            return self.digest
        return next((member.digest for member in self.members if member.platform == PLATFORM), None)

    @property
    def bytes(self) -> int:
        """Return the size in a registry: manifest, configuration and compressed layers."""
        return len(self.content) + sum(blob.bytes for blob in (*self.layers, self.config) if blob)

    @property
    def layer_bytes(self) -> int:
        """Return the size of the compressed layers."""
        return sum(layer.bytes for layer in self.layers)


def digest_of(content: bytes) -> Digest:
    """Return the digest of these bytes."""
    return Digest("sha256:" + hashlib.sha256(content).hexdigest())


def short(digest: str) -> str:
    """Return a digest shortened to `sha256:` and 12 characters, as printed in messages."""
    return digest[: len("sha256:") + 12]


def parse(content: bytes, declared: str = "") -> Manifest:
    """Return the manifest in `content`; `declared` is the media type for a manifest without one."""
    try:
        document = parse_json(content)
        members = tuple(_descriptor(entry) for entry in document.get("manifests", ()))
        config = document.get("config")
        return Manifest(
            content=content,
            media_type=str(document.get("mediaType") or declared.partition(";")[0]),
            config=_descriptor(config) if config else None,
            layers=tuple(_descriptor(entry) for entry in document.get("layers", ())),
            members=members,
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        message = "not a manifest"
        raise UnreadableManifestError(message) from error


def unfit(manifest: Manifest, form: Form) -> tuple[Reason, ...]:
    """Return why a manifest is not an image manifest in this format. SageMaker rejects every index."""
    if manifest.media_type in (OCI_INDEX, DOCKER_INDEX):
        attested = any(member.attests for member in manifest.members)
        fact = f"it is an index of {len(manifest.members)} (`{manifest.media_type}`), not one manifest"
        return (Reason(fact + (", and contains an attestation" if attested else "")),)
    reasons = []
    if manifest.media_type != form.manifest:
        reasons.append(Reason(f"its manifest is `{manifest.media_type}`, not {form.title}"))
    for number, layer in enumerate(manifest.layers, 1):
        if layer.media_type != form.layer:
            name = f"layer {number} of {len(manifest.layers)} ({short(layer.digest)})"
            reasons.append(Reason(f"{name} is `{layer.media_type}`, not {form.compression}"))
    if not manifest.layers:
        reasons.append(Reason("it has no layers"))
    return tuple(reasons)


def unfit_platform(config: bytes, wanted: str) -> tuple[Reason, ...]:
    """Return why an image with this configuration does not run on machines of a platform."""
    try:
        document = parse_json(config)
        platform = f"{document['os']}/{document['architecture']}"
    except (ValueError, TypeError, KeyError):
        return (Reason("its configuration has no platform"),)
    return () if platform == wanted else (Reason(f"it is for {platform}, not {wanted}"),)


def content_id(config: bytes) -> ContentId:
    """Return the identity of what an image contains: its layers, and its configuration without labels.

    Images that differ only in labels, times or the history of their layers have the same one.
    """
    document = parse_json(config)
    settings = {name: value for name, value in (document.get("config") or {}).items() if name != "Labels"}
    kept = {name: document.get(name) for name in ("architecture", "os", "variant", "rootfs")}
    # Builders write an empty value or leave it out
    settings = {name: value for name, value in settings.items() if value not in (None, "", [], {}, False)}
    return ContentId(digest_of(json.dumps({**kept, "config": settings}, sort_keys=True).encode()))


_NO_TIME = ("0001-", "1970-", "1980-")


@dataclass(frozen=True, slots=True)
class Origin:
    """Origin of an image according to its labels; missing ones are empty."""

    is_ours: bool = False
    """True if it has labels of Bakehouse."""
    revision: str = ""
    created: str = ""
    authors: str = ""


def origin_of(config: bytes) -> Origin:
    """Return the origin in the labels of an image's configuration."""
    try:
        document = parse_json(config)
        labels = dict((document.get("config") or {}).get("Labels") or {})
        standard = "org.opencontainers.image."
        created = str(labels.get(f"{standard}created") or document.get("created") or "")
        return Origin(
            is_ours=any(name.startswith("org.bakehouse.") for name in labels),
            revision=str(labels.get(f"{standard}revision", "")),
            # Reproducible builds record a fixed time, such as 1970.
            created="" if created.startswith(_NO_TIME) else created[:16].replace("T", " "),
            authors=str(labels.get(f"{standard}authors", "")),
        )
    except (ValueError, TypeError, AttributeError):
        return Origin()


def _descriptor(entry: dict[str, object]) -> Descriptor:
    notes = entry.get("annotations")
    attests = isinstance(notes, dict) and "vnd.docker.reference.type" in notes
    platform = entry.get("platform")
    return Descriptor(
        str(entry["mediaType"]),
        Digest(str(entry["digest"])),
        int(str(entry["size"])),
        attests,
        f"{platform.get('os')}/{platform.get('architecture')}" if isinstance(platform, dict) else "",
    )
