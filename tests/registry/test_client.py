"""Reading from registries that answer in every way that registries do; over HTTP, on loopback."""

import base64
import email.utils
import gzip
import json
import random
import re
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bakehouse.errors import Reason
from bakehouse.fetch.connection import ConnectionSettings
from bakehouse.fetch.faults import Fault
from bakehouse.fetch.http_client import HttpClient, HttpReply, HttpRequest, basic_authorization
from bakehouse.fetch.retry import Retries, RetryPolicy
from bakehouse.registry import client
from bakehouse.registry.client import Repository, may_ask_for_token
from bakehouse.registry.http_errors import RegistryError, error_in, without_secrets
from bakehouse.registry.manifest import DOCKER_MANIFEST, OCI_MANIFEST, digest_of
from bakehouse.registry.registry import Credentials
from bakehouse.registry.upload import Blob, Uploader
from bakehouse.util.oci import Digest
from tests.support.errors import raised
from tests.support.proxy import LOST, Proxy, Reply, Request, error_body

MANIFEST = json.dumps(
    {"schemaVersion": 2, "mediaType": DOCKER_MANIFEST, "config": None, "layers": []}
).encode()


@dataclass
class Server:
    """The registry as its client knows it, and as it answers."""

    proxy: Proxy
    passwords: list[str] = field(default_factory=lambda: ["first", "second"])
    renewed: int = 0
    http: HttpClient = field(default_factory=lambda: HttpClient(ConnectionSettings()))

    @property
    def host(self) -> str:
        return self.proxy.host

    @property
    def client(self) -> HttpClient:
        return self.http

    def credentials(self, *, renew: bool = False) -> Credentials | None:
        self.renewed += renew
        return Credentials("ci", self.passwords[min(self.renewed, len(self.passwords) - 1)])

    def create_repository(self, repository: str, moving_tag: str) -> None:
        raise AssertionError

    def principal(self) -> str:
        return "ci"

    def known_problems(self) -> tuple[Reason, ...]:
        return ()

    def pushed(self, repository: str, digest: Digest) -> str:
        return ""

    def answers(self, *replies: Reply | Callable[[Request], Reply]) -> None:
        """Give these answers one after another, the last one for ever."""
        rest = list(replies)

        def answer(request: Request) -> Reply:
            following = rest.pop(0) if len(rest) > 1 else rest[0]
            return following(request) if callable(following) else following

        self.proxy.answers[:] = [answer]

    @property
    def request_lines(self) -> list[str]:
        return [f"{request.method} {request.path}" for request in self.proxy.requests]

    def repository(self) -> Repository:
        return Repository(self, "bakehouse/mpi-cpu", RetryPolicy(attempts=3, pause=0.01, timeout=5))


@pytest.fixture
def server() -> Iterator[Server]:
    with Proxy(1).running() as proxy:
        yield Server(proxy)


def login_of(request: Request) -> str:
    kind, _, value = request.headers.get("Authorization", "").partition(" ")
    return base64.b64decode(value).decode() if kind == "Basic" else f"{kind} {value}"


def test_a_manifest_is_the_bytes_that_came(server: Server) -> None:
    server.answers(Reply(200, {"Content-Type": DOCKER_MANIFEST}, MANIFEST))
    manifest = server.repository().manifest("a-tag")
    assert manifest
    assert (manifest.content, manifest.digest) == (MANIFEST, digest_of(MANIFEST))
    assert server.request_lines == ["GET /v2/bakehouse/mpi-cpu/manifests/a-tag"]
    accepted = server.proxy.requests[0].headers["Accept"]
    assert DOCKER_MANIFEST in accepted
    assert OCI_MANIFEST in accepted


def test_a_tag_that_names_nothing(server: Server) -> None:
    server.answers(Reply(404, {}, error_body("MANIFEST_UNKNOWN", "manifest unknown")))
    assert server.repository().manifest("a-tag") is None


def test_an_answer_that_is_not_a_manifest(server: Server) -> None:
    server.answers(Reply(200, {}, b"<html>a captive portal</html>"))
    with pytest.raises(RegistryError, match="the response for `a-tag` is not a manifest"):
        server.repository().manifest("a-tag")


