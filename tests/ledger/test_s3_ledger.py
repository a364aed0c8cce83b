"""The ledger in S3, played by moto's server."""

import hashlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any, ClassVar

import boto3  # type: ignore[import-untyped]
import pytest
from botocore.exceptions import ResponseStreamingError  # type: ignore[import-untyped]

from bakehouse import image_uris
from bakehouse.catalog.project import ProjectSettings
from bakehouse.errors import Diagnostic, PublishError, Reason, RecipeError, RegistryAuthError, UsageError
from bakehouse.ledger.image_uris import newest
from bakehouse.ledger.releases import LedgerEntry, ReleaseRecord, load, text_of
from bakehouse.ledger.s3_ledger import S3Ledger
from bakehouse.ledger.store import FileLedger, open_ledger
from bakehouse.publish import preflight
from bakehouse.publish.options import PublishOptions
from bakehouse.publish.release_copy import copy_releases
from tests.support.errors import raised
from tests.support.s3_ledgers import ADDRESS, BUCKET, REGION, numbered, team


@pytest.fixture
def s3(moto: None) -> Iterator[Any]:
    """An empty bucket, and this process's environment as on a machine with AWS credentials."""
    client = boto3.client("s3", region_name=REGION)
    client.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
    yield client
    for key in keys(client):
        client.delete_object(Bucket=BUCKET, Key=key)
    client.delete_bucket(Bucket=BUCKET)


def keys(client: Any) -> list[str]:
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
    return [entry["Key"] for page in pages for entry in page.get("Contents", ())]


def test_what_is_written_is_read_in_the_order_of_its_days(s3: Any) -> None:
    records = [numbered(number, date=f"2026-11-{number:02}") for number in (3, 1, 2)]
    for record in records:
        team().add(record)
    assert [record.date[-2:] for record in team().records("mpi-cpu")] == ["01", "02", "03"]
    assert set(team().records("mpi-cpu")) == set(records)
    assert team().images() == ("mpi-cpu",)


