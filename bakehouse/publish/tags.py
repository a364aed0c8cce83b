"""The tags of one image in a registry: which name it already, and whether what they name is fit to train."""

import contextlib
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date

from bakehouse.errors import PublishError, TagTakenError
from bakehouse.plan.model import ImageKey
from bakehouse.publish.diagnostics import PushDiagnostics
from bakehouse.registry.client import Repository
from bakehouse.registry.http_errors import RegistryError
from bakehouse.registry.manifest import Descriptor, Manifest, Origin, origin_of, unfit, unfit_platform
from bakehouse.registry.registry import HasPushDate
from bakehouse.util.deadline import OverdueError
from bakehouse.util.oci import Digest

_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class PublishedImage:
    """An image that lies in a registry under a digest read back from there."""

    image: str
    registry: str
    repository: str
    tags: tuple[str, ...]
    digest: Digest
    config: Digest | None = None
    """What an engine without the containerd store knows it by."""
    media_type: str = ""
    bytes: int = 0
    """What the registry stores for it: manifest, configuration and layers, compressed."""
    was_there: bool = False
    """Whether nothing had to be pushed."""
    candidate: bool = False
    """Whether it is there to be tried, under no release tag."""
    sent: int | None = 0
    """How many bytes of layers had to be sent; None where the engine can't tell."""

    @property
    def image_uri(self) -> str:
        return f"{self.registry}/{self.repository}@{self.digest}"

    def is_seen_by(self, digest: Digest) -> bool:
        """Whether what was seen of a digest was seen of this image."""
        return digest in (self.digest, self.config)


@dataclass(frozen=True, slots=True)
class ReleaseTags:
    """The tags of one image there, of which one is about to be set."""

    remote: Repository
    refusals: PushDiagnostics

    def matches_image(self, manifest: Manifest) -> bool:
        """Whether a manifest is of the image, by its digest or by that of its configuration.

        An engine without the containerd store makes a manifest at each push. It knows the configuration,
        which names the content of every layer.
        """
        config = manifest.config.digest if manifest.config else None
        return self.refusals.digest in (manifest.digest, config)

    def named(self, missing: Callable[[], None]) -> tuple[str, Manifest] | None:
        """The release tag, of any day, that names this very image; `missing` is called without repository."""
        return self._named(lambda: self._releases(missing))

    def is_there(self) -> tuple[str, Manifest] | None:
        """The one tag that is about to be set, where it names this very image."""
        return self._named(lambda: [self.refusals.tag])

    def _named(self, tags: Callable[[], list[str]]) -> tuple[str, Manifest] | None:
        try:
            there = {tag: self.remote.manifest(tag) for tag in tags()}
        except RegistryError as error:
            raise self.refusals.unanswered(error) from error
        for tag, manifest in there.items():
            if manifest and self.matches_image(manifest):
                return tag, manifest
        if taken := there.get(self.refusals.tag):
            raise self.taken(taken)
        return None

    def taken(self, there: Manifest) -> TagTakenError:
        """The tag names this instead: what can be found out about it is told, nothing else is asked."""
        origin, pushed, registry = Origin(), "", self.remote.registry
        with contextlib.suppress(RegistryError, OverdueError):
            if there.config:
                origin = origin_of(self.remote.blob(there.config.digest))
        if isinstance(registry, HasPushDate):
            # It may ask for rights that pushing doesn't.
            with contextlib.suppress(PublishError, OverdueError):
                pushed = registry.pushed(self.remote.name, there.digest)
        return self.refusals.tag_taken(there.digest, origin, pushed)

    def _releases(self, missing: Callable[[], None]) -> list[str]:
        today = self.refusals.tag
        try:
            tags = self.remote.tags()
        except RegistryError as error:
            if error.status == 404:
                missing()
                return []
            # ECR's usual rights to push don't include listing: then only today's tag is looked at.
            if error.status == 403:
                return [today]
            raise
        earlier = {tag for tag in tags if is_release_of(tag, self.refusals.name, self.refusals.key)}
        return sorted({today, *earlier}, reverse=True)

    def read_back(self) -> Manifest:
        """What the tag names now, which has to be this image."""
        try:
            manifest = self.remote.manifest(self.refusals.tag)
        except RegistryError as error:
            raise self.refusals.unanswered(error) from error
        if manifest is None:
            raise self.refusals.not_there()
        if not self.matches_image(manifest):
            # Somebody pushed between our look and now, and the registry let both.
            raise self.taken(manifest)
        return manifest

    def absent(self, manifest: Manifest) -> tuple[Descriptor, ...]:
        """The configuration and layers that a manifest names and the registry doesn't have whole."""
        parts = tuple(dict.fromkeys(part for part in (manifest.config, *manifest.layers) if part))

        def is_there(part: Descriptor) -> bool:
            return self.remote.has_blob(part.digest, part.bytes)

        try:
            # The first alone: whatever login it takes, the others find made.
            there = [is_there(part) for part in parts[:1]]
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                there += pool.map(is_there, parts[1:])
        except RegistryError as error:
            raise self.refusals.unanswered(error) from error
        return tuple(part for part, found in zip(parts, there, strict=True) if not found)

    def check(self, manifest: Manifest) -> None:
        """Refuse what SageMaker would refuse, and what nobody could pull."""
        reasons = unfit(manifest, self.refusals.form)
        if not reasons and (absent := self.absent(manifest)):
            raise self.refusals.incomplete(absent, len(manifest.layers) + 1)
        try:
            if not reasons and manifest.config:
                reasons = unfit_platform(self.remote.blob(manifest.config.digest))
        except RegistryError as error:
            raise self.refusals.unanswered(error) from error
        if reasons:
            raise self.refusals.unfit(reasons, pushed=True)

    def published(self, tag: str, manifest: Manifest, *, was_there: bool, candidate: bool) -> PublishedImage:
        """The image as it now lies there."""
        return PublishedImage(
            image=self.refusals.name,
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
    """The tag of one release: what it is, when it was published, what went into it."""
    return f"{identifier}-{day:%Y%m%d}-{key[:8]}"


def candidate_tag(identifier: str, digest: Digest) -> str:
    """The tag of what is published to be tried; it can't come to mean another image: the digest is in it."""
    return f"{identifier}-candidate-{digest.removeprefix('sha256:')[:16]}"


def is_release_of(tag: str, identifier: str, key: ImageKey) -> bool:
    """Whether a tag is an immutable one of this image, of any day."""
    return re.fullmatch(rf"{re.escape(identifier)}-[0-9]{{8}}-{re.escape(key[:8])}", tag) is not None


def release_day(tag: str) -> date | None:
    """The day in the tag of a release; None where it is no such tag."""
    found = re.fullmatch(r".+-([0-9]{8})-[0-9a-f]{8}", tag)
    return date.fromisoformat(found[1]) if found else None
