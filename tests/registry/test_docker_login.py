import json
from pathlib import Path

import pytest

from bakehouse.errors import Diagnostic, RegistryAuthError
from bakehouse.registry.docker_login import docker_login
from bakehouse.registry.registry import Credentials

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


def test_a_login_is_found_through_dockers_helper(
    configured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper = tmp_path / "docker-credential-test"
    helper.write_text('#!/bin/sh\necho \'{"Username": "ci", "Secret": "hunter2"}\'\n')
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    configured.write_text(json.dumps({"credHelpers": {HOST: "test"}}))
    assert docker_login(HOST) == Credentials("ci", "hunter2")


def test_a_failing_helper_is_reported_without_its_output(
    configured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper = tmp_path / "docker-credential-test"
    helper.write_text("#!/bin/sh\necho hunter2\nexit 1\n")
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    configured.write_text(json.dumps({"credHelpers": {HOST: "test"}}))
    with pytest.raises(RegistryAuthError) as caught:
        docker_login(HOST)
    assert caught.value.diagnostics == (
        Diagnostic(
            f"cannot read docker's login for `{HOST}`: its credential helper is missing or failed",
            hint=f"check `credHelpers` and `credsStore` in docker's settings, or run `docker login {HOST}`",
        ),
    )
