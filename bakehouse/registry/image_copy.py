"""Copies an image with its attached documents to another repository, without an engine."""

from http import HTTPStatus
from pathlib import Path

from bakehouse.registry.client import Repository
from bakehouse.registry.http_errors import RegistryError
from bakehouse.registry.manifest import Descriptor, Manifest
from bakehouse.registry.referrers import ArtifactRepository
from bakehouse.registry.upload import Blob, Sent, Uploader
from bakehouse.util.oci import Digest
from bakehouse.util.tempdir import scratch_directory

_COSIGN_TAGS = (".sig", ".att", ".sbom")
"""Suffixes of the tags under which cosign keeps documents of an image by default."""


def copy_image(source: ArtifactRepository, target: ArtifactRepository, image: Manifest) -> int:
    """Copy an image and its documents, by digest; return the number of uploaded bytes.

    Raises RegistryError.
    """
    uploaded = _copy_manifest(source, target, image, image.digest)[0]
    unlisted: list[Manifest] = []
    for digest in source.attachments(image.digest):
        document = _manifest(source, digest)
        size, is_listed = _copy_manifest(source, target, document, digest)
        uploaded += size
        if not is_listed:
            unlisted.append(document)
    target.list_documents(image.digest, unlisted)
    for suffix in _COSIGN_TAGS:
        tag = image.digest.replace(":", "-", 1) + suffix
        if signature := source.manifest(tag):
            uploaded += _copy_manifest(source, target, signature, tag)[0]
    return uploaded


def _copy_manifest(
    source: Repository, target: Repository, manifest: Manifest, reference: str
) -> tuple[int, bool]:
    """Copy a manifest; return the uploaded bytes, and whether the registry lists it for its subject."""
    if manifest.members:
        message = f"`{reference}` is an index, which Bakehouse does not copy"
        raise RegistryError(200, "", message)
    blobs = dict.fromkeys(blob for blob in (*manifest.layers, manifest.config) if blob)
    uploaded = sum(_copy_blob(source, target, blob) for blob in blobs)
    response = target.put_manifest(manifest, reference)
    return uploaded, "OCI-Subject" in response.headers


def _copy_blob(source: Repository, target: Repository, blob: Descriptor) -> int:
    """Copy a blob that the target lacks; return the number of uploaded bytes."""
    if target.has_blob(blob.digest, blob.bytes):
        return 0
    if source.registry.host == target.registry.host:
        address = f"blobs/uploads/?mount={blob.digest}&from={source.name}"
        if target.request("POST", address, attempts=1).status == HTTPStatus.CREATED:
            return 0
    with scratch_directory() as directory:
        path = Path(directory) / "blob"
        source.download(blob.digest, blob.bytes, path)
        sent = Uploader(target).upload(Blob(blob.digest, blob.bytes, path))
    return blob.bytes if sent is Sent.UPLOADED else 0


def _manifest(source: Repository, digest: Digest) -> Manifest:
    manifest = source.manifest(digest)
    if manifest is None:
        message = f"it lists {digest}, which it does not have"
        raise RegistryError(404, "", message)
    return manifest