def test_tags_are_read_to_the_last_page(server: Server) -> None:
    link = {"Link": '</v2/bakehouse/mpi-cpu/tags/list?last=b&n=2>; rel="next"'}
    server.answers(Reply(200, link, b'{"tags": ["a", "b"]}'), Reply(200, {}, b'{"tags": ["c"]}'))
    assert server.repository().tags() == ("a", "b", "c")
    assert server.request_lines[1] == "GET /v2/bakehouse/mpi-cpu/tags/list?last=b&n=2"


def test_a_list_that_never_ends_is_refused(server: Server) -> None:
    link = {"Link": '</v2/bakehouse/mpi-cpu/tags/list>; rel="next"'}
    server.answers(Reply(200, link, b'{"tags": ["a"]}'))

    with pytest.raises(RegistryError, match="the list `/v2/bakehouse/mpi-cpu/tags/list` never ends"):
        server.repository().tags()


@pytest.mark.parametrize("tags", [b'"a"', b'["a", 3]', b'{"a": 1}', b"5"])
def test_an_answer_that_is_not_a_list_of_tags(server: Server, tags: bytes) -> None:
    server.answers(Reply(200, {}, b'{"tags": %s}' % tags))

    with pytest.raises(RegistryError, match="the response is not a list of tags"):
        server.repository().tags()


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"tags": [1e999]}', b'{"a": "\\ud800"}'])
def test_an_answer_that_python_cannot_read_is_not_json(server: Server, body: bytes) -> None:
    server.answers(Reply(200, {}, body))

    with pytest.raises(RegistryError, match="the response is not a JSON object"):
        server.repository().tags()


@pytest.mark.timeout(20)
def test_a_long_challenge_is_read_fast(server: Server) -> None:
    server.answers(Reply(401, {"WWW-Authenticate": "Bearer " + "a" * 60_000}, b""))

    with pytest.raises(RegistryError):
        server.repository().tags()


def test_a_repository_without_tags(server: Server) -> None:
    server.answers(Reply(200, {}, b'{"name": "bakehouse/mpi-cpu", "tags": null}'))
    assert server.repository().tags() == ()


def test_a_missing_repository_is_reported_with_the_code_of_the_registry(server: Server) -> None:
    server.answers(Reply(404, {}, error_body("NAME_UNKNOWN", "repository name not known to registry")))
    error = raised(RegistryError, server.repository().tags)
    assert (error.status, error.code, error.text) == (
        404,
        "NAME_UNKNOWN",
        "repository name not known to registry",
    )


@pytest.mark.parametrize("trouble", [Reply(500), Reply(503), Reply(429), LOST])
def test_a_passing_trouble_is_outlasted(server: Server, trouble: Reply) -> None:
    server.answers(trouble, trouble, Reply(200, {}, b'{"tags": ["a"]}'))
    assert server.repository().tags() == ("a",)


def test_a_lasting_trouble_ends_after_some_attempts(server: Server) -> None:
    server.answers(Reply(503))
    with pytest.raises(RegistryError, match="HTTP 503 Service Unavailable"):
        server.repository().tags()
    assert len(server.request_lines) == 3


def test_what_is_forbidden_is_not_asked_again(server: Server) -> None:
    server.answers(Reply(403, {}, error_body("DENIED", "not yours")))
    with pytest.raises(RegistryError, match="not yours"):
        server.repository().tags()
    assert (len(server.request_lines), server.renewed) == (1, 0)


@pytest.mark.parametrize(
    "refusal", [Reply(401), Reply(403, {}, error_body("DENIED", "Your authorization token has expired."))]
)
def test_an_old_login_is_renewed_once(server: Server, refusal: Reply) -> None:
    server.answers(refusal, Reply(200, {}, b'{"tags": []}'))
    server.repository().tags()
    assert [login_of(request) for request in server.proxy.requests] == ["ci:first", "ci:second"]


def test_a_login_that_is_refused_twice_is_refused(server: Server) -> None:
    server.answers(Reply(401))
    assert raised(RegistryError, server.repository().tags).status == 401
    assert (len(server.request_lines), server.renewed) == (2, 1)


def test_a_registry_that_wants_a_token_of_its_own_gets_it(server: Server) -> None:
    def answer(request: Request) -> Reply:
        if request.path.startswith("/token?"):
            return Reply(200, {}, b'{"token": "t0ken"}')
        if login_of(request) == "Bearer t0ken":
            return Reply(200, {}, b'{"tags": ["a"]}')
        challenge = f'Bearer realm="http://{server.host}/token",service="it",scope="repository:x:pull"'
        return Reply(401, {"WWW-Authenticate": challenge})

    server.answers(answer)
    repository = server.repository()
    assert repository.tags() == ("a",)
    assert repository.tags() == ("a",)
    assert server.request_lines[1] == "GET /token?service=it&scope=repository%3Ax%3Apull"
    assert login_of(server.proxy.requests[1]) == "ci:first"
    assert len(server.request_lines) == 4


