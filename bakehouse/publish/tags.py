"""Tags of an image in a registry, and the checks of the manifests that they name."""

import contextlib
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date

from bakehouse.errors import PublishError, TagTakenError
from bakehouse.ledger.releases import ReleaseRecord
from bakehouse.plan.model import ImageKey
from bakehouse.publish.diagnostics import PushDiagnostics
from bakehouse.publish.target import ReleaseTarget
from bakehouse.registry.client import Repository
from bakehouse.registry.http_errors import RegistryError
from bakehouse.registry.manifest import Descriptor, Manifest, Origin, origin_of, unfit, unfit_platform
from bakehouse.util.deadline import OverdueError
from bakehouse.util.oci import Digest

CANDIDATES = "candidates"
"""Part of the repositories that have only candidates."""
_THREADS = 4


@dataclass(frozen=True, slots=True)
class PublishedImage:
    """Image in a registry, with the digest read back from there."""

    image: str
    registry: str
    repository: str
    tags: tuple[str, ...]
    digest: Digest
    config: Digest | None = None
    """Digest by which an engine without the containerd store knows it."""
    media_type: str = ""
    bytes: int = 0
    """Size in the registry: manifest, configuration and compressed layers."""
    was_there: bool = False
    """Nothing had to be pushed."""
    candidate: bool = False
    """Published for testing, without a release tag."""
    sent: int = 0
    """Bytes of uploaded layers."""

    @property
    def image_uri(self) -> str:
        return f"{self.registry}/{self.repository}@{self.digest}"

    @property
    def moving_tag(self) -> str:
        """Return the last part of its repository: the name that the image has or had there."""
        return self.repository.rpartition("/")[2]

    @classmethod
    def recorded(cls, record: ReleaseRecord) -> "PublishedImage":
        """Return the image of a record in its primary registry."""
        return cls(record.image, record.registry, record.repository, record.tags, Digest(record.digest))