def test_image_uris_are_looked_up_in_s3(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    record = numbered(1)
    team().add(record)

    assert image_uris.retrieve("mpi-cpu", ledger=ADDRESS) == record.image_uri
    monkeypatch.setenv("BAKEHOUSE_LEDGER", ADDRESS)
    assert image_uris.retrieve("mpi-cpu") == record.image_uri
    [diagnostic] = raised(UsageError, image_uris.retrieve, "mpi-cup").diagnostics
    assert diagnostic.hint == "did you mean `mpi-cpu`?"
    assert diagnostic.facts == (("looked in", f"{ADDRESS} (BAKEHOUSE_LEDGER)"),)


def test_a_record_is_there_once_and_is_never_written_again(s3: Any) -> None:
    first = numbered(1)
    team().add(first)
    team().add(replace(first, date="2027-01-01", revision="abc"))
    assert team().records("mpi-cpu") == (first,)


def test_a_field_that_a_later_version_adds_moves_no_object(s3: Any) -> None:
    record = numbered(1)
    team().add(record)
    [key] = keys(s3)
    stored = json.loads(s3.get_object(Bucket=BUCKET, Key=key)["Body"].read())
    s3.delete_object(Bucket=BUCKET, Key=key)
    defaults = {field.name: field.default for field in fields(ReleaseRecord) if field.default is not MISSING}
    older = {name: value for name, value in stored.items() if name not in defaults or value != defaults[name]}
    assert len(older) < len(stored)
    older_name = f"{key.rpartition('-')[0]}.json"
    s3.put_object(Bucket=BUCKET, Key=older_name, Body=json.dumps(older).encode())

    team().add(record)
    assert team().records("mpi-cpu") == (record,)
    assert len(keys(s3)) == 1


def test_a_record_of_a_newer_version_keeps_its_fields(s3: Any, tmp_path: Path) -> None:
    record = numbered(1)
    fields = {**LedgerEntry.of(record).fields, "rating": {"stars": 5}, "remarks": []}
    named = {name: value for name, value in fields.items() if name != "remarks"}
    name = LedgerEntry(record, named).identity
    key = f"team/releases/mpi-cpu/{hashlib.sha256(name.encode()).hexdigest()}.json"
    s3.put_object(Bucket=BUCKET, Key=key, Body=json.dumps(fields).encode())
    project = ProjectSettings(tmp_path, (), ledger=ADDRESS)

    assert open_ledger(project).records("mpi-cpu") == (record,)
    open_ledger(project).add(numbered(2, date="2026-11-21"))
    stored = json.loads((project.images / "mpi-cpu/releases.json").read_text())["releases"]
    assert stored[0] == json.loads(json.dumps(fields))
    assert len(stored) == 3
    assert stored[2] is None


def test_known_records_are_not_fetched_again(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = numbered(1), numbered(2)
    ledger = team()
    for record in (first, second):
        ledger.add(record)
    fetched: list[str] = []
    ask = ledger._request

    def count(operation: str, doing: str, **arguments: Any) -> Any:
        fetched.append(operation)
        return ask(operation, doing, **arguments)

    monkeypatch.setattr(ledger, "_request", count)
    entries = ledger.entries("mpi-cpu", [LedgerEntry.of(first)])
    assert {entry.record for entry in entries} == {first, second}
    assert fetched == ["list_objects_v2", "get_object"]


def test_a_project_s_own_file_follows_the_team_s(s3: Any, tmp_path: Path) -> None:
    first, second = (
        ProjectSettings(tmp_path / "a", (), ledger=ADDRESS),
        ProjectSettings(tmp_path / "b", (), ledger=ADDRESS),
    )
    mine, other = numbered(1), numbered(2, date="2026-11-21")
    open_ledger(first).add(mine)
    open_ledger(second).add(other)
    assert newest(first, "mpi-cpu") == mine
    assert open_ledger(first).records("mpi-cpu") == (mine, other)
    assert newest(first, "mpi-cpu") == newest(second, "mpi-cpu") == other


def test_a_renamed_image_has_the_team_s_records_of_its_former_name(s3: Any, tmp_path: Path) -> None:
    project = ProjectSettings(tmp_path, (), ledger=ADDRESS)
    old, other = numbered(1), numbered(2, date="2026-11-21")
    open_ledger(project).add(old)
    assert FileLedger(project).follow_rename("mpi-cpu", "new")
    # A clone that does not know the rename
    team().add(other)
    assert open_ledger(project).records("new") == (old, other)
    assert open_ledger(project).images() == ("new",)
    open_ledger(project).add(numbered(3, image="new"))
    assert len(open_ledger(project).records("new")) == 3


def test_releases_of_files_can_be_recorded_in_a_new_ledger(
    s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "check_access", lambda *arguments, **options: None)
    files = ProjectSettings(tmp_path, ())
    host = "registry.example.com"
    records = [
        replace(record, registry=host, image_uri=f"{host}/{record.repository}@{record.digest}")
        for record in map(numbered, (3, 1, 2))
    ]
    for record in records:
        open_ledger(files).add(record)
    options = PublishOptions(registry=f"{host}/bakehouse")
    copy_releases(replace(files, ledger=ADDRESS), ["*"], lambda _: None, options)
    assert S3Ledger(ADDRESS, None).records("mpi-cpu") == tuple(records)


def test_what_only_a_project_has_stays_in_its_file(s3: Any, tmp_path: Path) -> None:
    own, shared = numbered(1), numbered(2)
    project = ProjectSettings(tmp_path, (), ledger=ADDRESS)
    (project.images / "mpi-cpu").mkdir(parents=True)
    (project.images / "mpi-cpu" / "releases.json").write_text(text_of([own]))
    open_ledger(project).add(shared)
    assert load(project.images / "mpi-cpu" / "releases.json") == (own, shared)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"tested": true', '"tested": false'),
        ('"date": "2026-11-20"', '"date": "2026-11-28"'),
        ('"time": ""', '"time": "2026-11-20T23:59:59Z"'),
        ('"revision": ""', '"revision": "c0ffee"'),
    ],
)
def test_a_record_that_was_changed_is_refused(s3: Any, old: str, new: str) -> None:
    team().add(numbered(1))
    [key] = keys(s3)
    text = s3.get_object(Bucket=BUCKET, Key=key)["Body"].read().decode()
    s3.put_object(Bucket=BUCKET, Key=key, Body=text.replace(old, new))
    assert raised(RecipeError, team().records, "mpi-cpu").diagnostics[0].message == (
        f"`s3://{BUCKET}/{key}` was changed: its content does not match its name"
    )


def test_records_of_one_day_have_the_order_of_their_own_times(s3: Any) -> None:
    """S3's clock, which a copied bucket does not have, decides nothing."""
    late, early = numbered(1, time="2026-11-20T12:00:00Z"), numbered(2, time="2026-11-20T09:00:00Z")
    for record in (late, early):
        team().add(record)

    assert team().records("mpi-cpu") == (early, late)


@pytest.mark.parametrize("is_old", [False, True])
def test_a_committed_line_with_another_date_does_not_stand_for_the_team_s_record(
    s3: Any, tmp_path: Path, is_old: bool
) -> None:
    record = numbered(1)
    team().add(record)
    [key] = keys(s3)
    if is_old:
        body = s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        s3.delete_object(Bucket=BUCKET, Key=key)
        s3.put_object(Bucket=BUCKET, Key=f"{key.rpartition('-')[0]}.json", Body=body)
    project = ProjectSettings(tmp_path, (), ledger=ADDRESS)
    file = project.images / "mpi-cpu/releases.json"
    file.parent.mkdir(parents=True)
    file.write_text(text_of([replace(record, date="2026-11-28")]))

    assert open_ledger(project).records("mpi-cpu") == (record,)
    assert load(file) == (record,)


