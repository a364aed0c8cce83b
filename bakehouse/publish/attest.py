"""Attaches an SBOM and provenance to a published image in its registry."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bakehouse.analysis.packages import Installed, list_installed
from bakehouse.build.built_image import BuiltImage
from bakehouse.engine.protocol import Engine
from bakehouse.errors import BakehouseError, Diagnostic, PublishError, Reason
from bakehouse.publish import provenance, sbom
from bakehouse.publish.push import PushOptions
from bakehouse.publish.releases import ReleasedArtifact
from bakehouse.publish.tags import PublishedImage
from bakehouse.registry.http_errors import RegistryError
from bakehouse.registry.manifest import short
from bakehouse.registry.referrers import Artifact, ArtifactRepository, Attached
from bakehouse.registry.registry import DeadlineRegistry, Registry
from bakehouse.util.deadline import OverdueError
from bakehouse.util.file_lock import exclusive
from bakehouse.util.terminal import Reporter


@dataclass(frozen=True, slots=True)
class Attested:
    """Attached documents, and failures to attach."""

    artifacts: tuple[ReleasedArtifact, ...] = ()
    failures: tuple[PublishError, ...] = ()

    def require_all(self) -> None:
        """Raise the failures, after the rest is recorded."""
        if self.failures:
            raise PublishError(*(diagnostic for error in self.failures for diagnostic in error.diagnostics))


def attest(
    built: BuiltImage,
    registries: Sequence[tuple[Registry, PublishedImage]],
    engine: Engine,
    options: PushOptions,
    progress: Reporter,
) -> Attested:
    """Attach the SBOM and provenance of an image to its digest in every registry.

    A failure changes neither the image nor its publication.
    """
    name = built.image.name
    log = options.locks.parent / "attested" / name / "installed.log"
    try:
        installed = list_installed(engine, built.image, built.stored, log)
    except BakehouseError as error:
        reasons = tuple(_reason(diagnostic) for diagnostic in error.diagnostics)
        return Attested(failures=tuple(_unattached(published, *reasons) for _, published in registries))
    if installed.packages is None:
        progress(f"{name}: the image has no dpkg, so the SBOM lists system packages as unknown")
    artifacts: set[ReleasedArtifact] = set()
    failures = []
    for registry, published in registries:
        try:
            documents = documents_of(built, published, installed, options.revision)
            attached = _attach(published, documents, registry, options)
        except PublishError as error:
            failures.append(error)
            continue
        for artifact in attached:
            state = "is attached already" if artifact.was_there else "attached"
            progress(f"{name}: {artifact.media_type} {state}, as {short(artifact.digest)}")
            artifacts.add(ReleasedArtifact(artifact.media_type, artifact.digest))
    in_order = sorted(artifacts, key=lambda artifact: artifact.media_type)
    return Attested(tuple(in_order), tuple(failures))


def documents_of(
    built: BuiltImage, published: PublishedImage, installed: Installed, revision: str
) -> tuple[Artifact, ...]:
    """Return the SBOM and the provenance of an image as artifacts."""
    image, digest = built.image, published.digest
    return (
        Artifact(sbom.MEDIA_TYPE, sbom.text_of(image, digest, installed), f"{image.name}.cdx.json"),
        Artifact(
            provenance.MEDIA_TYPE,
            provenance.text_of(image, digest, revision),
            f"{image.name}.intoto.json",
            {"in-toto.io/predicate-type": provenance.PREDICATE_TYPE},
        ),
    )


def _attach(
    published: PublishedImage,
    documents: tuple[Artifact, ...],
    registry: Registry,
    options: PushOptions,
) -> tuple[Attached, ...]:
    retry_policy = replace(options.retry_policy, until=options.until)
    lock = options.locks / f"attach-{published.image}.lock"
    try:
        bounded_registry = DeadlineRegistry(registry, options.until)
        remote = ArtifactRepository(bounded_registry, published.repository, retry_policy)
        with exclusive(lock, until=options.until):
            subject = remote.manifest(published.digest)
            if subject is None:
                raise _unattached(published, Reason(f"`{registry.host}` no longer has it"))
            return remote.attach(subject, documents)
    except RegistryError as error:
        raise _unattached(published, Reason(f"`{registry.host}` answered {error.answer}")) from error
    except OverdueError as error:
        raise _unattached(published, Reason(str(error))) from error


def _reason(diagnostic: Diagnostic) -> Reason:
    return Reason("; ".join([diagnostic.message, *(f"{name}: {value}" for name, value in diagnostic.facts)]))


def _unattached(published: PublishedImage, *reasons: Reason) -> PublishError:
    message = f"`{published.image}` is published, but its SBOM and provenance could not be attached"
    hint = f"run `bake push {published.image} --attest` again; the image is not pushed twice"
    return PublishError(
        Diagnostic(message, reasons=reasons, facts=(("published", published.image_uri),), hint=hint)
    )
