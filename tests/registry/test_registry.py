from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakehouse.errors import Diagnostic, PublishError, Reason
from bakehouse.fetch.faults import Fault, SourceError
from bakehouse.fetch.http_client import HttpRequest
from bakehouse.plan.model import ImageKey
from bakehouse.publish.tags import immutable_tag, is_release_of
from bakehouse.registry.registry import Credentials, NamedRegistry, open_client
from bakehouse.util.oci import check_names, is_loopback
from tests.support.errors import raised
from tests.support.file_server import basic, company_certificate, serving

KEY = ImageKey("7c1e44b0" * 8)


def test_a_tag_says_what_when_and_of_what() -> None:
    assert immutable_tag("mpi-cpu", date(2026, 1, 2), KEY) == "mpi-cpu-20260102-7c1e44b0"


@given(st.dates(min_value=date(1000, 1, 1)))
def test_releases_of_any_day_are_recognised(day: date) -> None:
    assert is_release_of(immutable_tag("mpi-cpu", day, KEY), "mpi-cpu", KEY)


@pytest.mark.parametrize(
    "tag",
    [
        "mpi-cpu",
        "mpi-cpu-20260102-00000000",
        "other-mpi-cpu-20260102-7c1e44b0",
        "mpi-cpu-2026010-7c1e44b0",
        "mpi-cpu-20260102-7c1e44b0-x",
    ],
)
def test_other_tags_are_not_taken_for_releases(tag: str) -> None:
    assert not is_release_of(tag, "mpi-cpu", KEY)


@pytest.mark.parametrize("host", ["127.0.0.1:5050", "127.9.9.9", "localhost", "localhost:5000", "[::1]:5000"])
def test_this_machine_is_asked_over_plain_http(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["registry.example.com", "10.0.0.1:5000", "localhost.example.com:5000"])
def test_others_are_not_this_machine(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize("repository", ["ab", "bakehouse/mpi-cpu", "a/b/c.d_e__f---g", "a" * 256])
def test_names_that_registries_take(repository: str) -> None:
    check_names("123456789012.dkr.ecr.eu-west-1.amazonaws.com", repository, "a", "_x", "A.b-c_" + "9" * 122)


@pytest.mark.parametrize("repository", ["a", "Upper/case", "a//b", "/a", "a/", "a..b", "a" * 257, "a b", ""])
def test_a_repository_that_registries_refuse(repository: str) -> None:
    assert raised(PublishError, check_names, "localhost:5000", repository).diagnostics == (
        Diagnostic(
            f"`{repository}` is not a valid repository name",
            reasons=(
                Reason(
                    "registries accept 2 to 256 characters: lower-case letters and digits, joined by `.`, "
                    "`_`, `-` or `/`"
                ),
            ),
        ),
    )


@pytest.mark.parametrize("tag", ["", "-a", ".a", "a b", "a/b", "a:b", "a" * 129, "ä"])
def test_a_tag_that_registries_refuse(tag: str) -> None:
    error = raised(PublishError, check_names, "localhost:5000", "bakehouse/mpi-cpu", "fine", tag)
    assert error.diagnostics == (
        Diagnostic(
            f"`{tag}` is not a valid tag",
            reasons=(
                Reason(
                    "registries accept at most 128 letters, digits, `.`, `_` and `-`, "
                    "not beginning with `.` or `-`"
                ),
            ),
        ),
    )


@pytest.mark.parametrize("host", ["https://registry.example.com", "registry.example.com/team", "a b", ""])
def test_an_invalid_address(host: str) -> None:
    assert raised(PublishError, check_names, host, "bakehouse/mpi-cpu").diagnostics == (
        Diagnostic(
            f"`{host}` is not a registry host",
            hint="write a host and, if needed, a port, as in `registry.example.com:5000`",
        ),
    )


def test_a_password_is_in_no_text() -> None:
    assert "hunter2" not in repr(Credentials("AWS", "hunter2"))


def test_a_named_registry_is_seen_as_dockers_login() -> None:
    registry = NamedRegistry("registry.example.com", lambda _: Credentials("ci", "hunter2"))
    assert registry.principal() == "docker's login `ci`"
    assert NamedRegistry("registry.example.com", lambda _: None).principal() == ""


def fault_of(url: str, ca: Path | None, host: str = "registry.example") -> Fault | None:
    """Send a request with the client of a registry; None for a response."""
    try:
        open_client(host, ca).send(HttpRequest("GET", url, 5.0, 5.0))
    except SourceError as error:
        return error.fault
    return None


def test_a_registry_is_trusted_by_the_same_certificates_as_downloads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    certificate = company_certificate(tmp_path)
    with serving(certificate) as server:
        assert fault_of(server.url, None) is Fault.CERTIFICATE
        assert fault_of(server.url, certificate) is None
        (tmp_path / "other").mkdir()
        monkeypatch.setenv("PIP_CERT", str(company_certificate(tmp_path / "other")))
        assert fault_of(server.url, None) is Fault.CERTIFICATE
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
        assert fault_of(server.url, None) is None


def test_a_registry_is_reached_through_the_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as server, serving() as proxy:
        server.files["/v2/"], proxy.is_proxy = b"{}", True
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("no_proxy", "")
        assert fault_of(f"{server.url}/v2/", None) is None
        assert proxy.paths == [f"{server.url}/v2/"]
        assert fault_of(f"{server.url}/v2/", None, "127.0.0.1:5050") is None
        assert proxy.paths == [f"{server.url}/v2/"]


def test_a_registry_without_a_login_gets_that_of_netrc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login ci password hunter2\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serving() as server:
        assert fault_of(f"{server.url}/v2/", None) is None
        assert server.requests[0][1]["Authorization"] == basic("ci:hunter2")
