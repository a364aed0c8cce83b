"""Image manifests, and the checks of what SageMaker accepts."""

import hashlib
import json
from dataclasses import dataclass

from bakehouse.errors import Reason
from bakehouse.util.hashing import KEY_LABEL
from bakehouse.util.oci import PLATFORM, Digest

DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX = "application/vnd.oci.image.index.v1+json"
GZIP_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
_OCI_LAYER = "application/vnd.oci.image.layer.v1.tar"
KINDS = (DOCKER_MANIFEST, DOCKER_INDEX, OCI_MANIFEST, OCI_INDEX)


@dataclass(frozen=True, slots=True)
class Form:
    """What the manifest of an image of some format and its layers are."""

    title: str
    manifest: str
    layer: str
    compression: str

    def __str__(self) -> str:
        return f"{self.title} image with {self.compression} layers"


FORMS = {
    "docker": Form("Docker schema 2", DOCKER_MANIFEST, GZIP_LAYER, "gzip"),
    "oci": Form("OCI", OCI_MANIFEST, f"{_OCI_LAYER}+gzip", "gzip"),
    "oci-zstd": Form("OCI", OCI_MANIFEST, f"{_OCI_LAYER}+zstd", "zstd"),
}
"""By the `format` of recipes. What SageMaker is known to take is `docker`."""


class UnreadableManifestError(ValueError):
    """Invalid manifest."""


@dataclass(frozen=True, slots=True)
class Descriptor:
    """How a manifest names something else that is stored."""

    media_type: str
    digest: Digest
    bytes: int
    attests: bool = False
    """Whether it says something about an image instead of being one."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest or an index, as the bytes that its digest is made of."""

    content: bytes
    media_type: str
    config: Descriptor | None
    layers: tuple[Descriptor, ...] = ()
    members: tuple[Descriptor, ...] = ()
    """What an index lists."""

    @property
    def digest(self) -> Digest:
        return digest_of(self.content)

    @property
    def bytes(self) -> int:
        """The size of everything that a registry stores for it, as it is stored."""
        return len(self.content) + sum(part.bytes for part in (*self.layers, self.config) if part)

    @property
    def layer_bytes(self) -> int:
        """The size of its layers, compressed."""
        return sum(layer.bytes for layer in self.layers)


def digest_of(content: bytes) -> Digest:
    """Return the digest of these bytes."""
    return Digest("sha256:" + hashlib.sha256(content).hexdigest())


def short(digest: str) -> str:
    """A digest as far as a person compares it."""
    return digest[: len("sha256:") + 12]


def parse(content: bytes, declared: str = "") -> Manifest:
    """The manifest in `content`; `declared` is the media type that came with it, for those that name none."""
    try:
        document = json.loads(content)
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
    """Why this is not one manifest of that form, of which SageMaker takes no index in any."""
    if manifest.media_type in (OCI_INDEX, DOCKER_INDEX):
        attested = any(member.attests for member in manifest.members)
        what = f"it is an index of {len(manifest.members)} (`{manifest.media_type}`), not one manifest"
        return (Reason(what + (", and carries an attestation" if attested else "")),)
    reasons = []
    if manifest.media_type != form.manifest:
        reasons.append(Reason(f"its manifest is `{manifest.media_type}`, not {form.title}"))
    for number, layer in enumerate(manifest.layers, 1):
        if layer.media_type != form.layer:
            place = f"layer {number} of {len(manifest.layers)} ({short(layer.digest)})"
            reasons.append(Reason(f"{place} is `{layer.media_type}`, not {form.compression}"))
    if not manifest.layers:
        reasons.append(Reason("it has no layers"))
    return tuple(reasons)


def unfit_platform(config: bytes) -> tuple[Reason, ...]:
    """Why an image with this configuration runs elsewhere than on SageMaker's machines."""
    try:
        document = json.loads(config)
        found = f"{document['os']}/{document['architecture']}"
    except (ValueError, TypeError, KeyError):
        return (Reason("its configuration names no platform"),)
    return () if found == PLATFORM else (Reason(f"it is for {found}, not {PLATFORM}"),)


_NO_TIME = ("0001-", "1970-", "1980-")


@dataclass(frozen=True, slots=True)
class Origin:
    """What an image's own labels tell of where it comes from; what they don't is empty."""

    key: str = ""
    """Of the plan it was built from, where Bakehouse built it."""
    revision: str = ""
    created: str = ""
    authors: str = ""


def origin_of(config: bytes) -> Origin:
    """Where an image with this configuration says that it comes from."""
    try:
        document = json.loads(config)
        labels = dict((document.get("config") or {}).get("Labels") or {})
        standard = "org.opencontainers.image."
        created = str(labels.get(f"{standard}created") or document.get("created") or "")
        return Origin(
            key=str(labels.get(KEY_LABEL, "")),
            revision=str(labels.get(f"{standard}revision", "")),
            # What is built reproducibly says that it was made at the beginning of time.
            created="" if created.startswith(_NO_TIME) else created[:16].replace("T", " "),
            authors=str(labels.get(f"{standard}authors", "")),
        )
    except (ValueError, TypeError, AttributeError):
        return Origin()


def _descriptor(entry: dict[str, object]) -> Descriptor:
    notes = entry.get("annotations")
    attests = isinstance(notes, dict) and "vnd.docker.reference.type" in notes
    return Descriptor(str(entry["mediaType"]), Digest(str(entry["digest"])), int(str(entry["size"])), attests)