@pytest.mark.parametrize("content", [b"<html>", b"[]"])
def test_tags_that_are_not_json_are_reported(server: Server, content: bytes) -> None:
    server.answers(Reply(200, {}, content))
    with pytest.raises(RegistryError, match="the response is not a JSON object"):
        server.repository().tags()


def test_a_token_that_is_not_json_is_reported(server: Server) -> None:
    challenge = f'Bearer realm="http://{server.host}/token"'
    server.answers(Reply(401, {"WWW-Authenticate": challenge}), Reply(200, {}, b"<html>"))
    with pytest.raises(RegistryError, match="the response is not a JSON object"):
        server.repository().tags()


def test_a_blob_is_checked_against_its_digest(server: Server) -> None:
    server.answers(Reply(200, {}, b"content"))
    assert server.repository().blob(digest_of(b"content")) == b"content"
    with pytest.raises(RegistryError, match="has another digest"):
        server.repository().blob(digest_of(b"other content"))


def test_a_blob_on_another_host_is_fetched_without_the_login(server: Server) -> None:
    """ECR answers with a signed address of S3."""
    with Proxy(1).running() as storage:
        storage.answers.append(lambda _: Reply(200, {}, b"content"))
        signed = f"http://{storage.host}/blob?X-Amz-Signature=abc"
        server.answers(Reply(307, {"Location": signed}))
        assert server.repository().blob(digest_of(b"content")) == b"content"
        assert "Authorization" not in storage.requests[0].headers


def test_an_upload_that_is_let_in_is_given_up(server: Server) -> None:
    location = "/v2/bakehouse/mpi-cpu/blobs/uploads/1"
    server.answers(Reply(202, {"Location": location}), Reply(204))
    assert server.repository().refusal() is None
    assert server.request_lines == ["POST /v2/bakehouse/mpi-cpu/blobs/uploads/", f"DELETE {location}"]


def test_an_upload_that_is_refused_gives_the_reason(server: Server) -> None:
    server.answers(Reply(403, {}, error_body("DENIED", "read only")))
    refusal = server.repository().refusal()
    assert refusal
    assert refusal.text == "read only"


def test_passwords_and_signatures_are_not_printed() -> None:
    text = 'Get "https://s3.example.com/x?X-Amz-Signature=abc&y=z": denied for AWS:hunter2\n'
    redacted = without_secrets(text, Credentials("AWS", "hunter2"))
    assert redacted == 'Get "https://s3.example.com/x": denied for AWS:***'


def test_a_login_that_a_registry_repeats_is_not_printed(server: Server) -> None:
    server.passwords = ["hunter+2"]
    encoded = base64.b64encode(b"ci:hunter+2").decode()
    server.answers(Reply(403, {}, error_body("DENIED", f"Basic {encoded} is not hunter%2B2")))

    refusal = server.repository().refusal()

    assert refusal
    assert refusal.text == "Basic *** is not ***"


BLOB = digest_of(b"content")


@pytest.mark.parametrize(
    ("reply", "is_there"),
    [
        (Reply(200, {"Content-Length": "7"}), True),
        (Reply(200, {"Content-Length": "6"}), False),
        (Reply(404), False),
        (Reply(307, {"Location": "http://127.0.0.1:1/elsewhere", "Content-Length": "0"}), True),
        (Reply(301, {"Location": "http://127.0.0.1:1/another-registry"}), False),
    ],
    ids=["there", "cut short", "not there", "elsewhere", "moved"],
)
def test_a_blob_is_looked_for_without_being_read(server: Server, reply: Reply, is_there: bool) -> None:
    server.answers(reply)
    assert server.repository().has_blob(BLOB, 7) is is_there
    assert server.request_lines == [f"HEAD /v2/bakehouse/mpi-cpu/blobs/{BLOB}"]


