"""A build whose base is in a registry that needs a token, as AWS's Deep Learning Containers are."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

import pytest

from bakehouse.builder.registry_auth import docker_logins
from bakehouse.engine import buildx
from bakehouse.errors import BuildError
from bakehouse.registry.ecr import EcrRegistry
from bakehouse.registry.registry import Credentials
from tests.integration.projects import Project
from tests.integration.tiny_images import built, upload
from tests.support.ecr import EcrStub

pytestmark = [pytest.mark.engine, pytest.mark.timeout(120)]


@pytest.fixture
def base(tmp_path: Path, ecr_stub: EcrStub) -> str:
    """A base in a private registry, of which the engine holds nothing under this address."""
    name = f"{tmp_path.name.replace('_', '-').rstrip('-')}/base"
    ecr_stub.client.create_repository(repositoryName=name)
    directory = tmp_path / "base"
    directory.mkdir()
    reference = f"{ecr_stub.host}/{name}"
    with built(directory, "base") as image:
        manifest = upload(image, EcrRegistry(host=ecr_stub.host), name, "1", tmp_path)
    ecr_stub.registry.expire_tokens()
    return f"{reference}@{manifest.digest}"


@pytest.fixture
def project(project: Project, base: str) -> Project:
    project.add("extended", f"FROM {base}\nCOPY added /\n", {"added": uuid4().hex})
    return project


def bake(project: Project, environment: Mapping[str, str]) -> dict[str, buildx.BakedImage]:
    return buildx.bake(
        [project.target("extended")],
        buildx.BakeOptions(
            project.root, project.root / "state", project.events.append, environment=environment
        ),
    )


@pytest.mark.parametrize("config", ["{}", '{"credsStore": "no-such-store"}'])
def test_a_base_behind_a_token_is_pulled_without_docker_login(
    project: Project, ecr_stub: EcrStub, tmp_path: Path, config: str
) -> None:
    own = tmp_path / "docker"
    own.mkdir()
    (own / "config.json").write_text(config)
    environment = {**os.environ, "DOCKER_CONFIG": str(own)}

    def login(host: str) -> Credentials:
        return EcrRegistry(host=host).credentials()

    state = tmp_path / "state"
    with docker_logins(
        [ecr_stub.host], login, state=state, report=print, environment=environment
    ) as variables:
        digests = bake(project, variables)

    assert digests.keys() == {"extended"}
    [token] = ecr_stub.registry.tokens - {old for old in ecr_stub.registry.tokens if " " in old}
    left = [path for path in tmp_path.rglob("*") if path.is_file() and token.encode() in path.read_bytes()]
    assert left == []
    assert (own / "config.json").read_text() == config
    history = subprocess.run(
        ["docker", "history", "--no-trunc", project.reference("extended")], capture_output=True, check=True
    )
    assert token.encode() not in history.stdout
    assert token not in str(project.events)


def test_without_the_login_the_registry_refuses(project: Project, tmp_path: Path) -> None:
    own = tmp_path / "docker"
    own.mkdir()
    with pytest.raises(BuildError):
        bake(project, {"DOCKER_CONFIG": str(own)})
