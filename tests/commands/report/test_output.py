"""Destinations of the page: a directory, S3 as moto plays it, and a server."""

import http.client
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3  # type: ignore[import-untyped]
import pytest

from bakehouse.commands.report import output
from bakehouse.errors import Diagnostic, PublishError, UsageError
from tests.support.ecr import moto_server
from tests.support.errors import raised

PAGE = b"<!DOCTYPE html>"
REGION = "eu-west-1"


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in os.environ:
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    with moto_server() as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
        monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
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
    with pytest.raises(UsageError) as caught:
        output.write(PAGE, directory, None)

    hint = "name a directory that you may write to: `bake report --to DIRECTORY`"
    message = f"cannot write `{directory}/index.html`: {reason}"
    assert caught.value.diagnostics == (Diagnostic(message, hint=hint),)


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


@pytest.fixture
def url() -> Iterator[str]:
    with output.open_server(PAGE) as (url, server):
        thread = threading.Thread(target=output.serve, args=(server,))
        thread.start()
        yield url
        server.shutdown()
        thread.join()


def answer(url: str, path: str, host: str, method: str = "GET") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    connection.request(method, path, headers={"Host": host})
    response = connection.getresponse()
    return response.status, response.read()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:8080", "[::1]:80"])
def test_the_server_has_the_page(url: str, host: str) -> None:
    assert answer(url, urlsplit(url).path, host) == (200, PAGE)


def test_the_server_has_nothing_else(url: str) -> None:
    secret = urlsplit(url).path
    assert len(secret) > 32
    for path in ("/", "", "/index.html", "/etc/passwd", secret[:-1], f"{secret}../", f"{secret}x"):
        assert answer(url, path, "127.0.0.1")[0] == 404


@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE", "OPTIONS"])
def test_the_page_can_only_be_read(url: str, method: str) -> None:
    assert answer(url, urlsplit(url).path, "127.0.0.1", method)[0] == 501


def test_the_server_answers_on_one_address_until_its_end() -> None:
    with output.open_server(PAGE) as (_, server):
        socket.create_connection(("127.0.0.1", server.server_port), timeout=5).close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", server.server_port), timeout=5)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.server_port), timeout=5)


@pytest.mark.parametrize("host", ["example.com", "127.0.0.1.example.com", ""])
def test_the_server_refuses_names_of_other_sites(url: str, host: str) -> None:
    assert answer(url, urlsplit(url).path, host)[0] == 403


def test_the_server_ends_with_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with output.open_server(PAGE) as (url, server):
        monkeypatch.setattr(server, "serve_forever", interrupt)
        output.serve(server)

    assert url.startswith("http://127.0.0.1:")