def test_the_registry_says_when_to_come_back(server: Server) -> None:
    server.answers(Reply(429, {"Retry-After": "1"}), Reply(200, {}, b'{"tags": ["a"]}'))
    began = time.monotonic()
    assert server.repository().tags() == ("a",)
    assert time.monotonic() - began >= 1.0


def test_a_time_to_come_back_may_be_a_date(server: Server) -> None:
    then = email.utils.formatdate(time.time() + 100, usegmt=True)
    server.answers(Reply(503, {"Retry-After": then}))
    retry_policy = RetryPolicy(attempts=3, until=time.monotonic() + 20)
    error = raised(RegistryError, Repository(server, "bakehouse/mpi-cpu", retry_policy).tags)
    assert 90 < error.retry_after <= 100
    assert len(server.request_lines) == 1


def test_a_full_disk_is_reported(server: Server) -> None:
    detail = b'{"DriverName":"filesystem","Enclosed":{"Op":"mkdir","Path":"/x","Err":28}}'
    server.answers(
        Reply(500, {}, b'{"errors":[{"code":"UNKNOWN","message":"unknown error","detail":%s}]}' % detail)
    )
    with pytest.raises(RegistryError, match=r"^unknown error: no space left on device$"):
        server.repository().tags()


def test_retries_are_reported(server: Server) -> None:
    server.answers(LOST, Reply(429, {"Retry-After": "1"}), Reply(200, {}, b'{"tags": ["a"]}'))
    messages: list[str] = []
    Repository(server, "bakehouse/mpi-cpu", RetryPolicy(attempts=3, pause=0.01), messages.append).tags()
    assert messages == [
        f"{server.host} failed, retrying: closed the connection",
        f"{server.host} failed, retrying in 1 s: HTTP 429 Too Many Requests",
    ]


def test_the_reason_for_a_missing_answer_is_reported(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Server, "host", "127.0.0.1:1")
    with pytest.raises(RegistryError, match=r"^is unreachable: connection refused$"):
        server.repository().tags()


def test_an_unknown_host_name_is_not_retried(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Server, "host", "registry.invalid")
    messages: list[str] = []
    with pytest.raises(RegistryError) as caught:
        Repository(server, "bakehouse/mpi-cpu", RetryPolicy(), messages.append).tags()
    assert (caught.value.fault, messages) == (Fault.NAME, [])


def test_an_upload_that_goes_elsewhere_goes_there_without_the_login(server: Server) -> None:
    with Proxy(1).running() as elsewhere:
        realm = f'Bearer realm="http://{elsewhere.host}/token"'
        elsewhere.answers.append(lambda _: Reply(401, {"WWW-Authenticate": realm}))
        server.answers(Reply(202, {"Location": f"http://{elsewhere.host}/upload?signed=abc"}))
        assert server.repository().refusal() is None
        assert {(request.method, login_of(request)) for request in elsewhere.requests} == {("DELETE", " ")}


@pytest.mark.parametrize("location", ["https://{host}/upload", "http://{host}:abc/upload"])
def test_a_login_goes_over_no_other_scheme_and_to_no_other_port(server: Server, location: str) -> None:
    sent: list[object] = []
    repository = server.repository()
    exchange = repository._exchange

    def note(request: HttpRequest) -> HttpReply:
        sent.append(request.authorization)
        return exchange(request)

    server.answers(Reply(202, {"Location": location.format(host=server.host)}))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(repository, "_exchange", note)
        assert repository.refusal() is None
    assert sent[0] == basic_authorization("ci", "first")
    assert set(sent[1:]) == {""}


def test_an_upload_at_the_registry_itself_has_the_login(server: Server) -> None:
    server.answers(Reply(202, {"Location": f"http://{server.host}/upload"}), Reply(204))
    assert server.repository().refusal() is None
    assert [login_of(request) for request in server.proxy.requests] == ["ci:first", "ci:first"]


def test_a_refusal_without_words_may_be_of_an_old_login(server: Server) -> None:
    """Responses to HEAD have no content."""
    server.answers(Reply(403), Reply(200, {"Content-Length": "7"}))
    assert server.repository().has_blob(BLOB, 7)
    assert [login_of(request) for request in server.proxy.requests] == ["ci:first", "ci:second"]


def test_a_digest_that_no_header_tells_is_that_of_the_manifest(server: Server) -> None:
    server.answers(Reply(200, {"Content-Type": DOCKER_MANIFEST}, MANIFEST))
    assert server.repository().digest_of("a-tag") == digest_of(MANIFEST)
    assert [request.partition(" ")[0] for request in server.request_lines] == ["HEAD", "GET"]


