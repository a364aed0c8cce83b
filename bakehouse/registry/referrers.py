"""Attaches artifacts to an image in a registry: manifests that name it as their subject.

As the OCI's distribution specification 1.1 has it: a registry either lists what names an image as its subject
(the referrers API), or those who push keep that list under a tag made of the image's digest.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from bakehouse.registry.client import Repository
from bakehouse.registry.http_errors import RegistryError
from bakehouse.registry.manifest import OCI_INDEX, OCI_MANIFEST, Manifest, digest_of
from bakehouse.util.oci import Digest

_EMPTY = b"{}"
_EMPTY_TYPE = "application/vnd.oci.empty.v1+json"
_NO_REFERRERS = (400, 404, 405, 501)
"""How registries answer that don't know the referrers API."""
_ROUNDS = 5
"""How often a list is brought up to date again that somebody else has replaced meanwhile."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """A document about an image."""

    media_type: str
    content: bytes
    file: str
    """What it is called where it is fetched."""
    annotations: Mapping[str, str] = field(default_factory=dict)

    def manifest(self, subject: Manifest) -> bytes:
        """What is stored in a registry to say that this is about `subject`."""
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
    """An artifact that hangs on an image."""

    media_type: str
    digest: Digest
    """Of its manifest."""
    was_there: bool


class ArtifactRepository(Repository):
    """A repository that takes artifacts beside images."""

    def attach(self, subject: Manifest, artifacts: Sequence[Artifact]) -> tuple[Attached, ...]:
        """Store what is not there yet, and see to it that whoever knows the image finds all of it."""
        attached = []
        unlisted = []
        for artifact in artifacts:
            content = artifact.manifest(subject)
            digest = digest_of(content)
            was_there = self.digest_of(digest) == digest
            if was_there or not self._store(artifact, content, digest):
                unlisted.append(_entry(artifact, content))
            attached.append(Attached(artifact.media_type, digest, was_there))
        if unlisted:
            self._list(subject.digest, unlisted)
        return tuple(attached)

    def referrers(self, subject: Digest) -> tuple[Digest, ...] | None:
        """What the registry lists as being about an image; None where it keeps no such lists."""
        found: list[Digest] = []
        path = f"referrers/{subject}"
        while path:
            try:
                answer = self._ask("GET", path)
                found += [Digest(str(entry["digest"])) for entry in answer.json()["manifests"] or ()]
            except RegistryError as error:
                if error.status in _NO_REFERRERS:
                    return None
                raise
            except (ValueError, KeyError, TypeError):
                # A front that answers every address with a page of its own knows no referrers either.
                return None
            path = answer.links.get("next", {}).get("url", "")
        return tuple(found)

    def _store(self, artifact: Artifact, manifest: bytes, digest: Digest) -> bool:
        """Send an artifact; whether the registry says that it lists it."""
        for content in (_EMPTY, artifact.content):
            self._upload(content)
        answer = self._ask("PUT", f"manifests/{digest}", {"Content-Type": OCI_MANIFEST}, manifest)
        return "OCI-Subject" in answer.headers

    def _upload(self, content: bytes) -> None:
        digest = digest_of(content)
        if self.has_blob(digest, len(content)):
            return
        begun = urlsplit(self._ask("POST", "blobs/uploads/").headers.get("Location", ""))
        query = urlencode([*parse_qsl(begun.query, keep_blank_values=True), ("digest", digest)])
        try:
            headers = {"Content-Type": "application/octet-stream"}
            self._ask("PUT", urlunsplit(begun._replace(query=query)), headers, content)
        except RegistryError:
            # When the answer gets lost, the second attempt finds no upload to end.
            if not self.has_blob(digest, len(content)):
                raise

    def _list(self, subject: Digest, entries: Sequence[Mapping[str, Any]]) -> None:
        """See to it that entries are listed, in the list under a tag where the registry keeps none.

        Nothing locks such a list: who finds it replaced by somebody else adds to theirs.
        """
        listed = self.referrers(subject) or ()
        missing = [entry for entry in entries if entry["digest"] not in listed]
        tag = fallback_tag(subject)
        for _ in range(_ROUNDS):
            there = self.manifest(tag) if missing else None
            longer = with_entries(there, missing)
            if longer is None:
                return
            self._ask("PUT", f"manifests/{tag}", {"Content-Type": OCI_INDEX}, longer)
        message = f"others change the list `{tag}` all the time"
        raise RegistryError(None, "", message)


def fallback_tag(subject: Digest) -> str:
    """The tag that what is about an image is listed under, where the registry keeps no lists."""
    return subject.replace(":", "-", 1)


def with_entries(there: Manifest | None, entries: Iterable[Mapping[str, Any]]) -> bytes | None:
    """A list with entries, all that it had included; None where it has them already."""
    if there and there.media_type != OCI_INDEX:
        message = f"what is to be the list of artifacts is `{there.media_type}`"
        raise RegistryError(200, "", message)
    empty: dict[str, Any] = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": []}
    document = json.loads(there.content) if there else empty
    known = {member.digest for member in there.members} if there else set()
    new = [entry for entry in entries if entry["digest"] not in known]
    if not new:
        return None
    return json.dumps({**document, "manifests": [*document["manifests"], *new]}).encode()


def _entry(artifact: Artifact, manifest: bytes) -> dict[str, Any]:
    described = _descriptor(OCI_MANIFEST, manifest)
    return {**described, "artifactType": artifact.media_type, "annotations": dict(artifact.annotations)}


def _descriptor(media_type: str, content: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": digest_of(content), "size": len(content)}
