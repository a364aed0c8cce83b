"""Publications in several registries, with registries in memory and no engine."""

import re
import threading
import time
from collections.abc import Collection
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from bakehouse.catalog.project import ProjectSettings
from bakehouse.errors import PublishError, Reason, RegistryAuthError
from bakehouse.fetch.retry import RetryPolicy
from bakehouse.ledger.releases import ReleasedArtifact, ReleaseRecord
from bakehouse.ledger.store import open_ledger
from bakehouse.publish import ecr_scan, image_push, promote, push, retag, verify
from bakehouse.publish.attest import Attested, AttestSettings
from bakehouse.publish.ecr_scan import Waiting
from bakehouse.publish.image_push import ImagePush
from bakehouse.publish.options import PublishOptions
from bakehouse.publish.published_checks import differences, require_not_expiring
from bakehouse.publish.queue import PushQueue
from bakehouse.publish.tags import PublishedImage
from bakehouse.registry.destination import Destination
from bakehouse.registry.ecr import EcrRegistry
from bakehouse.registry.manifest import DOCKER_MANIFEST, OCI_MANIFEST, digest_of
from bakehouse.registry.registry import Credentials, NamedRegistry
from bakehouse.util.terminal import Reporter
from tests.support.built_images import BUILT, IMAGE
from tests.support.candidates import candidate
from tests.support.fake_registry import DIGEST, MANIFEST, FakeRegistry
from tests.support.proxy import Proxy


def promote_candidate(project: ProjectSettings, **terms: bool) -> ReleaseRecord:
    return promote.promote_image(project, IMAGE, print, PublishOptions(**terms))  # type: ignore[arg-type]


def released(project: ProjectSettings) -> list[ReleaseRecord]:
    return [record for record in open_ledger(project).records("mpi-cpu") if not record.candidate]


def test_an_alias_that_may_not_move_keeps_no_release_out_of_the_ledger(
    project: ProjectSettings, fake_registries: tuple[FakeRegistry, FakeRegistry], proxies: tuple[Proxy, Proxy]
) -> None:
    proxies[0].fail("PUT", "/manifests/image$", 400)
    with pytest.raises(PublishError, match="the moving tag `image` could not be set") as caught:
        promote_candidate(project, move_tag=True)
    assert len(caught.value.diagnostics) == 1
    [record] = released(project)
    assert record.registry == proxies[0].host
    assert fake_registries[0].manifests[record.tags[0]][1] == MANIFEST
    assert fake_registries[1].manifests["image"][1] == MANIFEST


def test_an_interrupt_between_two_registries_leaves_the_record_of_the_first(
    project: ProjectSettings,
    fake_registries: tuple[FakeRegistry, FakeRegistry],
    proxies: tuple[Proxy, Proxy],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = retag.tag_release

    def interrupted(record: ReleaseRecord, *arguments: object) -> object:
        if record.registry == proxies[1].host:
            raise KeyboardInterrupt
        return original(record, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(promote, "tag_release", interrupted)
    with pytest.raises(KeyboardInterrupt):
        promote_candidate(project, move_tag=True)
    [record] = released(project)
    assert record.registry == proxies[0].host
    assert "image" not in fake_registries[0].manifests


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
    require_not_expiring(target, published, open_ledger(ProjectSettings(tmp_path, ())), lines.append, until)
    over = "the deadline passed"
    repository = f"`{host}/team/mpi-cpu`"
    assert lines == [
        f"mpi-cpu: warning: could not read the lifecycle policy of {repository}; not checked: {over}"
    ]
    assert differences(target, published, until) == (Reason(f"not compared with the settings: {over}"),)


@pytest.mark.timeout(60)
def test_no_wait_for_a_scan_outlasts_the_deadline() -> None:
    first = Silent(host="123456789012.dkr.ecr.eu-west-1.amazonaws.com")
    published = PublishedImage("mpi-cpu", first.host, "team/mpi-cpu", ("x",), DIGEST)
    result = ecr_scan.scan(first, published, print, Waiting(until=time.monotonic() + 0.3))
    assert result.completed == ""
    assert re.fullmatch("no scan was found after [0-9.]+ s", result.missing_reason)


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
    monkeypatch.setattr(image_push, "attest", attest)
    publication = push.PushOptions(date(2026, 11, 20), tmp_path)
    where = Destination((first, second), "team")
    push_of_image = ImagePush(
        *(ProjectSettings(tmp_path, ()), BUILT, where, publication, "", PushQueue(), print),
        engine=None,
        packer=Mock(),
        documents=AttestSettings(plain=True),
    )
    with pytest.raises(PublishError, match=r"`two\.example\.com` has a different manifest of `mpi-cpu`"):
        push_of_image.run()
    assert attested == ["one.example.com"]