def test_a_manifest_is_checked_against_the_digest_that_it_was_asked_by(server: Server) -> None:
    server.answers(Reply(200, {"Content-Type": DOCKER_MANIFEST}, MANIFEST))
    assert server.repository().manifest(digest_of(MANIFEST))
    with pytest.raises(RegistryError, match=f"the response for {BLOB} has another digest"):
        server.repository().manifest(BLOB)


def challenge_of(realm: str) -> Reply:
    return Reply(401, {"WWW-Authenticate": f'Bearer realm="{realm}",service="it"'})


@pytest.mark.parametrize(
    "realm", ["http://{other}/token", "http://localhost:{port}/token", "", "//{other}/token"]
)
def test_no_other_server_gets_the_password_for_a_token(server: Server, realm: str) -> None:
    with Proxy(1).running() as other:
        other.answers.append(lambda _: Reply(200, {}, b'{"token": "x"}'))
        server.answers(challenge_of(realm.format(other=other.host, port=other.host.rpartition(":")[2])))
        with pytest.raises(
            RegistryError, match=r"^its token server `.*` is not its own, and gets no password$"
        ):
            server.repository().tags()
        assert other.requests == []


@pytest.mark.parametrize(
    ("registry", "realm"),
    [
        ("registry-1.docker.io", "https://auth.docker.io/token"),
        ("registry.gitlab.com", "https://gitlab.com/jwt/auth"),
        ("registry.company.example", "https://gitlab.company.example:8443/jwt/auth"),
        ("registry.eu.company.example", "https://auth.company.example/token"),
        ("ghcr.io", "https://ghcr.io/token"),
        ("harbor.company.co.uk:8443", "https://harbor.company.co.uk/service/token"),
        ("10.0.0.1:5000", "https://10.0.0.1:5001/auth"),
    ],
)
def test_the_token_server_of_a_domain_gets_the_password(registry: str, realm: str) -> None:
    assert may_ask_for_token(f"https://{registry}/v2/", realm, has_password=True)


@pytest.mark.parametrize(
    ("registry", "realm"),
    [
        ("registry.company.example", "http://registry.company.example/token"),
        ("registry.company.example", "https://evil.example/token"),
        ("registry.company.example", "https://company.example.evil.example/token"),
        ("registry.company.example", "https://registry.company.example@evil.example/token"),
        ("company.co.uk", "https://evil.co.uk/token"),
        ("registry.co.uk", "https://evil.co.uk/token"),
        ("10.0.0.1", "https://10.0.0.2/token"),
        ("10.0.0.1", "https://2.0.0.1/token"),
        ("[fd00::1]", "https://[fd00::2]/token"),
        ("registry.company.example", "https://registry/token"),
        ("registry", "https://company/token"),
        ("registry.company.example", "ftp://registry.company.example/token"),
        ("registry.company.example", "https://[/token"),
    ],
)
def test_a_token_server_elsewhere_gets_no_password(registry: str, realm: str) -> None:
    assert not may_ask_for_token(f"https://{registry}/v2/", realm, has_password=True)


def test_a_token_without_a_password_may_come_from_elsewhere_over_tls() -> None:
    registry = "https://registry.company.example/v2/"
    assert may_ask_for_token(registry, "https://auth.example/token", has_password=False)
    for realm in ("http://auth.example/token", "https://127.0.0.1/token", "https://169.254.169.254/token"):
        assert not may_ask_for_token(registry, realm, has_password=False)


def test_a_manifest_is_checked_against_the_digest_that_its_response_states(server: Server) -> None:
    headers = {"Content-Type": DOCKER_MANIFEST, "Docker-Content-Digest": BLOB}
    server.answers(Reply(200, headers, MANIFEST))
    with pytest.raises(RegistryError, match=r"^the response for latest has another digest$"):
        server.repository().manifest("latest")


@pytest.mark.parametrize("stated", [BLOB, "sha256:abc", "", "x" * 100])
def test_a_digest_that_is_stated_for_another_one_is_not_believed(server: Server, stated: str) -> None:
    manifest = Reply(200, {"Content-Type": DOCKER_MANIFEST}, MANIFEST)
    server.answers(Reply(200, {**manifest.headers, "Docker-Content-Digest": stated}), manifest)
    assert server.repository().digest_of(digest_of(MANIFEST)) == digest_of(MANIFEST)


