"""Attaches artifacts to an image in a registry: manifests that name the image as their subject.

In version 1.1 of the OCI distribution specification, a registry lists the manifests that name an image as
their subject (the referrers API). In other registries, clients maintain this list under a tag made of the
image's digest.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bakehouse.registry.client import Repository
from bakehouse.registry.http_errors import RegistryError
from bakehouse.registry.manifest import OCI_INDEX, OCI_MANIFEST, Manifest, digest_of, parse
from bakehouse.registry.upload import Blob, Uploader
from bakehouse.util.json_reader import parse_json
from bakehouse.util.oci import Digest

_EMPTY = b"{}"
_EMPTY_TYPE = "application/vnd.oci.empty.v1+json"
_NO_REFERRERS = (400, 404, 405, 501)
"""HTTP statuses of registries without the referrers API."""
_MAX_DOCUMENT_BYTES = 64 * 1024**2
_MAX_ATTEMPTS = 5
"""Attempts to update a list that other clients replace at the same time."""


@dataclass(frozen=True, slots=True)
class AttachedDocument:
    """A document about an image."""

    media_type: str
    content: bytes
    file: str
    """File name for downloads."""
    annotations: Mapping[str, str] = field(default_factory=dict)

    def manifest(self, subject: Manifest) -> bytes:
        """Return the manifest that attaches the document to `subject`."""
        layer = _descriptor(self.media_type, self.content)
        document = {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "artifactType": self.media_type,
            "config": _descriptor(_EMPTY_TYPE, _EMPTY),
            "layers": [{**layer, "annotations": {"org.opencontainers.image.title": self.file}}],
            "subject": _descriptor(subject.media_type, subject.content),
            "annotations": dict(self.annotations),
        }
        return json.dumps(document, sort_keys=True).encode()


@dataclass(frozen=True, slots=True)
class Attached:
    """Artifact that is attached to an image."""

    artifact: AttachedDocument
    digest: Digest
    """Digest of its manifest."""
    was_there: bool
    """It was attached already."""


class ArtifactRepository(Repository):
    """Repository that stores images and artifacts."""

    def attach(self, subject: Manifest, artifacts: Sequence[AttachedDocument]) -> tuple[Attached, ...]:
        """Upload missing artifacts, and list all of them as referrers of the image."""
        attached = []
        unlisted = []
        for artifact in artifacts:
            content = artifact.manifest(subject)
            digest = digest_of(content)
            was_there = self.digest_of(digest) == digest
            if was_there or not self._store(artifact, content, digest):
                unlisted.append(parse(content, OCI_MANIFEST))
            attached.append(Attached(artifact, digest, was_there))
        self.list_documents(subject.digest, unlisted)
        return tuple(attached)

    def contents(self, subject: Digest, media_type: str) -> dict[Digest, bytes]:
        """Return the documents of one media type that are attached to an image, by manifest digest.

        Documents that are too large are left out.
        """
        contents = {}
        # Without the referrers API, cosign lists bundles by the type of their configuration.
        for digest in self.attachments(subject):
            # Another client may have removed it.
            manifest = self.manifest(digest)
            for layer in manifest.layers if manifest else ():
                if layer.media_type == media_type and layer.bytes <= _MAX_DOCUMENT_BYTES:
                    contents[digest] = self.blob(layer.digest, layer.bytes)
        return contents

    def attachments(self, subject: Digest) -> tuple[Digest, ...]:
        """Return the artifacts that are attached to an image, with or without the referrers API."""
        digests = self.referrers(subject)
        if digests is None:
            index = self.manifest(fallback_tag(subject))
            digests = tuple(member.digest for member in index.members) if index else ()
        return digests

    def list_documents(self, subject: Digest, documents: Sequence[Manifest]) -> None:
        """List stored artifacts as attachments of an image."""
        if documents:
            self._list(subject, [_entry(document) for document in documents])

    def referrers(self, subject: Digest) -> tuple[Digest, ...] | None:
        """Return the artifacts that the registry lists for an image; None without the referrers API."""
        try:
            return tuple(
                Digest(str(entry["digest"]))
                for page in self._pages(f"referrers/{subject}")
                for entry in parse_json(page.content)["manifests"] or ()
            )
        except RegistryError as error:
            if error.status in _NO_REFERRERS:
                return None
            raise
        except (ValueError, KeyError, TypeError):
            # A proxy that answers every URL with its own page has no referrers API either.
            return None

    def _store(self, artifact: AttachedDocument, manifest: bytes, digest: Digest) -> bool:
        """Upload an artifact; return whether the registry lists it by itself."""
        for content in (_EMPTY, artifact.content):
            Uploader(self).upload(Blob(digest_of(content), len(content), content))
        response = self.request("PUT", f"manifests/{digest}", {"Content-Type": OCI_MANIFEST}, manifest)
        return "OCI-Subject" in response.headers

    def _list(self, subject: Digest, entries: Sequence[Mapping[str, Any]]) -> None:
        """List entries as referrers. Without the referrers API, add them to the list under a tag.

        There is no lock for such a list, so it is read back and updated again if another client replaced it.
        """
        listed = self.referrers(subject) or ()
        missing = [entry for entry in entries if entry["digest"] not in listed]
        tag = fallback_tag(subject)
        for _ in range(_MAX_ATTEMPTS):
            current = self.manifest(tag) if missing else None
            extended = with_entries(current, missing)
            if extended is None:
                return
            self.request("PUT", f"manifests/{tag}", {"Content-Type": OCI_INDEX}, extended)
        message = f"other clients replaced the list `{tag}` {_MAX_ATTEMPTS} times"
        raise RegistryError(None, "", message)


def fallback_tag(subject: Digest) -> str:
    """Return the tag of the list of an image's artifacts in registries without the referrers API."""
    return subject.replace(":", "-", 1)


def with_entries(current: Manifest | None, entries: Iterable[Mapping[str, Any]]) -> bytes | None:
    """Return the current list extended by entries; None if it has all of them already."""
    if current and current.media_type != OCI_INDEX:
        message = f"the list of artifacts is `{current.media_type}`, not `{OCI_INDEX}`"
        raise RegistryError(200, "", message)
    empty: dict[str, Any] = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": []}
    document = parse_json(current.content) if current else empty
    listed = {member.digest for member in current.members} if current else set()
    new = [entry for entry in entries if entry["digest"] not in listed]
    if not new:
        return None
    return json.dumps({**document, "manifests": [*document["manifests"], *new]}).encode()


def _entry(document: Manifest) -> dict[str, Any]:
    fields = parse_json(document.content)
    kind = fields.get("artifactType") or (fields.get("config") or {}).get("mediaType", "")
    descriptor = _descriptor(document.media_type, document.content)
    return {**descriptor, "artifactType": kind, "annotations": fields.get("annotations") or {}}


def _descriptor(media_type: str, content: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": digest_of(content), "size": len(content)}
