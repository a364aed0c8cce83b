"""Connections to servers: proxies, certificates and logins; messages contain no credentials."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bakehouse.errors import EngineError
from bakehouse.fetch.connection import ConnectionSettings, Proxies, redacted
from bakehouse.fetch.faults import SourceError
from bakehouse.fetch.http_client import HttpClient
from tests.support.fake_commands import put
from tests.support.file_server import FileServer, basic, company_certificate, serving

CANARY = "canary-4711"


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serving() as server:
        server.files["/file"] = b"content"
        yield server


def read(web: HttpClient, url: str) -> bytes:
    with web.open(url) as page:
        return b"".join(page.chunks())


def refusal(web: HttpClient, url: str) -> str:
    with pytest.raises(SourceError) as caught:
        read(web, url)
    assert CANARY not in repr(caught.value)
    assert CANARY not in str(caught.value.__cause__)
    return caught.value.reason


def web(home: Path, **settings: object) -> HttpClient:
    return HttpClient(ConnectionSettings(**settings), {"HOME": str(home)})  # type: ignore[arg-type]


def with_login(url: str, login: str) -> str:
    return url.replace("//", f"//{login}@")


def test_a_login_in_the_address(server: FileServer, tmp_path: Path) -> None:
    server.login = f"user:{CANARY}@/x"
    assert read(web(tmp_path), with_login(server.url, f"user:{CANARY}%40%2Fx") + "/file") == b"content"
    assert server.paths == ["/file"]


def test_a_login_that_an_index_on_the_same_server_has(server: FileServer, tmp_path: Path) -> None:
    server.login = f"user:{CANARY}"
    index = with_login(server.url, server.login) + "/simple"
    assert read(web(tmp_path, addresses=(index,)), server.url + "/file") == b"content"


def test_a_login_of_netrc(server: FileServer, tmp_path: Path) -> None:
    server.login = f"user:{CANARY}"
    (tmp_path / ".netrc").write_text(f"machine 127.0.0.1 login user password {CANARY}\n")
    assert read(web(tmp_path), server.url + "/file") == b"content"


def test_a_login_of_a_keyring(server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.login = f"user:{CANARY}"
    commands = put(tmp_path, monkeypatch, keyring=f'[ "$*" = "get {server.url} user" ] && echo {CANARY}')
    client = HttpClient(ConnectionSettings(keyring=True), {"HOME": str(tmp_path), "PATH": str(commands)})
    assert read(client, with_login(server.url, "user") + "/file") == b"content"


def test_a_login_does_not_follow_to_another_server(server: FileServer, tmp_path: Path) -> None:
    with serving() as other:
        other.files["/there"] = b"moved"
        server.redirects["/file"] = other.url.replace("127.0.0.1", "localhost") + "/there"
        assert read(web(tmp_path), with_login(server.url, f"user:{CANARY}") + "/file") == b"moved"
    assert "Authorization" in server.requests[0][1]
    assert "Authorization" not in other.requests[0][1]


def test_a_login_holds_for_another_place_on_the_same_server(server: FileServer, tmp_path: Path) -> None:
    server.login = f"user:{CANARY}"
    server.files["/there"] = b"moved"
    server.redirects["/file"] = server.url + "/there"
    assert read(web(tmp_path), with_login(server.url, server.login) + "/file") == b"moved"


def test_each_server_of_a_redirect_is_reached_in_its_own_way(server: FileServer, tmp_path: Path) -> None:
    with serving() as other, serving() as proxy:
        proxy.is_proxy = True
        other.files["/there"] = b"moved"
        target = other.url.replace("127.0.0.1", "localhost") + "/there"
        server.redirects["/file"] = target
        proxies = Proxies({"http": proxy.url}, not_for="127.0.0.1")
        assert read(web(tmp_path, proxies=proxies), server.url + "/file") == b"moved"
        assert proxy.paths == [target]


def test_a_server_that_need_not_show_who_it_is_sends_to_none_that_needs_not_either(tmp_path: Path) -> None:
    with serving(company_certificate(tmp_path)) as server:
        server.redirects["/file"] = server.url.replace("127.0.0.1", "localhost") + "/there"
        reason = refusal(web(tmp_path, unchecked=("127.0.0.1",)), server.url + "/file")
    assert reason.startswith("its certificate is not trusted: ")


def test_redirects_without_an_end(server: FileServer, tmp_path: Path) -> None:
    server.redirects["/file"] = "/file"
    assert refusal(web(tmp_path), server.url + "/file") == "redirects too often"
    server.redirects["/file"] = f"http://[{CANARY}"
    assert refusal(web(tmp_path), server.url + "/file") == "its URL is invalid"


@pytest.mark.parametrize(
    "address", [f"http://u:{CANARY}/x@a.example/f", "http:///f", "http://[f", "file:///f"]
)
def test_an_invalid_server_url_shows_no_login(tmp_path: Path, address: str) -> None:
    assert refusal(web(tmp_path), address) == "its URL is invalid"
    assert CANARY not in redacted(address)


def test_a_proxy_whose_address_can_not_be_read_tells_no_login(server: FileServer, tmp_path: Path) -> None:
    proxies = Proxies({"http": f"http://u:{CANARY}/x@proxy.example"})
    assert refusal(web(tmp_path, proxies=proxies), server.url) == "the URL of its proxy is invalid"


def test_a_part_that_is_another_than_was_asked_for_is_not_taken(server: FileServer, tmp_path: Path) -> None:
    server.shift = 1
    with web(tmp_path).open(server.url + "/file", start=2) as page:
        assert (page.start, page.total, b"".join(page.chunks())) == (0, 7, b"content")


def test_a_part_of_the_rest(server: FileServer, tmp_path: Path) -> None:
    server.most = 3
    with web(tmp_path).open(server.url + "/file", start=2) as page:
        assert (page.start, page.total, b"".join(page.chunks())) == (2, 7, b"nte")


def test_a_page_may_come_packed_and_a_file_may_not(server: FileServer, tmp_path: Path) -> None:
    server.packs = True
    with web(tmp_path).open(server.url + "/file", accept="text/html") as page:
        assert page.text(100) == "content"
    assert read(web(tmp_path), server.url + "/file") == b"content"


@pytest.mark.parametrize(
    ("status", "reason"),
    [(401, "refused access (401)"), (404, "does not have the file"), (500, "answered with 500")],
)
def test_a_refusal_tells_no_login(server: FileServer, tmp_path: Path, status: int, reason: str) -> None:
    server.statuses = [status]
    assert refusal(web(tmp_path), with_login(server.url, f"u:{CANARY}") + f"/file?key={CANARY}") == reason


def test_what_can_not_be_reached_tells_no_login(tmp_path: Path) -> None:
    address = f"http://u:{CANARY}@127.0.0.1:9/file?key={CANARY}"
    assert refusal(web(tmp_path), address) == "is unreachable: connection refused"
    address = f"http://u:{CANARY}@nowhere.invalid/file?key={CANARY}"
    assert refusal(web(tmp_path), address) == "its host name cannot be resolved"


def test_a_proxy_with_credentials(server: FileServer, tmp_path: Path) -> None:
    with serving() as proxy:
        proxy.is_proxy, proxy.login = True, f"user:{CANARY}"
        address = with_login(proxy.url, proxy.login)
        client = web(tmp_path, proxies=Proxies({"http": address}))
        assert read(client, server.url + "/file") == b"content"
        assert proxy.requests[0][1]["Proxy-Authorization"] == basic(proxy.login)
        assert "Proxy-Authorization" not in server.requests[0][1]


def test_a_proxy_that_refuses_is_reported_without_its_login(server: FileServer, tmp_path: Path) -> None:
    with serving() as proxy:
        proxy.is_proxy, proxy.login = True, "user:other"
        address = with_login(proxy.url, f"user:{CANARY}")
        reason = refusal(web(tmp_path, proxies=Proxies({"http": address})), server.url + "/file")
        assert reason == "its proxy requires credentials (407)"
        https = web(tmp_path, proxies=Proxies({"https": address}))
        assert refusal(https, "https://index.example/file") == (f"its proxy `{proxy.url}` answered with 501")


def test_a_companys_certificate_is_trusted_where_it_is_named(tmp_path: Path) -> None:
    certificate = company_certificate(tmp_path)
    with serving(certificate) as server:
        server.files["/file"] = b"content"
        assert refusal(web(tmp_path), server.url + "/file").startswith("its certificate is not trusted: self")
        assert read(web(tmp_path, certificates=(certificate,)), server.url + "/file") == b"content"
        assert read(web(tmp_path, unchecked=("127.0.0.1",)), server.url + "/file") == b"content"
        port = server.url.rpartition(":")[2]
        assert read(web(tmp_path, unchecked=(f"127.0.0.1:{port}",)), server.url + "/file") == b"content"


def test_missing_certificates_are_named(server: FileServer, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"none\.pem` contains no readable certificates"):
        read(web(tmp_path, certificates=(tmp_path / "none.pem",)), server.url + "/file")
