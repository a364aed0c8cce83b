"""Sources of a file: their order, pages of indexes, apt's mirrors, S3."""

import hashlib
import io
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest
from botocore.response import StreamingBody  # type: ignore[import-untyped]

from bakehouse.fetch import debian_mirrors, sources
from bakehouse.fetch.connection import ConnectionSettings, Proxies
from bakehouse.fetch.debian_mirrors import apt_connection
from bakehouse.fetch.faults import SourceError
from bakehouse.fetch.pip_config import PipConfig
from bakehouse.fetch.required_files import FileKind, RequiredFile
from bakehouse.fetch.s3 import S3Files
from bakehouse.fetch.simple_index import JSON
from bakehouse.fetch.sources import DownloadConfig, Offer, default_index, is_mirror
from tests.support.apt_configuration import AptConfiguration
from tests.support.errors import raised
from tests.support.file_server import FileServer, required_file, serving

WHEEL = "Tiny_Part-1.0+cpu-py3-none-any.whl"
CONTENT = b"a wheel"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serving() as server:
        yield server


def machine(*mirrors: str, pip: PipConfig | None = None) -> DownloadConfig:
    return DownloadConfig(mirrors, pip or PipConfig(no_index=True), None, {"HOME": "/nowhere"})


def a_wheel(kind: FileKind = "wheel") -> RequiredFile:
    return required_file(CONTENT, WHEEL, kind, "Tiny.Part==1.0+cpu")


def read(offer: Offer) -> bytes:
    with offer.open(0, "") as reply:
        return b"".join(reply.chunks())


def refusal(offer: Offer) -> str:
    return raised(SourceError, read, offer).reason


def test_mirrors_come_first_in_the_order_they_are_named() -> None:
    pip = PipConfig(
        index_url="https://u:p@one.example/simple/",
        extra_index_urls=("https://two.example/simple",),
        find_links=("https://links.example/page.html", "/srv/wheels"),
    )
    sources = machine("https://u:p@m.example/a/", "/srv/mirror", "s3://bucket/prefix/", pip=pip)
    assert [offer.name for offer in sources.offers(a_wheel())] == [
        "mirror `https://m.example/a`",
        "mirror `s3://bucket/prefix`",
        "index `https://one.example/simple`",
        "index `https://two.example/simple`",
        "links `https://links.example/page.html`",
    ]


def test_an_archive_comes_from_its_own_address(server: FileServer) -> None:
    server.files["/v1/part.tgz"] = CONTENT
    file = required_file(CONTENT, "part.tgz", "url", f"{server.url}/v1/part.tgz?key=canary")
    [offer] = machine().offers(file)
    assert (offer.name, read(offer)) == (f"`{server.url}/v1/part.tgz`", CONTENT)


@pytest.mark.parametrize("kind", ["text/html; charset=utf-8", JSON])
def test_an_index_in_either_form(server: FileServer, kind: str) -> None:
    server.files[f"/files/{WHEEL}".replace("+", "%2B")] = CONTENT
    page = (
        '{"files": [{"url": "../../files/%s", "hashes": {"sha256": "%s"}}]}'
        if kind == JSON
        else '<a href="../../files/%s#sha256=%s">x</a>'
    )
    server.files["/simple/tiny-part/"] = (page % (WHEEL.replace("+", "%2B"), SHA256)).encode()
    server.kinds["/simple/tiny-part/"] = kind
    [offer] = machine(pip=PipConfig(index_url=f"{server.url}/simple")).offers(a_wheel())
    assert read(offer) == CONTENT


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        ('<a href="other-1.whl">x</a>', "does not have the file"),
        (f'<a href="{WHEEL}#sha256={"0" * 64}">x</a>', "has a different file of that name"),
    ],
)
def test_an_index_that_has_something_else(server: FileServer, page: str, reason: str) -> None:
    server.files["/simple/tiny-part/"] = page.encode()
    [offer] = machine(pip=PipConfig(index_url=f"{server.url}/simple/")).offers(a_wheel())
    assert refusal(offer) == reason


def test_links_of_a_page(server: FileServer) -> None:
    server.files[f"/{WHEEL}"] = CONTENT
    server.files["/links.html"] = f'<a href="{WHEEL}">x</a>'.encode()
    [offer] = machine(pip=PipConfig(no_index=True, find_links=(f"{server.url}/links.html",))).offers(
        a_wheel()
    )
    assert read(offer) == CONTENT