@dataclass(frozen=True, slots=True)
class ReleaseTags:
    """Tags of one image in its repository, one of which is to be set."""

    remote: Repository
    target: ReleaseTarget
    diagnostics: PushDiagnostics

    def find_release(self, missing: Callable[[], None]) -> tuple[str, Manifest] | None:
        """Return the release tag of any day that names this image, with its manifest.

        Calls `missing` if the repository does not exist.
        """
        return self._find(lambda: self._release_tags(missing))

    def find_target(self) -> tuple[str, Manifest] | None:
        """Return the tag to set, if it names this image already."""
        return self._find(lambda: [self.target.tag])

    def _find(self, tags: Callable[[], list[str]]) -> tuple[str, Manifest] | None:
        with self.diagnostics.translate_errors():
            manifests = {tag: self.remote.manifest(tag) for tag in tags()}
        for tag, manifest in manifests.items():
            if manifest and self.matches_image(manifest) and not unfit(manifest, self.target.form):
                return tag, manifest
        if other := manifests.get(self.target.tag):
            if self.matches_image(other):
                raise self.diagnostics.format_taken(other.digest, unfit(other, self.target.form))
            raise self.taken(other)
        return None

    def matches_image(self, manifest: Manifest) -> bool:
        """Return whether a manifest in the repository is of this image, perhaps with other labels."""
        with self.diagnostics.translate_errors():
            try:
                return self.target.matches_image(manifest, self.remote.blob)
            except RegistryError as error:
                if error.status == 404:
                    return False
                raise

    def taken(self, other: Manifest) -> TagTakenError:
        """Return the error for a tag that names another image, with the facts that are available."""
        origin, pushed = Origin(), ""
        with contextlib.suppress(RegistryError, OverdueError):
            if other.config:
                origin = origin_of(self.remote.blob(other.config.digest))
        # This request may need a permission that pushing does not.
        with contextlib.suppress(PublishError, OverdueError):
            pushed = self.remote.registry.pushed(self.remote.name, other.digest)
        return self.diagnostics.tag_taken(other.digest, origin, pushed)

    def _release_tags(self, missing: Callable[[], None]) -> list[str]:
        today = self.target.tag
        try:
            tags = self.remote.tags()
        except RegistryError as error:
            if error.status == 404:
                missing()
                return []
            # ECR's usual push permissions do not include listing. In that case, check only today's tag.
            if error.status == 403:
                return [today]
            raise
        earlier = {tag for tag in tags if is_release_of(tag, self.target.image, self.target.key)}
        return sorted({today, *earlier}, reverse=True)

    def read_back(self) -> Manifest:
        """Return the manifest that the tag names now, which must be this image."""
        with self.diagnostics.translate_errors():
            manifest = self.remote.manifest(self.target.tag)
        if manifest is None:
            raise self.diagnostics.tag_missing()
        if not self.matches_image(manifest):
            # Another push came after the check, and the registry accepted both.
            raise self.taken(manifest)
        return manifest

    def absent(self, manifest: Manifest) -> tuple[Descriptor, ...]:
        """Return the configuration and layers of a manifest that the registry does not have completely."""
        blobs = tuple(dict.fromkeys(blob for blob in (manifest.config, *manifest.layers) if blob))

        def exists(blob: Descriptor) -> bool:
            return self.remote.has_blob(blob.digest, blob.bytes)

        with self.diagnostics.translate_errors():
            # The first request logs in; the others reuse its token.
            present = [exists(blob) for blob in blobs[:1]]
            with ThreadPoolExecutor(_THREADS) as pool:
                present += pool.map(exists, blobs[1:])
        return tuple(blob for blob, is_present in zip(blobs, present, strict=True) if not is_present)

    def check_manifest(self, manifest: Manifest) -> None:
        """Raise PublishError for an image that SageMaker would reject, or that cannot be pulled."""
        reasons = unfit(manifest, self.target.form)
        if not reasons and (absent := self.absent(manifest)):
            raise self.diagnostics.incomplete(absent, len(manifest.layers) + 1)
        if not reasons and manifest.config:
            with self.diagnostics.translate_errors():
                reasons = unfit_platform(self.remote.blob(manifest.config.digest), self.target.platform)
        if reasons:
            raise self.diagnostics.unfit(reasons, pushed=True)

    def published(self, tag: str, manifest: Manifest, *, was_there: bool, candidate: bool) -> PublishedImage:
        """Return the image as published."""
        return PublishedImage(
            image=self.target.image,
            registry=self.remote.registry.host,
            repository=self.remote.name,
            tags=(tag,),
            digest=manifest.digest,
            config=manifest.config.digest if manifest.config else None,
            media_type=manifest.media_type,
            bytes=manifest.bytes,
            was_there=was_there,
            candidate=candidate,
        )


def immutable_tag(identifier: str, day: date, key: ImageKey) -> str:
    """Return the tag of a release, made of the image, the day and the build key."""
    return f"{identifier}-{day:%Y%m%d}-{key[:8]}"


def candidate_tag(identifier: str, digest: Digest, form: str) -> str:
    """Return the tag of a candidate; it contains the digest, so it never names another image.

    The tag also contains the format, except `docker`, because an image has another manifest in each format.
    """
    suffix = "" if form == "docker" else f"-{form}"
    return f"{identifier}-candidate-{digest.removeprefix('sha256:')[:16]}{suffix}"


def release_repository(repository: str) -> str:
    """Return the repository of the releases of an image whose candidate is in a repository.

    A candidate in `team/candidates/image` is released in `team/image`. Amazon ECR has no permissions by tags,
    so a role that only publishes candidates needs repositories of their own.
    """
    return re.sub(f"/{CANDIDATES}/(?=[^/]+$)", "/", repository)


def is_release_of(tag: str, identifier: str, key: ImageKey) -> bool:
    """Return whether a tag is a release tag of this image, of any day."""
    return re.fullmatch(rf"{re.escape(identifier)}-[0-9]{{8}}-{re.escape(key[:8])}", tag) is not None


def release_day(tag: str) -> date | None:
    """Return the day in a release tag; None for other tags."""
    match = re.fullmatch(r".+-([0-9]{8})-[0-9a-f]{8}", tag)
    return date.fromisoformat(match[1]) if match else None
