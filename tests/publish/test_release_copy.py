"""Copies of releases to another registry, with registries in memory."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bakehouse.catalog.project import ProjectSettings
from bakehouse.errors import BakehouseError, PublishError, UsageError
from bakehouse.fetch.retry import RetryPolicy
from bakehouse.ledger import image_uris
from bakehouse.ledger.releases import ReleasedRollback, ReleaseRecord, load
from bakehouse.ledger.store import open_ledger
from bakehouse.publish.options import PublishOptions
from bakehouse.publish.release_copy import ReleaseCopier, copy_releases
from bakehouse.registry import client
from bakehouse.registry.manifest import DOCKER_MANIFEST, digest_of, short
from bakehouse.registry.referrers import ArtifactRepository, AttachedDocument
from bakehouse.registry.registry import NamedRegistry
from tests.support.candidates import candidate
from tests.support.errors import raised
from tests.support.fake_registry import CONFIG, DIGEST, IMAGE, LAYER, MANIFEST, FakeRegistry
from tests.support.proxy import Proxy

BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"
TAG = "image-20261120-7c1e44b0"
NEW = "sha256:" + "7" * 64


def repository(proxy: Proxy) -> ArtifactRepository:
    return ArtifactRepository(NamedRegistry(proxy.host, lambda _: None), "team/image", RetryPolicy())


@pytest.fixture
def moved(
    tmp_path: Path, proxies: tuple[Proxy, Proxy], fake_registries: tuple[FakeRegistry, FakeRegistry]
) -> ProjectSettings:
    """A project with a signed release in the first registry, and a second one that is empty."""
    fake_registries[1].manifests.clear()
    fake_registries[1].blobs.clear()
    project = ProjectSettings(tmp_path, (), registry=f"{proxies[1].host}/team")
    record = replace(
        candidate(proxies[0]), image="image", candidate=False, date="2026-11-20", tags=(TAG,), regions=()
    )
    open_ledger(project).add(record)
    source = repository(proxies[0])
    manifest = source.manifest(DIGEST)
    assert manifest
    source.tag(manifest, TAG)
    source.attach(manifest, [AttachedDocument(BUNDLE, b"signed", "bundle.json", {"of": "test"})])
    return project


def copied(project: ProjectSettings, image_uri: str = "") -> tuple[Sequence[ReleaseRecord], list[str]]:
    lines: list[str] = []
    options = PublishOptions(registry=project.registry, image_uri=image_uri)
    return copy_releases(project, ["image"], lines.append, options), lines


def test_a_release_is_copied_with_its_tag_and_its_record(
    moved: ProjectSettings, proxies: tuple[Proxy, Proxy], fake_registries: tuple[FakeRegistry, FakeRegistry]
) -> None:
    [record], lines = copied(moved)

    assert record.image_uri == f"{proxies[1].host}/team/image@{DIGEST}"
    assert fake_registries[1].manifests[TAG] == (DOCKER_MANIFEST, MANIFEST)
    assert {digest_of(CONFIG), digest_of(LAYER)} <= fake_registries[1].blobs.keys()
    [old, new] = load(moved.images / "image/releases.json")
    assert new == record
    assert (new.date, new.tags, new.checks) == (old.date, old.tags, old.checks)
    assert image_uris.newest(moved, "image") == record
    [line] = lines
    assert line.startswith(f"image: copied {DIGEST[:19]} to {proxies[1].host}, uploaded ")


def test_attached_documents_are_copied_and_listed(
    moved: ProjectSettings, proxies: tuple[Proxy, Proxy]
) -> None:
    copied(moved)
    source, target = (repository(proxy).contents(DIGEST, BUNDLE) for proxy in proxies)
    assert source == target
    assert list(target.values()) == [b"signed"]


def test_signatures_under_the_tags_of_cosign_are_copied(
    moved: ProjectSettings, fake_registries: tuple[FakeRegistry, FakeRegistry]
) -> None:
    tag = DIGEST.replace(":", "-") + ".sig"
    fake_registries[0].manifests[tag] = (DOCKER_MANIFEST, IMAGE)
    copied(moved)
    assert fake_registries[1].manifests[tag] == (DOCKER_MANIFEST, IMAGE)


def test_a_second_copy_changes_nothing(
    moved: ProjectSettings, fake_registries: tuple[FakeRegistry, FakeRegistry]
) -> None:
    copied(moved)
    ledger = (moved.images / "image/releases.json").read_bytes()
    manifests = dict(fake_registries[1].manifests)
    # The old registry may be gone
    fake_registries[0].manifests.clear()
    records, lines = copied(moved)
    assert (moved.images / "image/releases.json").read_bytes() == ledger
    assert fake_registries[1].manifests == manifests
    assert lines == []
    assert [record.digest for record in records] == [DIGEST]


def test_the_latest_release_stays_the_latest_after_a_roll_back(
    moved: ProjectSettings, fake_registries: tuple[FakeRegistry, FakeRegistry]
) -> None:
    ledger = open_ledger(moved)
    [first] = ledger.records("image")
    other = json.dumps({**json.loads(MANIFEST), "annotations": {"of": "another"}}).encode()
    digest = digest_of(other)
    fake_registries[0].manifests[digest] = (DOCKER_MANIFEST, other)
    uri = first.image_uri.replace(DIGEST, digest)
    ledger.add(replace(first, digest=digest, image_uri=uri, date="2026-11-21", tags=("image-new",)))
    ledger.add(replace(first, date="2026-11-22", rollback=ReleasedRollback("2026-11-22T10:00:00Z", digest)))
    assert f"image: skipped {short(digest)}, which was rolled back" in copied(moved)[1]
    assert image_uris.newest(moved, "image").digest == DIGEST


def test_the_release_after_a_roll_back_of_the_same_day_stays_the_latest(
    moved: ProjectSettings, fake_registries: tuple[FakeRegistry, FakeRegistry]
) -> None:
    ledger = open_ledger(moved)
    [first] = ledger.records("image")
    ledger.add(replace(first, rollback=ReleasedRollback("2026-11-20T10:00:00Z", NEW)))
    second = with_second_release(moved, fake_registries[0])
    copied(moved)
    assert image_uris.newest(moved, "image").digest == second.digest


def test_the_repository_of_a_renamed_image_is_created_for_its_present_name(
    moved: ProjectSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    created: list[tuple[str, str]] = []
    monkeypatch.setattr(
        NamedRegistry, "create_repository", lambda _, name, moving_tag: created.append((name, moving_tag))
    )
    [record] = open_ledger(moved).records("image")
    registry = NamedRegistry(moved.registry.partition("/")[0], lambda _: None)
    options = PublishOptions(registry=moved.registry, create=True)
    copier = ReleaseCopier(moved, "team/image", [registry], lambda _: None, options, [])
    copier.copy(replace(record, image="former"))
    assert created == [("team/image", "image")]


def test_one_release_can_be_selected(moved: ProjectSettings) -> None:
    [record] = open_ledger(moved).records("image")
    assert len(copied(moved, record.image_uri)[0]) == 1
    assert copied(moved, record.image_uri)[1] == []
    error = raised(UsageError, copied, moved, record.image_uri.replace(DIGEST, NEW))
    assert error.diagnostics[0].message.endswith(f"{NEW}` is not a release")


def with_second_release(project: ProjectSettings, registry: FakeRegistry) -> ReleaseRecord:
    """Add another release of the same day, and return its record."""
    ledger = open_ledger(project)
    [first, *_] = ledger.records("image")
    content = json.dumps({**json.loads(MANIFEST), "annotations": {"of": "another"}}).encode()
    digest = digest_of(content)
    registry.manifests[digest] = (DOCKER_MANIFEST, content)
    uri = first.image_uri.replace(DIGEST, digest)
    second = replace(first, digest=digest, image_uri=uri, tags=("image-second",))
    ledger.add(second)
    return second


def test_a_release_that_is_copied_after_a_later_one_does_not_become_the_latest(
    moved: ProjectSettings, fake_registries: tuple[FakeRegistry, FakeRegistry]
) -> None:
    second = with_second_release(moved, fake_registries[0])
    copied(moved, second.image_uri)
    copied(moved)
    assert image_uris.newest(moved, "image").digest == second.digest


def test_later_releases_of_the_day_are_not_copied_before_one_that_failed(
    moved: ProjectSettings, fake_registries: tuple[FakeRegistry, FakeRegistry]
) -> None:
    second = with_second_release(moved, fake_registries[0])
    next_day = replace(second, date="2026-11-21", tags=("image-third",), bytes=1)
    open_ledger(moved).add(next_day)
    manifest = fake_registries[0].manifests.pop(DIGEST)
    lines: list[str] = []
    with pytest.raises(PublishError):
        copy_releases(moved, ["image"], lines.append, PublishOptions(registry=moved.registry))
    reason = "because an earlier release of 2026-11-20 was not copied"
    assert lines[0] == f"image: skipped {second.digest[:19]}, {reason}"
    copies = load(moved.images / "image/releases.json")[3:]
    assert [record.tags for record in copies] == [next_day.tags]

    fake_registries[0].manifests[DIGEST] = manifest
    assert [record.digest for record in copied(moved)[0]] == [DIGEST, second.digest]


def test_a_candidate_in_the_registry_is_no_copy_of_a_release(
    moved: ProjectSettings, proxies: tuple[Proxy, Proxy], fake_registries: tuple[FakeRegistry, FakeRegistry]
) -> None:
    open_ledger(moved).add(replace(candidate(proxies[1]), image="image"))
    copied(moved)
    assert fake_registries[1].manifests[TAG] == (DOCKER_MANIFEST, MANIFEST)


def test_a_release_in_one_of_several_registries_is_copied_to_the_others(
    moved: ProjectSettings, proxies: tuple[Proxy, Proxy], fake_registries: tuple[FakeRegistry, FakeRegistry]
) -> None:
    [record] = open_ledger(moved).records("image")
    registries = [NamedRegistry(proxy.host, lambda _: None) for proxy in proxies]
    options = PublishOptions(registry=moved.registry)
    ReleaseCopier(moved, "team/image", registries, lambda _: None, options, [record]).copy(record)
    assert fake_registries[1].manifests[TAG] == (DOCKER_MANIFEST, MANIFEST)


def refused(project: ProjectSettings, kind: type[BakehouseError]) -> str:
    before = load(project.images / "image/releases.json")
    error = raised(kind, copied, project)
    assert load(project.images / "image/releases.json") == before
    [diagnostic] = error.diagnostics
    return diagnostic.message


def test_a_release_that_the_registry_lost_is_not_recorded(
    moved: ProjectSettings, proxies: tuple[Proxy, Proxy], fake_registries: tuple[FakeRegistry, FakeRegistry]
) -> None:
    del fake_registries[0].manifests[DIGEST]
    assert refused(moved, PublishError) == f"`{proxies[0].host}` no longer has {DIGEST[:19]}"


def test_a_tag_of_another_image_is_not_replaced(
    moved: ProjectSettings, fake_registries: tuple[FakeRegistry, FakeRegistry]
) -> None:
    fake_registries[1].manifests[TAG] = (DOCKER_MANIFEST, IMAGE)
    assert refused(moved, PublishError) == f"tag `{TAG}` is taken by a different image"
    assert fake_registries[1].manifests[TAG] == (DOCKER_MANIFEST, IMAGE)


def test_large_layers_are_copied_in_parts(
    moved: ProjectSettings,
    fake_registries: tuple[FakeRegistry, FakeRegistry],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "_PART_BYTES", 3)
    copied(moved)
    assert fake_registries[1].blobs[digest_of(LAYER)] == LAYER


def test_a_damaged_layer_is_not_copied(
    moved: ProjectSettings, fake_registries: tuple[FakeRegistry, FakeRegistry]
) -> None:
    fake_registries[0].blobs[digest_of(LAYER)] = b"a lAyer"
    assert refused(moved, PublishError).endswith("failed")
    assert TAG not in fake_registries[1].manifests
    assert digest_of(LAYER) not in fake_registries[1].blobs
