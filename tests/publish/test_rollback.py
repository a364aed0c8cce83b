"""Roll-backs to earlier releases, with registries in memory."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bakehouse.catalog.project import ProjectSettings
from bakehouse.errors import BakehouseError, PublishError, UsageError
from bakehouse.fetch.retry import RetryPolicy
from bakehouse.ledger import image_uris
from bakehouse.ledger.releases import ReleaseRecord, load
from bakehouse.ledger.store import FileLedger, open_ledger
from bakehouse.publish.options import PublishOptions
from bakehouse.publish.rollback import roll_back
from bakehouse.registry.client import Repository
from bakehouse.registry.registry import NamedRegistry
from tests.support.candidates import candidate
from tests.support.errors import raised
from tests.support.fake_registry import DIGEST, FakeRegistry
from tests.support.proxy import Proxy, Reply, Request

NEW = f"sha256:{7:064x}"


def repository(proxy: Proxy) -> Repository:
    return Repository(NamedRegistry(proxy.host, lambda _: None), "team/image", RetryPolicy())


@pytest.fixture
def released(tmp_path: Path, proxies: tuple[Proxy, Proxy]) -> ProjectSettings:
    """A project with a release in both registries, and a newer one that the registries lack."""
    project = ProjectSettings(tmp_path, ())
    tags = ("image-20261120-7c1e44b0",)
    old = replace(candidate(*proxies), image="image", candidate=False, date="2026-11-20", tags=tags)
    uri = old.image_uri.replace(DIGEST, NEW)
    new = replace(old, digest=NEW, image_uri=uri, regions=(), date="2026-11-21", tags=("image-new",))
    for record in (old, new):
        open_ledger(project).add(record)
    return project


def rolled_back(
    project: ProjectSettings, release: str, *, move_tag: bool = False
) -> tuple[Sequence[ReleaseRecord], list[str]]:
    lines: list[str] = []
    records = roll_back(project, "image", release, lines.append, PublishOptions(move_tag=move_tag))
    return records, lines


@pytest.mark.parametrize("name", [DIGEST, DIGEST[:20], "image-20261120-7c1e44b0"])
def test_look_ups_return_the_release_again(released: ProjectSettings, name: str) -> None:
    assert image_uris.newest(released, "image").digest == NEW
    records, lines = rolled_back(released, name)
    assert [record.digest for record in records] == [DIGEST]
    assert image_uris.newest(released, "image").digest == DIGEST
    assert lines == [f"image: rolled back from {NEW[:19]} to {DIGEST[:19]}"]


def test_the_ledger_records_it_as_a_roll_back(released: ProjectSettings) -> None:
    rolled_back(released, DIGEST)
    *_, record = load(released.images / "image/releases.json")
    assert record.rollback
    assert record.rollback.replaced == NEW
    assert record.rollback.time[:10] == record.date


def test_an_existing_tag_moves_in_each_registry(
    released: ProjectSettings, proxies: tuple[Proxy, Proxy]
) -> None:
    first, second = map(repository, proxies)
    manifest = first.manifest(DIGEST)
    assert manifest
    first.tag(manifest, "image")
    _, lines = rolled_back(released, DIGEST)
    assert first.digest_of("image") == DIGEST
    assert second.digest_of("image") is None
    assert lines[1:] == [f"image: tag `{proxies[0].host}/team/image:image` now points to this release"]

    rolled_back(released, DIGEST, move_tag=True)
    assert second.digest_of("image") == DIGEST


def present_repository(proxy: Proxy) -> Repository:
    """Add the empty repository `team/present` to a registry."""
    fake = FakeRegistry()

    def answer(request: Request) -> Reply | None:
        if "/team/present/" not in request.path:
            return None
        return fake.answer(replace(request, path=request.path.replace("/team/present/", "/team/image/")))

    proxy.answers.insert(0, answer)
    return Repository(NamedRegistry(proxy.host, lambda _: None), "team/present", RetryPolicy())


def test_a_renamed_image_is_rolled_back_to_a_release_of_its_former_name(
    released: ProjectSettings, proxies: tuple[Proxy, Proxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = repository(proxies[0])
    manifest = first.manifest(DIGEST)
    assert manifest
    first.tag(manifest, "image")
    files = FileLedger(released)
    new = files.records("image")[-1]
    assert files.follow_rename("image", "present")
    present = present_repository(proxies[0])
    other = replace(manifest, content=manifest.content + b"\n")
    digest = other.digest
    present.tag(other, "present")
    uri = f"{proxies[0].host}/team/present@{digest}"
    record = replace(new, image="present", repository="team/present", digest=digest, image_uri=uri)
    files.add(replace(record, date="2026-11-22"))

    host = proxies[0].host
    unmoved = (
        f"warning: tag `{host}/team/present:present` was not moved, "
        "because this release is in another repository"
    )
    former_unmoved = unmoved.replace("/present:present", "/image:image")
    former_tag = f"present: tag `{host}/team/image:image` now points to this release"
    present_tag = f"present: tag `{host}/team/present:present` now points to this release"
    expected = {DIGEST: [unmoved, former_tag], digest: [former_unmoved, present_tag]}
    for hour, release in enumerate((DIGEST, digest, DIGEST)):
        lines: list[str] = []
        now = f"2026-11-23T{hour:02}:00:00Z"
        monkeypatch.setattr("bakehouse.publish.rollback.current_time", lambda now=now: now)
        roll_back(released, "present", release, lines.append, PublishOptions())

        # Look-ups in a ledger in S3 find only records of the present name
        latest = image_uris.newest(released, "present")
        assert (latest.image, latest.digest, lines[1:]) == ("present", release, expected[release])
    assert first.digest_of("present") is None


def test_the_tag_of_the_present_name_moves_to_a_copy_of_a_former_release(
    released: ProjectSettings, proxies: tuple[Proxy, Proxy]
) -> None:
    manifest = repository(proxies[0]).manifest(DIGEST)
    assert manifest
    files = FileLedger(released)
    [old, new] = files.records("image")
    assert files.follow_rename("image", "present")
    present = present_repository(proxies[1])
    latest = replace(manifest, content=manifest.content + b"\n")
    present.tag(manifest, old.tags[0])
    present.tag(latest, "present")
    host = proxies[1].host
    copy = replace(old, regions=(), registry=host, repository="team/present")
    for record in (
        copy,
        replace(new, image="present", date="2026-11-22", registry=host, repository="team/present"),
    ):
        digest = DIGEST if record is copy else latest.digest
        files.add(replace(record, digest=digest, image_uri=f"{host}/team/present@{digest}"))

    lines: list[str] = []
    project = replace(released, registry=f"{host}/team")
    roll_back(project, "present", DIGEST, lines.append, PublishOptions())
    assert lines == [
        f"present: rolled back from {latest.digest[:19]} to {DIGEST[:19]}",
        f"present: tag `{host}/team/present:present` now points to this release",
    ]
    assert present.digest_of("present") == DIGEST
    assert present.digest_of("image") is None


def test_the_latest_release_is_not_recorded_again(released: ProjectSettings) -> None:
    rolled_back(released, DIGEST)
    before = load(released.images / "image/releases.json")
    _, lines = rolled_back(released, DIGEST)
    assert lines == [f"image: {DIGEST[:19]} is the latest release already"]
    assert load(released.images / "image/releases.json") == before


def test_a_former_registry_is_not_asked(released: ProjectSettings, proxies: tuple[Proxy, Proxy]) -> None:
    ledger = open_ledger(released)
    [old, new] = ledger.records("image")
    host = proxies[1].host
    for record in (old, new):
        uri = f"{host}/{record.repository}@{record.digest}"
        ledger.add(replace(record, registry=host, image_uri=uri, regions=()))
    moved = replace(released, registry=f"{host}/team")
    proxies[0].answers.clear()
    records, _ = rolled_back(moved, DIGEST)
    assert [record.registry for record in records] == [host]
    assert image_uris.newest(moved, "image").digest == DIGEST


def test_each_registry_gets_a_record(released: ProjectSettings, proxies: tuple[Proxy, Proxy]) -> None:
    ledger = open_ledger(released)
    for record in ledger.records("image"):
        uri = f"{proxies[1].host}/{record.repository}@{record.digest}"
        ledger.add(replace(record, registry=proxies[1].host, image_uri=uri, regions=()))
    records, lines = rolled_back(released, DIGEST)
    assert [record.registry for record in records] == [proxy.host for proxy in proxies]
    assert lines == [f"image: rolled back from {NEW[:19]} to {DIGEST[:19]}"] * 2


def refused(project: ProjectSettings, release: str, kind: type[BakehouseError]) -> str:
    before = load(project.images / "image/releases.json")
    error = raised(kind, rolled_back, project, release)
    assert load(project.images / "image/releases.json") == before
    return error.diagnostics[0].message


def test_a_release_that_a_registry_lost_is_refused(
    released: ProjectSettings, proxies: tuple[Proxy, Proxy]
) -> None:
    rolled_back(released, DIGEST)
    assert refused(released, NEW, PublishError) == f"`{proxies[0].host}` no longer has {NEW[:19]}"


def test_an_unknown_release_is_refused(released: ProjectSettings) -> None:
    assert refused(released, "v1", UsageError) == "no release is named `v1`"


def test_the_moving_tag_names_no_release(released: ProjectSettings) -> None:
    message = "the ledger does not record where the moving tag `image` points"
    assert refused(released, "image", UsageError) == message


def test_a_candidate_is_refused(released: ProjectSettings) -> None:
    ledger = open_ledger(released)
    [old, _] = ledger.records("image")
    digest = f"sha256:{8:064x}"
    uri = old.image_uri.replace(DIGEST, digest)
    ledger.add(replace(old, candidate=True, digest=digest, image_uri=uri, regions=()))
    assert refused(released, digest, UsageError) == f"no release is named `{digest}`"
