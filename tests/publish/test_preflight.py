"""Questions to a registry before a build: login, repository and permission."""

import http.server
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bakehouse.catalog.project import ProjectSettings
from bakehouse.errors import BakehouseError, Diagnostic, PublishError, Reason, RegistryAuthError
from bakehouse.publish import preflight
from bakehouse.registry import destination
from bakehouse.registry.ecr import EcrRegistry
from bakehouse.registry.registry import Credentials, NamedRegistry, Registry
from tests.integration.ports import kept_port
from tests.support.errors import raised
from tests.support.proxy import Proxy, Reply, Request, error_body

ACCEPTED = Reply(202, {"Location": "/v2/bakehouse/churn/blobs/uploads/1"})


class StubEcr(EcrRegistry):
    """Amazon ECR without AWS."""

    def __init__(self, host: str, *, create: bool) -> None:
        super().__init__(host=host, region="eu-west-1", create=create)
        self.created: list[str] = []

    def credentials(self, *, renew: bool = False) -> Credentials:
        return Credentials("AWS", "secret")

    def principal(self) -> str:
        return "the AWS user `ada`"

    def create_repository(self, repository: str, moving_tag: str) -> None:
        if self._create:
            self.created.append(repository)
        else:
            super().create_repository(repository, moving_tag)


@pytest.fixture
def server() -> Iterator[Proxy]:
    with Proxy(1).running() as server:
        yield server


@pytest.fixture
def check(
    server: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., BakehouseError | None]:
    """Ask the server about images, and return the refusal."""

    def ask(
        upload: Reply, *images: str, ping: Reply | None = None, registry: Registry | None = None
    ) -> object:
        def answer(request: Request) -> Reply:
            if request.path == "/v2/":
                return ping or Reply(200, {"Docker-Distribution-Api-Version": "registry/2.0"}, b"{}")
            return upload if request.method == "POST" else Reply(204)

        server.answers[:] = [answer]
        named = registry or NamedRegistry(server.host, lambda _: Credentials("ci", "secret"))
        monkeypatch.setattr(destination, "registries", lambda *_, **__: (named,))
        try:
            preflight.check_access(ProjectSettings(tmp_path, ()), server.host, images or ("churn",))
        except BakehouseError as error:
            return error
        return None

    return ask  # type: ignore[return-value]


def test_each_repository_gets_an_upload_that_is_cancelled(
    server: Proxy, check: Callable[..., BakehouseError | None]
) -> None:
    assert check(ACCEPTED, "churn", "other") is None
    lines = sorted(f"{request.method} {request.path}" for request in server.requests)
    assert lines == [
        "DELETE /v2/bakehouse/churn/blobs/uploads/1",
        "DELETE /v2/bakehouse/churn/blobs/uploads/1",
        "GET /v2/",
        "POST /v2/bakehouse/churn/blobs/uploads/",
        "POST /v2/bakehouse/other/blobs/uploads/",
    ]


def test_a_login_that_is_not_accepted(server: Proxy, check: Callable[..., BakehouseError | None]) -> None:
    refused = Reply(401, {}, error_body("UNAUTHORIZED", "bad password"))
    error = check(ACCEPTED, ping=refused)

    assert isinstance(error, RegistryAuthError)
    assert error.diagnostics == (
        Diagnostic(
            f"`{server.host}` does not accept the credentials",
            reasons=(Reason("it answered docker's login `ci`: bad password"),),
            hint=f"run `docker login {server.host}`",
        ),
    )
    assert [request.method for request in server.requests if request.method == "POST"] == []


def test_a_login_that_may_not_push(server: Proxy, check: Callable[..., BakehouseError | None]) -> None:
    error = check(Reply(403, {}, error_body("DENIED", "requested access is denied")))

    assert isinstance(error, RegistryAuthError)
    assert error.diagnostics == (
        Diagnostic(
            f"not allowed to push to `{server.host}/bakehouse/churn`",
            reasons=(
                Reason("docker's login `ci` is valid but not authorized: requested access is denied"),
                Reason("nothing was built"),
            ),
            hint="use credentials with push permission",
        ),
    )


def test_every_image_is_reported(check: Callable[..., BakehouseError | None]) -> None:
    error = check(Reply(403, {}, error_body("DENIED", "no")), "one", "two")

    assert error is not None
    assert [diagnostic.message.rpartition("/")[2] for diagnostic in error.diagnostics] == ["one`", "two`"]


def test_a_registry_that_does_not_answer(server: Proxy, check: Callable[..., BakehouseError | None]) -> None:
    error = check(ACCEPTED, ping=Reply(0))

    assert isinstance(error, PublishError)
    [diagnostic] = error.diagnostics
    assert diagnostic.message == f"`{server.host}` does not answer"
    assert diagnostic.hint == "check that it runs and is reachable from here"


def test_another_server(server: Proxy, check: Callable[..., BakehouseError | None]) -> None:
    error = check(ACCEPTED, ping=Reply(200, {}, b"<html>"))

    assert error is not None
    assert error.diagnostics == (
        Diagnostic(f"`{server.host}` is not a registry", hint="check the host and its port"),
    )


def test_each_region_is_asked_for_the_login_and_an_upload(
    server: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(request: Request) -> Reply:
        if request.path == "/v2/":
            return Reply(200, {"Docker-Distribution-Api-Version": "registry/2.0"}, b"{}")
        return Reply(204) if request.method == "DELETE" else ACCEPTED

    server.answers[:] = [answer]
    regions = (StubEcr(server.host, create=False), StubEcr(server.host, create=False))
    monkeypatch.setattr(destination, "registries", lambda *_, **__: regions)
    preflight.check_access(ProjectSettings(tmp_path, ()), server.host, ["churn"])

    assert [request.method for request in server.requests] == ["GET", "POST", "DELETE"] * 2


def test_a_missing_repository_of_ecr(server: Proxy, check: Callable[..., BakehouseError | None]) -> None:
    missing = Reply(404, {}, error_body("NAME_UNKNOWN", "no repository"))
    error = check(missing, registry=StubEcr(server.host, create=False))

    assert error is not None
    assert error.diagnostics == (
        Diagnostic(
            f"there is no repository `bakehouse/churn` in `{server.host}`",
            hint="add `--create`, or ask the owner of the account to create it",
        ),
    )


def test_a_missing_repository_is_created_on_request(
    server: Proxy, check: Callable[..., BakehouseError | None]
) -> None:
    registry = StubEcr(server.host, create=True)
    missing = Reply(404, {}, error_body("NAME_UNKNOWN", "no repository"))
    # It is missing still, as the server is a stub.
    assert check(missing, registry=registry) is not None
    assert registry.created == ["bakehouse/churn"]


def test_the_port_of_the_local_registry(tmp_path: Path) -> None:
    with kept_port() as port:
        project = ProjectSettings(tmp_path, (), registry_port=port)
        preflight.check_access(project, "", ["churn"])
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    port = server.server_port
    error = raised(PublishError, preflight.check_access, replace(project, registry_port=port), "", ["churn"])
    server.shutdown()
    server.server_close()
    assert error.diagnostics[0].message == (f"port {port} of the local registry is used by another program")
