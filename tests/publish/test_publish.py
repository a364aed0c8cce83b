"""Promotions as the task does them, with registries in memory and no engine."""

import json
import re
import threading
import time
from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any, cast

import pytest

from bakehouse.catalog.project import Project
from bakehouse.cluster import smoke_report
from bakehouse.engine.protocol import Engine
from bakehouse.errors import Diagnostic, PublishError, Reason, RegistryAuthError, UsageError
from bakehouse.fetch.retry import RetryPolicy
from bakehouse.ledger.ledger import open_ledger
from bakehouse.ledger.releases import ReleasedArtifact, ReleasedRegion, ReleaseRecord
from bakehouse.publish import ecr_replication, ecr_scan, promote, publish, push, verify
from bakehouse.publish.attest import Attested
from bakehouse.publish.ecr_replication import Waiting
from bakehouse.publish.publish import ImagePush, PublishOptions, require_not_expiring
from bakehouse.publish.queue import PushQueue
from bakehouse.publish.tags import PublishedImage
from bakehouse.registry.destination import Destination
from bakehouse.registry.ecr import EcrRegistry
from bakehouse.registry.manifest import DOCKER_MANIFEST, GZIP_LAYER, OCI_MANIFEST, digest_of
from bakehouse.registry.registry import Credentials, NamedRegistry
from bakehouse.util.terminal import Reporter
from tests.ledger.test_releases import a_record
from tests.publish.test_push import BUILT, IMAGE, PASSED
from tests.registry.test_referrers import FakeRegistry
from tests.support.proxy import Proxy

CONFIG, LAYER = b'{"os": "linux", "architecture": "amd64"}', b"a layer"


def described(media_type: str, content: bytes) -> dict[str, object]:
    return {"mediaType": media_type, "digest": digest_of(content), "size": len(content)}


MANIFEST = json.dumps(
    {
        "schemaVersion": 2,
        "mediaType": DOCKER_MANIFEST,
        "config": described("application/vnd.docker.container.image.v1+json", CONFIG),
        "layers": [described(GZIP_LAYER, LAYER)],
    }
).encode()
DIGEST = digest_of(MANIFEST)


def holding(shelf: FakeRegistry) -> None:
    """Let a registry in memory hold the image."""
    shelf.manifests[DIGEST] = (DOCKER_MANIFEST, MANIFEST)
    shelf.blobs |= {digest_of(blob): blob for blob in (CONFIG, LAYER)}


@pytest.fixture
def fake_registries() -> tuple[FakeRegistry, FakeRegistry]:
    both = FakeRegistry(), FakeRegistry()
    for shelf in both:
        holding(shelf)
    return both