BOMB = gzip.compress(bytes(40_000_000))


@pytest.mark.parametrize(
    ("encoding", "body", "message"),
    [
        ("gzip", BOMB, "answered with more than 4.2 MB"),
        ("", bytes(5_000_000), "answered with more than 4.2 MB"),
        ("deflate", BOMB, "answered in the encoding `deflate`, which was not requested"),
        ("gzip, gzip", BOMB, "answered in the encoding `gzip, gzip`, which was not requested"),
        ("zstd", BOMB, "answered in the encoding `zstd`, which was not requested"),
        ("gzip", BOMB[:-9], "answered with more than 4.2 MB"),
        ("gzip", b"no gzip", "closed the connection"),
    ],
)
@pytest.mark.parametrize("status", [200, 500])
def test_an_answer_is_limited_while_it_is_read(
    server: Server, encoding: str, body: bytes, message: str, status: int
) -> None:
    """A response of 0.7 MB took 1.4 GB of memory."""
    server.answers(Reply(status, {"Content-Encoding": encoding} if encoding else {}, body))
    tracemalloc.start()
    with pytest.raises(RegistryError, match=f"^{re.escape(message)}$"):
        server.repository().manifest("latest")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16_000_000


def test_a_list_of_tags_is_limited_in_all(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_MAX_LIST_BYTES", 100)
    page = json.dumps({"tags": ["a" * 40]}).encode()
    server.answers(
        *(Reply(200, {"Link": f'<tags/list?last={number}>; rel="next"'}, page) for number in range(9)),
        Reply(200, {}, page),
    )
    with pytest.raises(RegistryError, match=r"^the list `tags/list\?last=1` never ends$"):
        server.repository().tags()


def test_no_time_to_come_back_is_waited_for_without_end(server: Server) -> None:
    server.answers(Reply(429, {"Retry-After": "86400"}))
    began = time.monotonic()
    error = raised(RegistryError, Repository(server, "bakehouse/mpi-cpu", RetryPolicy()).tags)
    assert time.monotonic() - began < 5
    assert error.retry_after == 86400


@pytest.mark.parametrize("text", ["9" * 400, "-1", "1e9", "Thu, 01 Jan 9999 00:00:00 -0000", "x", "\u0663"])
def test_a_time_to_come_back_may_be_anything(text: str) -> None:
    error = error_in(HttpReply(429, "", {"Retry-After": text}, b""), None)
    assert not Retries(RetryPolicy(until=time.monotonic() - 1)).add(may_pass=True, at_least=error.retry_after)


@pytest.mark.parametrize("has_ranges", [True, False])
def test_a_blob_is_written_while_it_is_received(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_ranges: bool
) -> None:
    monkeypatch.setattr(client, "_PART_BYTES", 3_000_000)
    content = random.Random(1).randbytes(8_000_000)

    def answer(request: Request) -> Reply:
        first, last = map(int, request.headers["Range"].removeprefix("bytes=").split("-"))
        if not has_ranges:
            return Reply(200, {}, content)
        return Reply(206, {"Content-Range": f"bytes {first}-{last}/8000000"}, content[first : last + 1])

    # The second part is cut off, and sent again
    first: tuple[Reply | Callable[[Request], Reply], ...] = (answer, LOST) if has_ranges else ()
    server.answers(*first, answer)
    server.repository().download(digest_of(content), len(content), tmp_path / "blob")
    assert (tmp_path / "blob").read_bytes() == content
    assert len(server.request_lines) == (4 if has_ranges else 1)


def test_a_blob_is_no_larger_than_stated(server: Server, tmp_path: Path) -> None:
    server.answers(Reply(200, {}, b"content"))
    with pytest.raises(RegistryError, match=r"^answered with more than 6 bytes$"):
        server.repository().download(BLOB, 6, tmp_path / "blob")


@pytest.mark.parametrize("host", ["169.254.169.254", "[fd00:ec2::254]"])
def test_no_upload_goes_to_a_metadata_service(server: Server, host: str) -> None:
    server.answers(Reply(202, {"Location": f"http://{host}/latest/meta-data/"}))
    with pytest.raises(RegistryError, match=r"^leads to `[0-9a-f.:]+`, a link-local address$"):
        Uploader(server.repository()).upload(Blob(BLOB, 7, b"content"))