def test_a_private_index_gets_its_login_for_its_files_too(server: FileServer) -> None:
    server.login = "user:word"
    server.files[f"/f/{WHEEL}"] = CONTENT
    server.files["/simple/tiny-part/"] = f'<a href="/f/{WHEEL}">x</a>'.encode()
    index = server.url.replace("//", "//user:word@") + "/simple"
    [offer] = machine(pip=PipConfig(index_url=index)).offers(a_wheel())
    assert read(offer) == CONTENT
    assert "word" not in offer.name + offer.place


def test_pips_own_proxy_is_for_indexes(server: FileServer) -> None:
    with serving() as proxy:
        proxy.is_proxy = True
        server.files["/simple/tiny-part/"] = b""
        sources = machine(server.url, pip=PipConfig(index_url=f"{server.url}/simple", proxy=proxy.url))
        assert [refusal(offer) for offer in sources.offers(a_wheel())] == ["does not have the file"] * 2
        assert proxy.paths == [f"{server.url}/simple/tiny-part/"]


def test_an_index_that_is_a_directory(tmp_path: Path) -> None:
    (tmp_path / "simple/tiny-part").mkdir(parents=True)
    (tmp_path / "simple/tiny-part/index.html").write_text(f'<a href="../../files/{WHEEL}#sha256=0">x</a>')
    sources = machine(pip=PipConfig(index_url=f"file://{tmp_path}/simple"))
    assert list(sources.here(a_wheel())) == [tmp_path / "files" / WHEEL]
    assert list(sources.offers(a_wheel())) == []


def test_pips_own_index_is_known_where_none_is_set() -> None:
    assert default_index().startswith("https://")
    assert len(machine(pip=PipConfig()).indexes) == 1


@pytest.mark.parametrize(
    ("kind", "address", "path"),
    [
        ("debian", "metis=5.1.0", "pool/main/m/metis/part.tgz"),
        ("debian", "libffi=3", "pool/main/libf/libffi/part.tgz"),
        ("deb", "pool/updates/main/g/gcc/part.tgz", "pool/updates/main/g/gcc/part.tgz"),
    ],
)
def test_apts_mirrors(
    server: FileServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: FileKind,
    address: str,
    path: str,
) -> None:
    apt = AptConfiguration(tmp_path, monkeypatch)
    apt.suite("file:/srv/debian", "bookworm")
    apt.suite(f"{server.url}/debian/", "bookworm")
    server.files[f"/debian/{path}"] = CONTENT
    [offer] = machine().offers(required_file(CONTENT, "part.tgz", kind, address))
    assert (offer.name, read(offer)) == (f"Debian mirror `{server.url}/debian`", CONTENT)


def test_a_mirror_with_a_signature_in_its_address(server: FileServer) -> None:
    server.files[f"/a/{SHA256}/{WHEEL}".replace("+", "%2B")] = CONTENT
    [offer] = machine(f"{server.url}/a/?key=canary").offers(a_wheel())
    assert (offer.name, read(offer)) == (f"mirror `{server.url}/a`", CONTENT)
    assert server.paths[0].endswith("?key=canary")


def test_a_page_may_contain_invalid_urls_and_other_files_of_the_name(server: FileServer) -> None:
    server.files[f"/f/{WHEEL}"] = CONTENT
    server.files["/simple/tiny-part/"] = (
        f'<a href="http://[x">x</a><a href="/g/{WHEEL}#sha256={"0" * 64}">x</a>'
        f'<a href="/f/{WHEEL}#sha256={SHA256}">x</a>'
    ).encode()
    [offer] = machine(pip=PipConfig(index_url=f"{server.url}/simple")).offers(a_wheel())
    assert read(offer) == CONTENT


