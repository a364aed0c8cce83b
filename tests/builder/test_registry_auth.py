"""Docker configuration of a build: the user's own, with logins to the registries of bases."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bakehouse.builder.registry_auth import docker_logins, ecr_logins, pulled_bases
from bakehouse.catalog.project import ProjectSettings
from bakehouse.errors import Reason, RegistryAuthError
from bakehouse.plan.model import RegistryBase
from bakehouse.registry import destination
from bakehouse.registry.registry import Credentials, NamedRegistry
from tests.support import fake_engine, plans

HOST = "763104351884.dkr.ecr.eu-west-1.amazonaws.com"
AWS = Credentials("AWS", "token-1")


@pytest.fixture
def docker(tmp_path: Path) -> Path:
    """Docker configuration directory of a user."""
    directory = tmp_path / ".docker"
    (directory / "contexts").mkdir(parents=True)
    return directory


def merged_config(docker: Path, config: object, messages: list[str] | None = None) -> dict[str, object]:
    """Return the configuration that docker reads."""
    docker.joinpath("config.json").write_text(json.dumps(config))
    environment = {"DOCKER_CONFIG": str(docker)}
    report = (messages if messages is not None else []).append
    state = docker.parent / "state"
    with docker_logins(
        [HOST], lambda _: AWS, state=state, report=report, environment=environment
    ) as variables:
        directory = Path(variables["DOCKER_CONFIG"])
        assert (directory / "config.json").stat().st_mode & 0o077 == 0
        assert (directory / "contexts").resolve() == docker / "contexts"
        assert variables["BUILDX_CONFIG"] == str(docker / "buildx")
        read = dict(json.loads((directory / "config.json").read_text()))
    assert list((state / "private").iterdir()) == []
    assert docker.joinpath("contexts").is_dir()
    return read


def test_the_user_s_own_logins_stay(docker: Path) -> None:
    own = {"auths": {"registry.example.com": {"auth": "eDp5"}}, "currentContext": "far"}
    assert merged_config(docker, own) == {
        "auths": {"registry.example.com": {"auth": "eDp5"}, HOST: {"auth": "QVdTOnRva2VuLTE="}},
        "currentContext": "far",
    }


def test_a_store_of_credentials_is_not_asked_for_what_is_in_the_file(docker: Path) -> None:
    config = merged_config(docker, {"credsStore": "desktop", "credHelpers": {"gcr.io": "gcloud"}})
    assert config["credHelpers"] == {"gcr.io": "gcloud", HOST: ""}
    assert config["credsStore"] == "desktop"


def test_a_helper_that_the_user_has_set_up_is_left_to_it(docker: Path) -> None:
    docker.joinpath("config.json").write_text(json.dumps({"credHelpers": {HOST: "ecr-login"}}))

    def never(host: str) -> Credentials:
        raise AssertionError(host)

    environment = {"DOCKER_CONFIG": str(docker)}
    with docker_logins(
        [HOST], never, state=docker.parent, report=print, environment=environment
    ) as variables:
        assert variables == {}


def test_without_a_login_the_build_goes_on_with_the_user_s_own(docker: Path) -> None:
    messages: list[str] = []

    def refuse(host: str) -> Credentials:
        raise RegistryAuthError("no AWS credentials were found", reasons=(Reason("nowhere"),))

    environment = {"DOCKER_CONFIG": str(docker)}
    with docker_logins(
        [HOST], refuse, state=docker.parent, report=messages.append, environment=environment
    ) as variables:
        assert variables == {}
    assert messages == [f"no login to the registry `{HOST}`: no AWS credentials were found; nowhere"]


def test_only_bases_in_ecr_are_logged_in_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = []

    @contextlib.contextmanager
    def registry(project: ProjectSettings, host: str, report: object) -> Iterator[NamedRegistry]:
        hosts.append(host)
        yield NamedRegistry(host, lambda _: AWS)

    monkeypatch.setattr(destination, "registry", registry)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    bases = (RegistryBase(f"{HOST}/pytorch-training:2.5", None), RegistryBase("nvidia/cuda:12.8", None))
    images = [plans.changed(fake_engine.image("a"), base=base) for base in bases]
    with ecr_logins(pulled_bases(images), ProjectSettings(tmp_path, ()), print) as variables:
        assert "DOCKER_CONFIG" in variables
    assert hosts == [HOST]
