"""Roll-backs to earlier releases, with registries in memory."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import Mock

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
from tests.support.fake_registry import DIGEST, FakeRegistry
from tests.support.proxy import Proxy, Reply, Request

NEW = f"sha256:{7:064x}"


def repository(proxy: Proxy) -> Repository:
    return Repository(NamedRegistry(proxy.host, lambda _: None), "team/image", RetryPolicy())


@pytest.fixture
def released(tmp_path: Path, proxies: tuple[Proxy, Proxy]) -> ProjectSettings:
    """A project with a release in both registries, and a newer one that the registries lack."""
    project = ProjectSettings(tmp_path, ())
    old = replace(
        candidate(*proxies), candidate=False, date="2026-11-20", tags=("mpi-cpu-20261120-7c1e44b0",)
    )
    uri = old.image_uri.replace(DIGEST, NEW)
    new = replace(old, digest=NEW, image_uri=uri, regions=(), date="2026-11-21", tags=("mpi-cpu-new",))
    for record in (old, new):
        open_ledger(project).add(record)
    return project


def rolled_back(
    project: ProjectSettings, release: str, *, move_tag: bool = False
) -> tuple[Sequence[ReleaseRecord], list[str]]:
    lines: list[str] = []
    records = roll_back(project, "mpi-cpu", release, lines.append, PublishOptions(move_tag=move_tag))
    return records, lines


@pytest.mark.parametrize("name", [DIGEST, DIGEST[:20], "mpi-cpu-20261120-7c1e44b0"])
def test_look_ups_return_the_release_again(released: ProjectSettings, name: str) -> None:
    assert image_uris.newest(released, "mpi-cpu").digest == NEW
    records, lines = rolled_back(released, name)
    assert [record.digest for record in records] == [DIGEST]
    assert image_uris.newest(released, "mpi-cpu").digest == DIGEST
    assert lines == [f"mpi-cpu: rolled back from {NEW[:19]} to {DIGEST[:19]}"]


def test_the_ledger_records_it_as_a_roll_back(released: ProjectSettings) -> None:
    rolled_back(released, DIGEST)
    *_, record = load(released.images / "mpi-cpu/releases.json")
    assert record.rollback
    assert record.rollback.replaced == NEW
    assert record.rollback.time[:10] == record.date


def test_an_existing_tag_moves_in_each_registry(
    released: ProjectSettings, proxies: tuple[Proxy, Proxy]
) -> None:
    first, second = map(repository, proxies)
    manifest = first.manifest(DIGEST)
    assert manifest
    first.tag(manifest, "mpi-cpu")
    _, lines = rolled_back(released, DIGEST)
    assert first.digest_of("mpi-cpu") == DIGEST
    assert second.digest_of("mpi-cpu") is None
    assert lines[1:] == [f"mpi-cpu: tag `{proxies[0].host}/team/image:mpi-cpu` now points to this release"]

    rolled_back(released, DIGEST, move_tag=True)
    assert second.digest_of("mpi-cpu") == DIGEST


def test_a_renamed_image_is_rolled_back_to_a_release_of_its_former_name(
    released: ProjectSettings, proxies: tuple[Proxy, Proxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = repository(proxies[0])
    manifest = first.manifest(DIGEST)
    assert manifest
    first.tag(manifest, "mpi-cpu")
    files = FileLedger(released)
    new = files.records("mpi-cpu")[-1]
    assert files.follow_rename("mpi-cpu", "present")
    present_repository = FakeRegistry()

    def answer(request: Request) -> Reply | None:
        if "/team/present/" not in request.path:
            return None
        return present_repository.answer(
            replace(request, path=request.path.replace("/team/present/", "/team/image/"))
        )

    proxies[0].answers.insert(0, answer)
    present = Repository(first.registry, "team/present", RetryPolicy())
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
    former_tag = f"mpi-cpu: tag `{host}/team/image:mpi-cpu` now points to this release"
    present_tag = f"present: tag `{host}/team/present:present` now points to this release"
    expected = {DIGEST: [unmoved, former_tag], digest: [present_tag]}
    for hour, release in enumerate((DIGEST, digest, DIGEST)):
        lines: list[str] = []
        now = datetime(2026, 11, 23, hour, tzinfo=UTC)
        monkeypatch.setattr("bakehouse.publish.rollback.datetime", Mock(now=Mock(return_value=now)))
        roll_back(released, "present", release, lines.append, PublishOptions())

        # Look-ups in a ledger in S3 find only records of the present name
        latest = image_uris.newest(released, "present")
        assert (latest.image, latest.digest, lines[1:]) == ("present", release, expected[release])
    assert first.digest_of("present") is None


def test_the_latest_release_is_not_recorded_again(released: ProjectSettings) -> None:
    rolled_back(released, DIGEST)
    before = load(released.images / "mpi-cpu/releases.json")
    _, lines = rolled_back(released, DIGEST)
    assert lines == [f"mpi-cpu: {DIGEST[:19]} is the latest release already"]
    assert load(released.images / "mpi-cpu/releases.json") == before


def test_a_former_registry_is_not_asked(released: ProjectSettings, proxies: tuple[Proxy, Proxy]) -> None:
    ledger = open_ledger(released)
    [old, new] = ledger.records("mpi-cpu")
    host = proxies[1].host
    for record in (old, new):
        uri = f"{host}/{record.repository}@{record.digest}"
        ledger.add(replace(record, registry=host, image_uri=uri, regions=()))
    moved = replace(released, registry=f"{host}/team")
    proxies[0].answers.clear()
    records, _ = rolled_back(moved, DIGEST)
    assert [record.registry for record in records] == [host]
    assert image_uris.newest(moved, "mpi-cpu").digest == DIGEST


def test_each_registry_gets_a_record(released: ProjectSettings, proxies: tuple[Proxy, Proxy]) -> None:
    ledger = open_ledger(released)
    for record in ledger.records("mpi-cpu"):
        uri = f"{proxies[1].host}/{record.repository}@{record.digest}"
        ledger.add(replace(record, registry=proxies[1].host, image_uri=uri, regions=()))
    records, lines = rolled_back(released, DIGEST)
    assert [record.registry for record in records] == [proxy.host for proxy in proxies]
    assert lines == [f"mpi-cpu: rolled back from {NEW[:19]} to {DIGEST[:19]}"] * 2


def refused(project: ProjectSettings, release: str, kind: type[BakehouseError]) -> str:
    before = load(project.images / "mpi-cpu/releases.json")
    with pytest.raises(kind) as caught:
        rolled_back(project, release)
    assert load(project.images / "mpi-cpu/releases.json") == before
    return caught.value.diagnostics[0].message


def test_a_release_that_a_registry_lost_is_refused(
    released: ProjectSettings, proxies: tuple[Proxy, Proxy]
) -> None:
    rolled_back(released, DIGEST)
    assert refused(released, NEW, PublishError) == f"`{proxies[0].host}` no longer has {NEW[:19]}"


def test_an_unknown_release_is_refused(released: ProjectSettings) -> None:
    assert refused(released, "v1", UsageError) == "no release is named `v1`"


def test_the_moving_tag_names_no_release(released: ProjectSettings) -> None:
    message = "the ledger does not record where the moving tag `mpi-cpu` points"
    assert refused(released, "mpi-cpu", UsageError) == message


def test_a_candidate_is_refused(project: ProjectSettings) -> None:
    assert refused(project, DIGEST, UsageError) == f"no release is named `{DIGEST}`"