def test_a_second_record_with_the_same_facts_and_a_later_date_does_not_count(s3: Any) -> None:
    first, second = numbered(1), numbered(1, date="2026-11-28")
    team().add(second)
    [key] = keys(s3)
    body = s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()
    s3.delete_object(Bucket=BUCKET, Key=key)
    team().add(first)
    s3.put_object(Bucket=BUCKET, Key=key, Body=body)

    assert team().records("mpi-cpu") == (first,)


def test_every_write_works_in_a_bucket_that_demands_a_condition(
    s3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with the generated policy, which allows records only with If-None-Match."""

    class Bucket:
        list_objects_v2 = s3.list_objects_v2
        conditions: ClassVar[list[str]] = []

        def put_object(self, **arguments: Any) -> Any:
            self.conditions.extend(arguments.keys() & {"IfNoneMatch", "IfMatch"} or ["none"])
            return s3.put_object(**arguments)

    ledger = team()
    monkeypatch.setitem(vars(ledger), "_client", Bucket())
    ledger.add(numbered(1))

    assert Bucket.conditions == ["IfNoneMatch"]


@pytest.mark.parametrize("body", ["", "{}", "[1]", json.dumps({"image": 3})])
def test_an_object_that_is_not_a_record_is_refused(s3: Any, body: str) -> None:
    s3.put_object(Bucket=BUCKET, Key="team/releases/mpi-cpu/x.json", Body=body)
    with pytest.raises(RecipeError, match="is not a release record"):
        team().records("mpi-cpu")


def test_a_bucket_that_is_not_there(s3: Any) -> None:
    assert raised(PublishError, S3Ledger("s3://missing-bucket", REGION).add, numbered(1)).diagnostics == (
        Diagnostic(
            "there is no bucket `missing-bucket`",
            hint="create the bucket, or correct `ledger` in [tool.bakehouse]",
        ),
    )


def test_without_credentials(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(RegistryAuthError, match="no AWS credentials were found"):
        team().records("mpi-cpu")


def test_a_record_that_breaks_off_while_it_is_read(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    team().add(numbered(1))
    client = s3

    class Broken(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise ResponseStreamingError(error="connection broken")

    class Client:
        def get_object(self, **arguments: Any) -> Any:
            return {**client.get_object(**arguments), "Body": Broken()}

        def list_objects_v2(self, **arguments: Any) -> Any:
            return client.list_objects_v2(**arguments)

    ledger = team()
    monkeypatch.setitem(vars(ledger), "_client", Client())
    assert raised(PublishError, ledger.records, "mpi-cpu").diagnostics[0].message == (
        f"could not read the ledger `{ADDRESS}`: AWS does not answer"
    )


def test_an_invalid_endpoint_url(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "nowhere")
    [diagnostic] = raised(PublishError, team().records, "mpi-cpu").diagnostics
    assert diagnostic.message == f"could not read the ledger `{ADDRESS}`"
    assert diagnostic.facts == (("because", "boto3 rejects its settings"),)


def test_a_record_that_the_team_did_not_get_is_named(
    s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "nowhere")
    record = numbered(1)
    error = raised(PublishError, open_ledger(ProjectSettings(tmp_path, (), ledger=ADDRESS)).add, record)
    [diagnostic] = error.diagnostics
    assert diagnostic.message == f"could not read the ledger `{ADDRESS}`"
    assert ("not recorded", record.image_uri) in diagnostic.facts
    assert diagnostic.reasons == (
        Reason("the image is published anyway; run the same command again to record it"),
    )


WRITE = """
import sys
from concurrent.futures import ThreadPoolExecutor
from tests.support.s3_ledgers import numbered, team
first, count, threads = map(int, sys.argv[1:])
ledger = team()
with ThreadPoolExecutor(threads) as pool:
    list(pool.map(lambda number: ledger.add(numbered(number)), range(first, first + count)))
"""


@pytest.mark.parametrize("each", [8, pytest.param(40, marks=pytest.mark.release)])
def test_concurrent_writers_lose_nothing(s3: Any, each: int) -> None:
    """Each in a thread of one of two processes."""
    processes = 2
    with ThreadPoolExecutor(processes) as pool:
        codes = pool.map(
            lambda number: (
                subprocess.run(
                    [sys.executable, "-c", WRITE, str(number * each), str(each), str(min(each, 100))],
                    check=False,
                ).returncode
            ),
            range(processes),
        )
    assert [*codes] == [0] * processes
    records = team().records("mpi-cpu")
    assert {record.digest for record in records} == {numbered(n).digest for n in range(processes * each)}
