"""Attaches documents to a published image in its registry: SBOM and provenance, and signed statements."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bakehouse.analysis.packages import Installed, list_installed
from bakehouse.builder.built_image import BuiltImage
from bakehouse.catalog.project import ProjectSettings
from bakehouse.engine.protocol import Engine
from bakehouse.errors import BakehouseError, Diagnostic, PublishError, Reason
from bakehouse.evidence.known_checks import KnownChecks
from bakehouse.ledger.releases import ReleasedArtifact
from bakehouse.publish.push import PushOptions
from bakehouse.publish.tags import PublishedImage
from bakehouse.registry.http_errors import RegistryError
from bakehouse.registry.manifest import Manifest, short
from bakehouse.registry.referrers import ArtifactRepository, Attached, AttachedDocument
from bakehouse.registry.registry import DeadlineRegistry, Registry
from bakehouse.trust import bundle, provenance, sbom
from bakehouse.trust.bundle import RefusedError, Statement
from bakehouse.trust.keys import PublicKey, Signer, open_signer
from bakehouse.trust.statements import statements_of
from bakehouse.util.deadline import OverdueError
from bakehouse.util.file_lock import exclusive
from bakehouse.util.terminal import Reporter

_PREDICATE = "dev.sigstore.bundle.predicateType"
"""Annotation by which cosign tells bundles apart."""


class Bundler:
    """Signs each statement once, so that all registries and later pushes have the same bundle.

    Signatures contain random numbers: another signature of the same statement is another bundle.
    """

    def __init__(self, signer: Signer) -> None:
        self._signer = signer
        self._bundles: dict[bytes, bytes] = {}
        """Bundles by the content that is signed."""

    @property
    def public_key(self) -> PublicKey:
        return self._signer.public_key

    def bundles(
        self, remote: ArtifactRepository, subject: Manifest, statements: Sequence[Statement]
    ) -> tuple[AttachedDocument, ...]:
        """Return signed statements as artifacts; those that the image has already are reused."""
        for attached in remote.contents(subject.digest, bundle.MEDIA_TYPE).values():
            with contextlib.suppress(RefusedError):
                content, _ = bundle.signed_content(attached, [self._signer.public_key])
                self._bundles.setdefault(content, attached)
        return tuple(self._artifact(statement) for statement in statements)

    def _artifact(self, statement: Statement) -> AttachedDocument:
        content = statement.content
        if content not in self._bundles:
            self._bundles[content] = bundle.sign(content, self._signer)
        annotations = {"dev.sigstore.bundle.content": "dsse-envelope", _PREDICATE: statement.predicate_type}
        return AttachedDocument(
            bundle.MEDIA_TYPE, self._bundles[content], "bundle.sigstore.json", annotations
        )


@dataclass(frozen=True, slots=True)
class AttestSettings:
    """Kinds of documents that a push attaches."""

    plain: bool = False
    """SBOM and provenance without signatures."""
    bundler: Bundler | None = None
    """Key for signed statements; None attaches none."""

    @property
    def is_empty(self) -> bool:
        return not self.plain and self.bundler is None


@dataclass(frozen=True, slots=True)
class Documents:
    """Documents to attach to a digest."""

    artifacts: tuple[AttachedDocument, ...] = ()
    """Attached as they are."""
    statements: tuple[Statement, ...] = ()
    """Attached with a signature."""
    bundler: Bundler | None = None
    """Signs the statements."""

    @property
    def kind(self) -> str:
        return "signed statements" if self.bundler else "SBOM and provenance"


@dataclass(frozen=True, slots=True)
class Attested:
    """Attached documents, and failures to attach."""

    artifacts: tuple[ReleasedArtifact, ...] = ()
    failures: tuple[PublishError, ...] = ()

    def __add__(self, other: "Attested") -> "Attested":
        artifacts = dict.fromkeys((*self.artifacts, *other.artifacts))
        return Attested(tuple(artifacts), (*self.failures, *other.failures))

    def require_all(self) -> None:
        """Raise the failures, after the rest is recorded."""
        if self.failures:
            raise PublishError.of(
                *(diagnostic for error in self.failures for diagnostic in error.diagnostics)
            )


def bundler_of(project: ProjectSettings) -> Bundler | None:
    """Return a bundler with the project's key; None without a key. Raises TrustError for an unusable key."""
    return Bundler(open_signer(project.signing_key)) if project.signing_key else None


