"""Registries that `--registry` names, before any request."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from bakehouse.catalog.project import ProjectSettings
from bakehouse.catalog.registry_settings import RegistrySettings
from bakehouse.errors import Diagnostic, PublishError, UsageError
from bakehouse.pipeline import publish
from bakehouse.plan.workspace import Selection, Workspace
from bakehouse.publish.options import PublishOptions
from bakehouse.registry.destination import Destination, check_selection, destination
from bakehouse.registry.ecr import EcrRegistry
from bakehouse.registry.registry import NamedRegistry
from tests.support.errors import raised

ACCOUNT = "123456789012"
EU = f"{ACCOUNT}.dkr.ecr.eu-west-1.amazonaws.com"
TEAM = RegistrySettings(
    "team", account=ACCOUNT, regions=("eu-west-1", "us-east-1"), prefix="ml", profile="ci", scan="HIGH"
)


@pytest.fixture
def project(tmp_path: Path) -> ProjectSettings:
    own = RegistrySettings("own", host="registry.example.com:5000", prefix="images")
    return ProjectSettings(tmp_path, (), registry="team", registries={"team": TEAM, "own": own})


def resolved(project: ProjectSettings, to: str) -> Destination:
    with destination(project, to, print) as target:
        return target


def hosts(target: Destination) -> Sequence[str]:
    return [registry.host for registry in target.registries]


@pytest.mark.parametrize("to", ["team", ""])
def test_a_registry_of_the_settings_has_an_address_in_each_region(project: ProjectSettings, to: str) -> None:
    target = resolved(project, to)
    assert hosts(target) == [EU, f"{ACCOUNT}.dkr.ecr.us-east-1.amazonaws.com"]
    assert (target.prefix, target.scan) == ("ml", "HIGH")


@pytest.mark.parametrize(
    ("to", "host", "prefix"),
    [
        ("team/other", EU, "other"),
        (f"{EU}/team/deep", EU, "team/deep"),
        ("registry.example.com:5000", "registry.example.com:5000", "bakehouse"),
        ("own", "registry.example.com:5000", "images"),
        ("own/more", "registry.example.com:5000", "more"),
        ("localhost:5000/x", "localhost:5000", "x"),
    ],
)
def test_a_prefix_may_follow(project: ProjectSettings, to: str, host: str, prefix: str) -> None:
    target = resolved(project, to)
    assert (hosts(target)[0], target.prefix) == (host, prefix)


def test_an_address_of_the_settings_is_reached_as_they_say(project: ProjectSettings) -> None:
    [registry] = resolved(project, f"{EU}/team").registries
    assert isinstance(registry, EcrRegistry)
    assert registry.aws.access.profile == "ci"

    [other] = resolved(project, "210987654321.dkr.ecr.eu-west-1.amazonaws.com/team").registries
    assert isinstance(other, EcrRegistry)
    assert other.aws.access.profile == ""


def test_other_hosts_are_known_by_docker_s_login(project: ProjectSettings) -> None:
    [registry] = resolved(project, "registry.example.com/team").registries
    assert isinstance(registry, NamedRegistry)


@pytest.mark.parametrize(
    ("to", "diagnostic"),
    [
        ("teem", Diagnostic("there is no registry `teem`", hint="did you mean `team`?")),
        (
            "elsewhere",
            Diagnostic("there is no registry `elsewhere`", hint="use one of `ecr`, `local`, `own`, `team`"),
        ),
    ],
)
def test_an_invalid_name(project: ProjectSettings, to: str, diagnostic: Diagnostic) -> None:
    assert raised(UsageError, resolved, project, to).diagnostics == (diagnostic,)


def test_a_misspelled_region_is_reported_before_any_request(project: ProjectSettings) -> None:
    error = raised(PublishError, resolved, project, f"{ACCOUNT}.dkr.ecr.eu-wset-1.amazonaws.com/team")
    assert error.diagnostics == (
        Diagnostic("unknown AWS region `eu-wset-1`", hint="did you mean `eu-west-1`?"),
    )


def test_a_mistake_in_one_table_does_not_keep_another_from_being_used(project: ProjectSettings) -> None:
    wrong = RegistrySettings("wrong", account=ACCOUNT, regions=("eu-wst-1",))
    project = replace(project, registries={"wrong": wrong, **project.registries})
    assert hosts(resolved(project, EU)) == [EU]
    with pytest.raises(PublishError, match="unknown AWS region `eu-wst-1`"):
        resolved(project, "wrong")


@pytest.mark.parametrize(
    ("to", "message"),
    [
        ("nowhere", "there is no registry `nowhere`"),
        ("htps://x", "`htps:` is not a registry host"),
        ("team/Upper", "`Upper/image` is not a valid repository name"),
        ("local/Upper", "`Upper/image` is not a valid repository name"),
        (f"{ACCOUNT}.dkr.ecr.eu-wst-1.amazonaws.com", "unknown AWS region `eu-wst-1`"),
    ],
)
def test_what_can_be_no_destination_is_refused_before_anything_is_built(
    project: ProjectSettings, to: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish, "ensure_built", None)
    workspace = cast("Workspace", SimpleNamespace(project=project))
    with pytest.raises((PublishError, UsageError)) as caught:
        publish.push(Selection(workspace, ()), print, PublishOptions(registry=to))
    assert caught.value.diagnostics[0].message == message


@pytest.mark.parametrize("to", ["", "team", "own/more", "local", "ecr/x", "localhost:5000/x", f"{EU}/team"])
def test_what_can_be_a_destination_is_let_in(project: ProjectSettings, to: str) -> None:
    check_selection(project, to)


def test_an_unknown_region_in_the_settings_is_refused_too(project: ProjectSettings) -> None:
    wrong = replace(project, registries={"team": replace(TEAM, regions=("eu-wst-1",))})
    with pytest.raises(PublishError, match="unknown AWS region `eu-wst-1`"):
        check_selection(wrong, "")
