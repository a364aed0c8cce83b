"""Connections to servers: proxies, certificates and logins; messages contain no credentials."""

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from bakehouse.errors import EngineError
from bakehouse.fetch import checked_connection, connection, http_client
from bakehouse.fetch.connection import ConnectionSettings, Proxies, redacted
from bakehouse.fetch.faults import Fault, SourceError
from bakehouse.fetch.http_client import HttpClient
from tests.support.errors import raised
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
    error = raised(SourceError, read, web, url)
    assert CANARY not in repr(error)
    assert CANARY not in str(error.__cause__)
    return error.reason


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


METADATA = "169.254.169.254"
NOTATIONS = [
    *(METADATA, "2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "169.254.43518", "169.16689662"),
    *(
        "[::ffff:169.254.169.254]",
        "[64:ff9b::a9fe:a9fe]",
        "[2002:a9fe:a9fe::]",
        "[fe80::1]",
        "[fe80::1%25eth0]",
    ),
    *("[fd00:ec2::254]", "169.254.170.2", "169.254.0.1"),
]


@pytest.mark.parametrize("host", NOTATIONS)
def test_no_request_goes_to_a_metadata_service(server: FileServer, tmp_path: Path, host: str) -> None:
    reason = f"leads to `{host.strip('[]')}`, a link-local address"
    assert refusal(web(tmp_path), f"http://{host}/latest/meta-data/") == reason
    server.redirects["/file"] = f"http://{host}/latest/meta-data/"
    assert refusal(web(tmp_path), server.url + "/file") == reason
    proxied = web(tmp_path, proxies=Proxies({"http": server.url}))
    assert refusal(proxied, f"http://{host}/latest/meta-data/") == reason


def test_no_request_goes_to_a_name_of_a_metadata_service(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the connection shows the address of a name."""
    monkeypatch.setattr(checked_connection, "is_link_local", lambda host: host == "127.0.0.1")
    url = server.url.replace("127.0.0.1", "localhost") + "/file"
    assert refusal(web(tmp_path), url) == "leads to `127.0.0.1`, a link-local address"
    assert server.paths == []
    monkeypatch.undo()
    assert read(web(tmp_path), url) == b"content"


def test_a_redirect_does_not_leave_tls(server: FileServer, tmp_path: Path) -> None:
    certificate = company_certificate(tmp_path)
    with serving(certificate) as secure:
        secure.redirects["/file"] = server.url + "/file"
        client = web(tmp_path, certificates=(certificate,))
        assert refusal(client, secure.url + "/file") == "leads from https to `http://127.0.0.1`"
        assert server.paths == []
        server.redirects["/file"], secure.files["/there"] = secure.url + "/there", b"secure"
        assert read(client, server.url + "/file") == b"secure"


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        ("https://a.example/", "https://b.example/", ""),
        ("http://a.example/", "http://10.0.0.1/", ""),
        ("http://127.0.0.1:1/", "http://localhost:2/", ""),
        ("http://a.example/", "http://127.0.0.1:2375/", "leads to `127.0.0.1`, which is this machine"),
        ("http://a.example/", "http://LOCALHOST./", "leads to `localhost.`, which is this machine"),
        ("http://a.example/", "http://a.localhost/", "leads to `a.localhost`, which is this machine"),
        ("http://a.example/", "http://2130706433/", "leads to `2130706433`, which is this machine"),
        ("http://a.example/", "http://0/", "leads to `0`, which is this machine"),
        ("http://10.0.0.1/", "http://[::1]/", "leads to `::1`, which is this machine"),
        (
            "http://10.0.0.1/",
            "http://[::ffff:127.0.0.1]/",
            "leads to `::ffff:127.0.0.1`, which is this machine",
        ),
        ("https://a.example/", "HTTP://a.example/", "leads from https to `http://a.example`"),
    ],
)
def test_where_a_response_may_lead(source: str, target: str, reason: str) -> None:
    assert connection.refusal(source, target) == reason


def test_a_page_is_limited_while_it_is_read(server: FileServer, tmp_path: Path) -> None:
    server.files["/bomb"], server.packs = bytes(30_000_000), True
    tracemalloc.start()
    with web(tmp_path).open(server.url + "/bomb", accept="text/html") as page:
        start = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        with pytest.raises(SourceError, match=r"^answered with more than 1.0 MB$"):
            page.text(1_000_000)
    peak = tracemalloc.get_traced_memory()[1] - start
    tracemalloc.stop()
    assert peak < 4_000_000


def test_an_answer_that_trickles_is_given_up(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_client, "_REPLY_SECONDS", 0.1)
    server.pause = 0.05
    with web(tmp_path).open(server.url + "/file") as page, pytest.raises(SourceError) as caught:
        page.text(1000)
    assert caught.value.reason.startswith("sent ")
    assert caught.value.fault is Fault.SLOW