def test_mirrors_are_asked_once_by_many_threads(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apt = AptConfiguration(tmp_path, monkeypatch)
    (apt.directory / "sources.list").write_text(f"deb {server.url}/debian x main\n")
    sources, barrier = machine(), threading.Barrier(4)

    def ask() -> None:
        barrier.wait()
        list(sources.offers(required_file(CONTENT, "t.deb", "deb", "pool/t.deb")))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.paths == ["/debian/dists/x/InRelease"]


def test_mirrors_that_do_not_answer_are_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apt, answered = AptConfiguration(tmp_path, monkeypatch), threading.Event()
    (apt.directory / "sources.list").write_text("deb http://never.example/debian x main\n")
    monkeypatch.setattr(debian_mirrors.DebianMirrors, "_label", lambda *_: str(answered.wait(60)))
    monkeypatch.setattr(sources, "_MIRROR_SECONDS", 0.2)
    [offer] = machine().offers(required_file(CONTENT, "t.deb", "deb", "pool/t.deb"))
    answered.set()
    assert (offer.name, refusal(offer)) == (
        "Debian mirrors",
        "the mirrors of apt's configuration did not answer within 0 s",
    )


def test_apts_own_logins(server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    apt = AptConfiguration(tmp_path, monkeypatch)
    apt.suite(f"{server.url}/debian", "x")
    (apt.directory / "auth.conf.d").mkdir()
    (apt.directory / "auth.conf.d/ours.conf").write_text(
        f"machine {server.url}/debian/ login me password word"
    )
    server.login = "me:word"
    server.files["/debian/pool/t.deb"] = CONTENT
    [offer] = machine().offers(required_file(CONTENT, "t.deb", "deb", "pool/t.deb"))
    assert read(offer) == CONTENT


@pytest.mark.parametrize(
    "address", ["http://u:canary/x@a.example/f", "http:///f", "http://m:80a", "http://[m"]
)
def test_an_invalid_mirror_url(address: str) -> None:
    assert not is_mirror(address)
    pip = PipConfig(index_url=address)
    [offer] = machine(pip=pip).offers(a_wheel())
    assert refusal(offer) == "its URL is invalid"
    assert "canary" not in offer.name + offer.place


def test_apts_settings_win_over_the_environments() -> None:
    own = ConnectionSettings(Proxies({"http": "http://environment"}, not_for="intern"), (Path("ca"),))
    environment = {
        "Acquire::http::Proxy": "http://apt",
        "Acquire::http::Proxy::deb.example": "DIRECT",
        "Acquire::https::CaInfo": "/etc/company.pem",
    }
    settings = apt_connection(environment, own)
    assert settings.proxies == Proxies(
        {"http": "http://apt", "https": "http://apt"}, {"deb.example": "DIRECT"}, "intern"
    )
    assert settings.certificates == (Path("/etc/company.pem"),)


@pytest.fixture
def bucket(moto: None) -> Any:
    client = boto3.client("s3", region_name="us-east-1")
    client.create_bucket(Bucket="our-mirror")
    return client


def test_a_mirror_in_s3(bucket: Any) -> None:
    file = a_wheel()
    bucket.put_object(Bucket="our-mirror", Key=f"team/{SHA256}/{WHEEL}", Body=CONTENT)
    [offer] = machine("s3://our-mirror/team").offers(file)
    with offer.open(0, "") as reply:
        assert (reply.start, reply.total, b"".join(reply.chunks())) == (0, len(CONTENT), CONTENT)
        validator = reply.validator
    with offer.open(2, validator) as reply:
        assert (reply.start, b"".join(reply.chunks())) == (2, CONTENT[2:])
    with offer.open(2, '"another"') as reply:
        assert (reply.start, b"".join(reply.chunks())) == (0, CONTENT)


def test_a_store_that_calls_itself_s3_and_knows_no_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    class Store:
        def get_object(self, **arguments: str) -> dict[str, object]:
            return {"Body": StreamingBody(io.BytesIO(CONTENT), len(CONTENT)), "ContentLength": len(CONTENT)}

    monkeypatch.setattr(S3Files, "_client", Store())
    with S3Files("s3://our-mirror").open("x", 2, "") as reply:
        assert (reply.start, reply.total, b"".join(reply.chunks())) == (0, len(CONTENT), CONTENT)


def test_a_mirror_in_s3_without_the_file_or_the_bucket(bucket: Any) -> None:
    sources = machine("s3://our-mirror", "s3://no-such-bucket/x")
    assert [refusal(offer) for offer in sources.offers(a_wheel())] == [
        "does not have the file",
        "the bucket does not exist",
    ]