def attest(
    built: BuiltImage,
    registries: Sequence[tuple[Registry, PublishedImage]],
    engine: Engine | None,
    options: PushOptions,
    progress: Reporter,
    settings: AttestSettings,
    state: KnownChecks | None = None,
) -> Attested:
    """Attach documents about an image to its digest in every registry.

    A failure changes neither the image nor its publication.
    """
    plain, bundler = settings.plain, settings.bundler
    name = built.image.name
    command = f"push {name} --attest" if plain else f"push {name}"
    log = options.locks.parent / "attested" / name / "installed.log"
    try:
        installed = list_installed(engine, built.image, built.stored, log) if engine else None
    except BakehouseError as error:
        reasons = tuple(_reason(diagnostic) for diagnostic in error.diagnostics)
        kind = Documents(bundler=bundler).kind
        unattached = (_unattached(published, kind, command, *reasons) for _, published in registries)
        return Attested(failures=tuple(unattached))
    if installed is None:
        progress(f"{name}: no SBOM, because an engine has to list the packages of the image")
    elif installed.packages is None:
        progress(f"{name}: the image has neither dpkg nor rpm, so the SBOM lists system packages as unknown")

    def documents(published: PublishedImage) -> Documents:
        image, digest = built.image, published.digest
        artifacts = documents_of(built, published, installed, options.revision) if plain and installed else ()
        if bundler is None:
            return Documents(artifacts)
        statements = statements_of(image, digest, installed, options.revision, state)
        return Documents(artifacts, statements, bundler)

    return attach(registries, documents, options, progress, command)


def documents_of(
    built: BuiltImage, published: PublishedImage, installed: Installed, revision: str
) -> tuple[AttachedDocument, ...]:
    """Return the SBOM and the provenance of an image as artifacts."""
    image, digest = built.image, published.digest
    return (
        AttachedDocument(sbom.MEDIA_TYPE, sbom.text_of(image, digest, installed), f"{image.name}.cdx.json"),
        AttachedDocument(
            provenance.MEDIA_TYPE,
            provenance.statement_of(image, digest, revision).content,
            f"{image.name}.intoto.json",
            {"in-toto.io/predicate-type": provenance.PREDICATE_TYPE},
        ),
    )


def attach(
    registries: Sequence[tuple[Registry, PublishedImage]],
    documents_of: Callable[[PublishedImage], Documents],
    options: PushOptions,
    progress: Reporter,
    command: str,
) -> Attested:
    """Attach documents to a digest in every registry; `command` repeats this after a failure."""
    artifacts: set[ReleasedArtifact] = set()
    failures = []
    for registry, published in registries:
        documents = documents_of(published)
        try:
            attached = _attach(published, documents, registry, options, command)
        except PublishError as error:
            failures.append(error)
            continue
        for document in attached:
            state = "is attached already" if document.was_there else "attached"
            kind = document.artifact.annotations.get(_PREDICATE)
            title = f"signed {kind}" if kind else document.artifact.media_type
            progress(f"{published.image}: {title} {state}, as {short(document.digest)}")
            artifacts.add(ReleasedArtifact(document.artifact.media_type, document.digest))
    in_order = sorted(artifacts, key=lambda artifact: (artifact.media_type, artifact.digest))
    return Attested(tuple(in_order), tuple(failures))


def _attach(
    published: PublishedImage, documents: Documents, registry: Registry, options: PushOptions, command: str
) -> tuple[Attached, ...]:
    retry_policy = replace(options.retry_policy, until=options.until)
    lock = options.locks / f"attach-{published.image}.lock"
    kind = documents.kind
    try:
        bounded_registry = DeadlineRegistry(registry, options.until)
        remote = ArtifactRepository(bounded_registry, published.repository, retry_policy)
        with exclusive(lock, until=options.until):
            subject = remote.manifest(published.digest)
            if subject is None:
                raise _unattached(published, kind, command, Reason(f"`{registry.host}` no longer has it"))
            bundler = documents.bundler
            bundles = bundler.bundles(remote, subject, documents.statements) if bundler else ()
            return remote.attach(subject, (*documents.artifacts, *bundles))
    except RegistryError as error:
        reason = Reason(f"`{registry.host}` answered {error.answer}")
        raise _unattached(published, kind, command, reason) from error
    except OverdueError as error:
        raise _unattached(published, kind, command, Reason(str(error))) from error


def _reason(diagnostic: Diagnostic) -> Reason:
    return Reason("; ".join([diagnostic.message, *(f"{name}: {value}" for name, value in diagnostic.facts)]))


def _unattached(published: PublishedImage, kind: str, command: str, *reasons: Reason) -> PublishError:
    message = f"`{published.image}` is published, but its {kind} could not be attached"
    pushed = "; the image is not pushed twice" if command.startswith("push") else ""
    hint = f"run `bake {command}` again{pushed}"
    return PublishError(message, reasons=reasons, facts=(("published", published.image_uri),), hint=hint)
