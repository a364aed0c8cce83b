"""Fixtures for pytest: a registry, a proxy in front of it with configurable faults, and an ECR without AWS.

They need a container engine, and the packages moto[server] and testcontainers.
"""

import os
from collections.abc import Iterator

import pytest

from tests.support.ecr import EcrStub, ecr_stubs
from tests.support.proxy import Proxy
from tests.support.registry import registry_container, registry_image


def pytest_addoption(parser: pytest.Parser) -> None:
    """The one setting: whose registry answers."""
    parser.addini("registry_image", "the registry's image; empty is that of the local registry", default="")


@pytest.fixture(scope="session")
def registry_reference(pytestconfig: pytest.Config) -> str:
    """The image that registries here are started from."""
    return str(pytestconfig.getini("registry_image")) or registry_image()


@pytest.fixture(scope="session")
def registry_port(registry_reference: str) -> Iterator[int]:
    """The port of an open registry on 127.0.0.1; what is pushed there stays until the session ends."""
    with registry_container(registry_reference) as port:
        yield port


@pytest.fixture
def registry_proxy(registry_port: int) -> Iterator[Proxy]:
    """A proxy in front of `registry_port`, with an address of its own, which a test can tell to fail."""
    with Proxy(registry_port).running() as proxy:
        yield proxy


@pytest.fixture(scope="session")
def session_ecr(registry_reference: str) -> Iterator[EcrStub]:
    """An ECR for all tests of the session; `ecr_stub` is it, as new."""
    with ecr_stubs(registry_reference) as stub:
        yield stub


@pytest.fixture
def ecr_stub(session_ecr: EcrStub, monkeypatch: pytest.MonkeyPatch) -> Iterator[EcrStub]:
    """An ECR without AWS, which boto3 and the AWS CLI in this process's environment take for AWS.

    Repositories stay until the session ends: a test gives its own a name that no other has.
    """
    for name in os.environ:
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    for name, value in session_ecr.environment.items():
        monkeypatch.setenv(name, value)
    yield session_ecr
    session_ecr.reset()