@pytest.fixture
def proxies(
    fake_registries: tuple[FakeRegistry, FakeRegistry], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Proxy, Proxy]]:
    """Two registries, both of which have the candidate."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    with Proxy(1).running() as first, Proxy(1).running() as second:
        first.answers.append(fake_registries[0].answer)
        second.answers.append(fake_registries[1].answer)
        yield first, second


@pytest.fixture
def project(tmp_path: Path, proxies: tuple[Proxy, Proxy]) -> Project:
    """A project with a candidate in both registries that passed its smoke test."""
    project = Project(tmp_path, ())
    smoke_report.save(replace(PASSED, digest=DIGEST), project.state)
    open_ledger(project).add(candidate(*proxies))
    return project


def candidate(*proxies: Proxy) -> ReleaseRecord:
    at = [f"{proxy.host}/team/image@{DIGEST}" for proxy in proxies]
    return replace(
        a_record(),
        digest=DIGEST,
        registry=proxies[0].host,
        repository="team/image",
        image_uri=at[0],
        tags=("mpi-cpu-candidate",),
        candidate=True,
        regions=tuple(ReleasedRegion("", uri, "mpi-cpu-candidate") for uri in at),
    )


def promote_candidate(project: Project, **terms: bool) -> ReleaseRecord:
    return promote.promote_image(project, IMAGE, print, PublishOptions(**terms))  # type: ignore[arg-type]


def released(project: Project) -> list[ReleaseRecord]:
    return [record for record in open_ledger(project).records("mpi-cpu") if not record.candidate]


def test_an_alias_that_may_not_move_keeps_no_release_out_of_the_ledger(
    project: Project, fake_registries: tuple[FakeRegistry, FakeRegistry], proxies: tuple[Proxy, Proxy]
) -> None:
    proxies[0].fail("PUT", "/manifests/mpi-cpu$", 400)
    with pytest.raises(PublishError, match="the moving tag `mpi-cpu` could not be set") as caught:
        promote_candidate(project, move_tag=True)
    assert len(caught.value.diagnostics) == 1
    [record] = released(project)
    assert record.registry == proxies[0].host
    assert fake_registries[0].manifests[record.tags[0]][1] == MANIFEST
    assert fake_registries[1].manifests["mpi-cpu"][1] == MANIFEST


def test_an_interrupt_between_two_registries_leaves_the_record_of_the_first(
    project: Project,
    fake_registries: tuple[FakeRegistry, FakeRegistry],
    proxies: tuple[Proxy, Proxy],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = promote.promote

    def interrupted(record: ReleaseRecord, *arguments: object) -> object:
        if record.registry == proxies[1].host:
            raise KeyboardInterrupt
        return original(record, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(promote, "promote", interrupted)
    with pytest.raises(KeyboardInterrupt):
        promote_candidate(project, move_tag=True)
    [record] = released(project)
    assert record.registry == proxies[0].host
    assert "mpi-cpu" not in fake_registries[0].manifests


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -5.0, 1e300])
def test_an_invalid_duration_is_not_a_deadline(seconds: float) -> None:
    with pytest.raises(UsageError) as caught:
        PublishOptions(deadline=seconds)
    assert caught.value.diagnostics == (
        Diagnostic(
            f"invalid `--deadline {seconds:g}`",
            hint="use seconds, at most 2592000 (30 days); 0 is six hours",
        ),
    )


def test_what_hangs_on_a_release_is_asked_for_too(
    fake_registries: tuple[FakeRegistry, FakeRegistry], proxies: tuple[Proxy, Proxy]
) -> None:
    present, gone = digest_of(b"there"), digest_of(b"gone")
    for shelf in fake_registries:
        shelf.manifests["mpi-cpu-candidate"] = (DOCKER_MANIFEST, MANIFEST)
    fake_registries[0].manifests[present] = (OCI_MANIFEST, b"there")
    artifacts = ReleasedArtifact("application/vnd.a+json", present), ReleasedArtifact("text/b", gone)
    record = replace(candidate(*proxies), artifacts=artifacts)
    checked = verify.verify(
        [record], lambda host: NamedRegistry(host, lambda _: None), RetryPolicy(attempts=1)
    )
    assert [check.missing for check in checked] == [
        (f"its text/b, {gone[:19]}, is missing",),
        (f"its application/vnd.a+json, {present[:19]}, is missing", f"its text/b, {gone[:19]}, is missing"),
    ]


def test_a_registry_that_denies_access_does_not_stop_the_others(
    fake_registries: tuple[FakeRegistry, FakeRegistry], proxies: tuple[Proxy, Proxy]
) -> None:
    fake_registries[1].manifests["mpi-cpu-candidate"] = (DOCKER_MANIFEST, MANIFEST)

    def login(host: str) -> Credentials | None:
        if host == proxies[0].host:
            raise RegistryAuthError("no AWS credentials were found")
        return None

    checked = verify.verify(
        [candidate(*proxies)], lambda host: NamedRegistry(host, login), RetryPolicy(attempts=1)
    )
    refused = f"could not query {proxies[0].host}: no AWS credentials were found"
    assert [check.missing for check in checked] == [(refused,), ()]


@pytest.mark.timeout(60)
def test_a_login_that_does_not_answer_is_not_waited_for(proxies: tuple[Proxy, Proxy]) -> None:
    never = threading.Event()

    def login(_: str) -> Credentials | None:
        never.wait()
        raise AssertionError

    retry_policy = RetryPolicy(attempts=1, until=time.monotonic() + 0.3)
    checked = verify.verify([candidate(proxies[0])], lambda host: NamedRegistry(host, login), retry_policy)
    assert [check.missing for check in checked] == [
        (f"could not query {proxies[0].host}: the deadline passed",)
    ]


class Silent(EcrRegistry):
    """One whose API never answers."""

    @property
    def api(self) -> Any:
        threading.Event().wait()

    def require_not_expiring(self, repository: str, tags: Collection[str], progress: Reporter) -> None:
        threading.Event().wait()

    def differences(self, repository: str, alias: str) -> tuple[Reason, ...]:
        threading.Event().wait()
        raise AssertionError


@pytest.mark.timeout(60)
def test_no_question_after_a_push_outlasts_the_deadline(tmp_path: Path) -> None:
    host = "123456789012.dkr.ecr.eu-west-1.amazonaws.com"
    target, lines = Silent(host=host), list[str]()
    published = PublishedImage("mpi-cpu", host, "team/mpi-cpu", ("x",), DIGEST)
    until = time.monotonic() + 0.3
    require_not_expiring(target, published, open_ledger(Project(tmp_path, ())), lines.append, until)
    over = "the deadline passed"
    repository = f"`{host}/team/mpi-cpu`"
    assert lines == [
        f"mpi-cpu: warning: could not read the lifecycle policy of {repository}; not checked: {over}"
    ]
    assert publish.differences(target, published, until) == (
        Reason(f"not compared with the settings: {over}"),
    )


@pytest.mark.timeout(60)
def test_no_wait_for_a_scan_or_a_replica_outlasts_the_deadline() -> None:
    first, second = (
        Silent(host=f"123456789012.dkr.ecr.{region}.amazonaws.com") for region in ("eu-west-1", "us-east-1")
    )
    published = PublishedImage("mpi-cpu", first.host, "team/mpi-cpu", ("x",), DIGEST)
    result = ecr_scan.scan(first, published, print, Waiting(until=time.monotonic() + 0.3))
    assert result.completed == ""
    assert re.fullmatch("no scan was found after [0-9.]+ s", result.missing_reason)
    within = Waiting(until=time.monotonic() + 0.3)
    with pytest.raises(PublishError, match=r"has not replicated `mpi-cpu` to us-east-1 in [0-9.]+ s"):
        ecr_replication.await_replica(first, second, published, print, within)


def test_nothing_is_attached_to_a_manifest_that_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another version may have published the image in one of two registries."""
    first, second = (NamedRegistry(f"{name}.example.com", lambda _: None) for name in ("one", "two"))

    def published(_: object, __: object, target: NamedRegistry, *___: object) -> PublishedImage:
        digest = DIGEST if target is first else digest_of(b"another")
        return PublishedImage("mpi-cpu", target.host, "team/mpi-cpu", ("x",), digest)

    attested: list[str] = []

    def attest(
        _: object, targets: list[tuple[NamedRegistry, object]], *__: object, **___: object
    ) -> Attested:
        attested.extend(target.host for target, _ in targets)
        return Attested()

    monkeypatch.setattr(push, "publish", published)
    monkeypatch.setattr(publish, "attest", attest)
    publication = push.PushOptions(date(2026, 11, 20), tmp_path)
    where = Destination((first, second), "team")
    image_push = ImagePush(
        *(Project(tmp_path, ()), BUILT, where, publication, "", PushQueue(), print),
        engine=cast("Engine", object()),
        attest=True,
    )
    with pytest.raises(PublishError, match=r"`two\.example\.com` has a different manifest of `mpi-cpu`"):
        image_push.run()
    assert attested == ["one.example.com"]
