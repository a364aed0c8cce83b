"""Signed statements of pushes, promotions and rebuilds, with registries in memory and no engine."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bakehouse.catalog.project import ProjectSettings
from bakehouse.catalog.trust_settings import REQUIREMENTS, Policy
from bakehouse.errors import Diagnostic, DifferenceError, PublishError, Reason, TrustError, UsageError
from bakehouse.fetch.retry import RetryPolicy
from bakehouse.ledger.releases import ReleaseRecord
from bakehouse.ledger.store import open_ledger
from bakehouse.publish import promote, signing
from bakehouse.publish.attest import Attested, AttestSettings, Bundler, attest
from bakehouse.publish.options import PublishOptions
from bakehouse.publish.push import PushOptions
from bakehouse.publish.tags import PublishedImage
from bakehouse.registry.manifest import digest_of
from bakehouse.registry.referrers import ArtifactRepository
from bakehouse.registry.registry import NamedRegistry
from bakehouse.trust import bundle
from bakehouse.trust.bundle import SIGNATURE
from bakehouse.trust.statements import PROVENANCE, REBUILD, SBOM, TESTS
from bakehouse.util.oci import Digest
from tests.support.built_images import BUILT, IMAGE, PASSED
from tests.support.errors import raised
from tests.support.fake_engine import FakeEngine, Run
from tests.support.fake_registry import CONFIG, DIGEST
from tests.support.proxy import Proxy, error_body
from tests.support.signing_keys import KeyFiles


def repository(proxy: Proxy) -> ArtifactRepository:
    registry = NamedRegistry(proxy.host, lambda _: None)
    return ArtifactRepository(registry, "team/image", RetryPolicy(attempts=2, pause=0.01, timeout=5))


def signed(proxy: Proxy, key: KeyFiles) -> list[str]:
    """The types of the statements that a key signed."""
    contents = repository(proxy).contents(DIGEST, bundle.MEDIA_TYPE).values()
    return [
        bundle.verify(content, DIGEST, ["mpi-cpu"], [key.public_key]).predicate_type for content in contents
    ]


IMAGE_BUILT = replace(BUILT, digest=digest_of(CONFIG))
REPORT = PASSED
ALL = [SIGNATURE, PROVENANCE, SBOM, TESTS]
INSTALLED: dict[str, object] = {
    "system": {"ID": "debian", "VERSION_ID": "12"},
    "debian": [],
    "rpm": None,
    "python": [],
}
Sign = Callable[..., Attested]


@pytest.fixture
def push(tmp_path: Path, proxies: tuple[Proxy, Proxy], key: KeyFiles) -> Sign:
    """Attach what a push attaches, to the image in both registries."""
    registries = [NamedRegistry(proxy.host, lambda _: None) for proxy in proxies]
    targets = [
        (registry, PublishedImage("mpi-cpu", registry.host, "team/image", (), DIGEST))
        for registry in registries
    ]
    options = PushOptions(
        datetime.now(UTC).date(), tmp_path / "locks", retry_policy=RetryPolicy(attempts=2, pause=0.01)
    )
    engine = FakeEngine(lambda _: Run(prints=json.dumps(INSTALLED)))

    def attach(lines: list[str] | None = None, *, plain: bool = False, with_key: bool = True) -> Attested:
        settings = AttestSettings(plain, Bundler(key.signer) if with_key else None)
        return attest(IMAGE_BUILT, targets, engine, options, (lines or []).append, settings, REPORT)

    return attach


def test_a_push_signs_four_statements(push: Sign, proxies: tuple[Proxy, Proxy], key: KeyFiles) -> None:
    attested = push()

    assert attested.failures == ()
    assert {artifact.media_type for artifact in attested.artifacts} == {bundle.MEDIA_TYPE}
    assert [sorted(signed(proxy, key)) for proxy in proxies] == [sorted(ALL)] * 2


def test_all_registries_have_the_same_bundles(push: Sign, proxies: tuple[Proxy, Proxy]) -> None:
    digests = {artifact.digest for artifact in push().artifacts}

    assert len(digests) == 4
    assert [{*repository(proxy).contents(DIGEST, bundle.MEDIA_TYPE)} for proxy in proxies] == [digests] * 2


def test_bundles_are_annotated_as_those_of_cosign(push: Sign, proxies: tuple[Proxy, Proxy]) -> None:
    [first, *_] = push().artifacts
    manifest = repository(proxies[0]).manifest(first.digest)
    assert manifest
    document = json.loads(manifest.content)

    assert document["artifactType"] == bundle.MEDIA_TYPE
    assert document["annotations"]["dev.sigstore.bundle.content"] == "dsse-envelope"
    assert document["annotations"]["dev.sigstore.bundle.predicateType"] in ALL
    assert document["subject"]["digest"] == DIGEST


def test_a_second_push_signs_nothing_again(push: Sign, proxies: tuple[Proxy, Proxy]) -> None:
    first = push()
    proxies[0].requests.clear()
    lines = [""]
    again = push(lines)

    assert again == first
    assert {request.method for request in proxies[0].requests} <= {"GET", "HEAD"}
    assert sorted(line.partition(" is attached")[0] for line in lines[1:]) == sorted(
        f"mpi-cpu: signed {each}" for each in ALL * 2
    )


def test_documents_without_signatures_are_attached_only_if_selected(push: Sign) -> None:
    assert len(push(plain=True).artifacts) == 6
    kinds = {artifact.media_type for artifact in push(plain=True, with_key=False).artifacts}
    assert kinds == {"application/vnd.cyclonedx+json", "application/vnd.in-toto+json"}


def test_a_registry_that_rejects_statements_leaves_the_image_published(
    push: Sign, proxies: tuple[Proxy, Proxy]
) -> None:
    proxies[0].fail("PUT", "/manifests/sha256:", 405, error_body("UNSUPPORTED", "not supported"))
    [failure] = push().failures

    assert failure.diagnostics == (
        Diagnostic(
            "`mpi-cpu` is published, but its signed statements could not be attached",
            reasons=(Reason(f"`{proxies[0].host}` answered HTTP 405: not supported"),),
            facts=(("published", f"{proxies[0].host}/team/image@{DIGEST}"),),
            hint="run `bake push mpi-cpu` again; the image is not pushed twice",
        ),
    )


def promote_candidate(project: ProjectSettings) -> ReleaseRecord:
    return promote.promote_image(project, IMAGE, print, PublishOptions())


def released(project: ProjectSettings) -> list[ReleaseRecord]:
    return [record for record in open_ledger(project).records("mpi-cpu") if record.is_released]


def test_a_promotion_signs_the_image_and_its_tests_in_every_registry(
    project: ProjectSettings, proxies: tuple[Proxy, Proxy], key: KeyFiles
) -> None:
    record = promote_candidate(replace(project, key_address=str(key.private)))

    assert [signed(proxy, key) for proxy in proxies] == [[TESTS, SIGNATURE]] * 2
    assert {artifact.media_type for artifact in record.artifacts} == {bundle.MEDIA_TYPE}
    assert released(project) == [record]


def test_a_promotion_without_a_key_signs_nothing(
    project: ProjectSettings, proxies: tuple[Proxy, Proxy]
) -> None:
    assert promote_candidate(project).artifacts == ()
    assert repository(proxies[0]).contents(DIGEST, bundle.MEDIA_TYPE) == {}


def test_a_candidate_that_does_not_meet_the_policy_gets_no_release_tag(
    project: ProjectSettings, proxies: tuple[Proxy, Proxy], key: KeyFiles
) -> None:
    policed = replace(
        project, key_address=str(key.private), policy=Policy((key.public,), require=REQUIREMENTS)
    )
    error = raised(TrustError, promote_candidate, policed)

    # Its tests are signed by the promotion itself.
    reasons = [reason.text for reason in error.diagnostics[0].reasons]
    assert reasons == [
        *(f"it has no {name} that a trusted key signed" for name in ("signature", "provenance", "SBOM")),
        "whether its inputs are pinned is not known: no trusted key signed its provenance",
    ]
    assert released(project) == []
    assert [proxy.seen("PUT", "/manifests/mpi-cpu") for proxy in proxies] == [0, 0]


def test_a_signed_candidate_meets_the_policy(
    project: ProjectSettings, proxies: tuple[Proxy, Proxy], key: KeyFiles, push: Sign
) -> None:
    push().require_all()
    policed = replace(
        project, key_address=str(key.private), policy=Policy((key.public,), require=REQUIREMENTS)
    )
    record = promote_candidate(policed)

    assert released(policed) == [record]


def test_an_unusable_key_ends_a_promotion_before_any_request(
    project: ProjectSettings, proxies: tuple[Proxy, Proxy], tmp_path: Path
) -> None:
    with pytest.raises(TrustError, match="cannot read the key"):
        promote_candidate(replace(project, key_address=str(tmp_path / "gone.pem")))
    assert proxies[0].requests == []


def test_a_promotion_whose_statements_are_rejected_is_recorded(
    project: ProjectSettings, proxies: tuple[Proxy, Proxy], key: KeyFiles
) -> None:
    proxies[0].fail("PUT", "/manifests/sha256:", 405, error_body("UNSUPPORTED", "not supported"))
    error = raised(PublishError, promote_candidate, replace(project, key_address=str(key.private)))

    hints = [diagnostic.hint for diagnostic in error.diagnostics]
    assert hints == ["run `bake promote mpi-cpu` again"]
    assert len(released(project)) == 1


def test_a_policy_is_not_met_by_statements_that_could_not_be_attached(
    project: ProjectSettings, proxies: tuple[Proxy, Proxy], key: KeyFiles
) -> None:
    for proxy in proxies:
        proxy.fail("PUT", "/manifests/sha256:", 405, error_body("UNSUPPORTED", "not supported"))
    policed = replace(project, key_address=str(key.private), policy=Policy((key.public,), ("tests",)))

    with pytest.raises(PublishError, match="its signed statements could not be attached"):
        promote_candidate(policed)
    assert released(project) == []


def test_a_rebuild_is_signed_in_every_registry(
    project: ProjectSettings, proxies: tuple[Proxy, Proxy], key: KeyFiles
) -> None:
    signing.sign_rebuild(project, IMAGE, DIGEST, ["overlay2"], Bundler(key.signer), print)

    assert [signed(proxy, key) for proxy in proxies] == [[REBUILD]] * 2


def test_a_rebuild_with_another_digest_is_a_difference(project: ProjectSettings, key: KeyFiles) -> None:
    other = Digest("sha256:" + "5f" * 32)
    assert raised(
        DifferenceError, signing.sign_rebuild, project, IMAGE, other, ["overlay2"], Bundler(key.signer), print
    ).diagnostics == (
        Diagnostic(
            "`mpi-cpu` was built again as sha256:5f5f5f5f5f5f, but published with another digest",
            facts=(("built", other), ("published", DIGEST)),
        ),
    )


def test_a_rebuild_of_an_unpublished_recipe(project: ProjectSettings, key: KeyFiles) -> None:
    changed = replace(IMAGE, key=type(IMAGE.key)("0" * 64))
    with pytest.raises(UsageError, match="`mpi-cpu` was not published from this recipe"):
        signing.sign_rebuild(project, changed, DIGEST, ["overlay2"], Bundler(key.signer), print)


def test_a_rebuild_needs_a_key(project: ProjectSettings) -> None:
    assert raised(UsageError, signing.require_bundler, project).diagnostics == (
        Diagnostic(
            "`--sign` needs a signing key",
            hint="set `signing_key` in [tool.bakehouse], or BAKEHOUSE_SIGNING_KEY",
        ),
    )
