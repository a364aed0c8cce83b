"""Destinations of the page: a directory and S3 as moto plays it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest

from bakehouse.commands.report import output
from bakehouse.errors import Diagnostic, PublishError, UsageError
from tests.support.errors import raised

PAGE = b"<!DOCTYPE html>"
REGION = "eu-west-1"


@pytest.fixture
def s3(moto: None) -> Iterator[Any]:
    client = boto3.client("s3", region_name=REGION)
    client.create_bucket(Bucket="our-bucket", CreateBucketConfiguration={"LocationConstraint": REGION})
    yield client
    for entry in client.list_objects_v2(Bucket="our-bucket").get("Contents", ()):
        client.delete_object(Bucket="our-bucket", Key=entry["Key"])
    client.delete_bucket(Bucket="our-bucket")


def test_a_directory_gets_an_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert output.write(PAGE, "public", None) == "public/index.html"
    assert Path("public/index.html").read_bytes() == PAGE


@pytest.mark.parametrize(
    ("directory", "reason"), [("/proc/none", "operation not permitted"), ("file", "not a directory")]
)
def test_a_directory_that_cannot_be_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, directory: str, reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    error = raised(UsageError, output.write, PAGE, directory, None)

    hint = "name a directory that you may write to: `bake report --to DIRECTORY`"
    message = f"cannot write `{directory}/index.html`: {reason}"
    assert error.diagnostics == (Diagnostic(message, hint=hint),)


def test_s3_gets_a_page_that_browsers_show(s3: Any) -> None:
    assert output.write(PAGE, "s3://our-bucket/fleet/", REGION) == "s3://our-bucket/fleet/index.html"
    assert output.write(PAGE, "s3://our-bucket", REGION) == "s3://our-bucket/index.html"

    stored = s3.get_object(Bucket="our-bucket", Key="fleet/index.html")
    assert stored["Body"].read() == PAGE
    assert stored["ContentType"] == "text/html; charset=utf-8"


def test_a_missing_bucket_is_reported(s3: Any) -> None:
    error = raised(PublishError, output.write, PAGE, "s3://no-bucket/fleet", REGION)

    assert str(error) == "could not write `s3://no-bucket/fleet/index.html`"


def test_a_url_without_a_bucket_is_refused() -> None:
    [diagnostic] = raised(UsageError, output.write, PAGE, "s3://", REGION).diagnostics
    assert (diagnostic.message, diagnostic.hint) == (
        "`s3://` does not name a bucket",
        "write it as `s3://our-bucket/report`",
    )
