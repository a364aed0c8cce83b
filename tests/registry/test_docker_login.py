import json
from pathlib import Path

import pytest

from bakehouse.errors import Diagnostic, RegistryAuthError
from bakehouse.registry.destination import docker_login
from bakehouse.registry.registry import Credentials
from tests.support.errors import raised

HOST = "registry.example.com"


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Docker's own configuration, in a directory of the test's."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    return tmp_path / "config.json"


def test_without_a_login_there_are_no_credentials(configured: Path) -> None:
    assert docker_login(HOST) is None


def test_a_login_is_found_in_dockers_file(configured: Path) -> None:
    configured.write_text(json.dumps({"auths": {HOST: {"auth": "Y2k6aHVudGVyMg=="}}}))
    assert docker_login(HOST) == Credentials("ci", "hunter2")
    assert docker_login("another.example.com") is None


def test_a_login_is_found_through_dockers_helper(configured: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_helper(configured.parent, '{"Username": "ci", "Secret": "hunter2"}', monkeypatch)
    assert docker_login(HOST) == Credentials("ci", "hunter2")


def test_a_failing_helper_is_reported_without_its_output(
    configured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_helper(configured.parent, "hunter2", monkeypatch, code=1)
    assert raised(RegistryAuthError, docker_login, HOST).diagnostics == (
        Diagnostic(
            f"cannot read docker's login for `{HOST}`: its credential helper is missing or failed",
            hint=f"check `credHelpers` and `credsStore` in docker's settings, or run `docker login {HOST}`",
        ),
    )


def use_helper(directory: Path, output: str, monkeypatch: pytest.MonkeyPatch, code: int = 0) -> None:
    helper = directory / "docker-credential-test"
    helper.write_text(f"#!/bin/sh\necho '{output}'\nexit {code}\n")
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", str(directory), prepend=":")
    (directory / "config.json").write_text(json.dumps({"credHelpers": {HOST: "test"}}))


INVALID = Diagnostic(
    f"cannot read docker's login for `{HOST}`: invalid settings or output of its helper",
    hint=f"check `auths` and the credential helper in docker's settings, or run `docker login {HOST}`",
)


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        json.dumps({"auths": {HOST: {"auth": ""}}}),
        json.dumps({"auths": {"other.example.com": {"auth": "bm9jb2xvbg=="}}}),
    ],
    ids=["list", "empty", "without colon"],
)
def test_settings_that_docker_cannot_read_are_reported(configured: Path, content: str) -> None:
    configured.write_text(content)
    assert raised(RegistryAuthError, docker_login, HOST).diagnostics == (INVALID,)


@pytest.mark.parametrize("output", ["not JSON", "{}"])
def test_a_helper_that_prints_something_else_is_reported(
    configured: Path, output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_helper(configured.parent, output, monkeypatch)
    assert raised(RegistryAuthError, docker_login, HOST).diagnostics == (INVALID,)


@pytest.mark.parametrize("source", ["file", "helper"])
def test_an_identity_token_is_reported(
    configured: Path, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if source == "helper":
        use_helper(configured.parent, '{"Username": "<token>", "Secret": "secret"}', monkeypatch)
    else:
        configured.write_text(json.dumps({"auths": {HOST: {"auth": "MDAwOg==", "identitytoken": "secret"}}}))
    assert raised(RegistryAuthError, docker_login, HOST).diagnostics == (
        Diagnostic(
            f"docker's login for `{HOST}` is an identity token, which Bakehouse does not support",
            hint=f"log in with a user name and a password or access token: `docker login {HOST}`",
        ),
    )
