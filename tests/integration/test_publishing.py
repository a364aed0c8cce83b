"""Staging, promoting and listing as the tasks do it, with the registry on loopback."""

import json
import socket
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bakehouse import image_uris, publishing, smoke_report, tables, workflow
from bakehouse.build import BuiltImage
from bakehouse.checks import Outcome
from bakehouse.embedded_registry import EmbeddedRegistry
from bakehouse.errors import Diagnostic, PublishError, UsageError
from bakehouse.ledger import Ledger
from bakehouse.project import Project
from bakehouse.publishing import Terms
from bakehouse.smoke_report import CheckResult, SmokeReport
from bakehouse.verification import require_all
from bakehouse.workspace import Workspace
from tests.integration.tiny_images import built

pytestmark = [pytest.mark.engine, pytest.mark.timeout(180)]

TRAINED = CheckResult("train_success", Outcome.PASSED, 1.0)
GPU = CheckResult("gpu", Outcome.PASSED, 1.0)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return Project(tmp_path, (), registry_port=free.getsockname()[1])


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BuiltImage]:
    """One whose recipe requires a GPU."""
    with built(tmp_path_factory.mktemp("image"), "mpi-cpu") as made:
        yield replace(made, image=replace(made.image, required=("gpu",)))


def report(image: BuiltImage, machine: str, *checks: CheckResult) -> SmokeReport:
    return SmokeReport("mpi-cpu", image.digest, "mpi", checks, machine)


def test_a_candidate_becomes_a_release_by_a_report_from_elsewhere(
    project: Project, image: BuiltImage, tmp_path: Path
) -> None:
    smoke_report.save(report(image, "builder", TRAINED), project.state)
    [staged] = publishing.push_images(project, [image], print, Terms(stage=True))
    assert (staged.candidate, staged.tested) == (True, False)
    with pytest.raises(UsageError, match="no release of `mpi-cpu` has passed its smoke test"):
        image_uris.retrieve("mpi-cpu", images=project.images)
    with pytest.raises(PublishError, match="`mpi-cpu` may not be released yet"):
        publishing.promote_image(project, image.image, print, Terms())

    handed_back = tmp_path / "seen.json"
    smoke_report.write(report(image, "gpu-1", GPU), handed_back)
    terms = Terms(reports=(handed_back,), alias=True)
    released = publishing.promote_image(project, image.image, print, terms)
    assert (released.candidate, released.tested, released.digest) == (False, True, image.digest)
    assert [check.name for check in released.checks] == ["train_success", "gpu"]
    assert image_uris.retrieve("mpi-cpu", images=project.images) == released.image_uri
    assert Ledger(project).records("mpi-cpu") == (staged, released)
    assert tags(project) == sorted([*staged.tags, *released.tags, "mpi-cpu"])


def test_promoting_what_is_released_changes_nothing_but_the_alias(
    project: Project, image: BuiltImage
) -> None:
    smoke_report.save(report(image, "builder", TRAINED, GPU), project.state)
    [pushed] = publishing.push_images(project, [image], print, Terms())
    assert publishing.promote_image(project, image.image, print, Terms(alias=True)) == pushed
    assert Ledger(project).records("mpi-cpu") == (pushed,)
    assert tags(project) == ["mpi-cpu", *pushed.tags]


def test_an_address_names_the_candidate(project: Project, image: BuiltImage) -> None:
    smoke_report.save(report(image, "builder", TRAINED, GPU), project.state)
    [staged] = publishing.push_images(project, [image], print, Terms(stage=True))
    with pytest.raises(UsageError, match="no candidate of `mpi-cpu` was staged"):
        publishing.promote_image(project, image.image, print, Terms(image_uri="elsewhere"))
    terms = Terms(image_uri=staged.image_uri)
    assert publishing.promote_image(project, image.image, print, terms).digest == staged.digest


def test_the_ledger_is_listed_and_compared_with_the_registry(project: Project, image: BuiltImage) -> None:
    smoke_report.save(report(image, "builder", TRAINED, GPU), project.state)
    [pushed] = publishing.push_images(project, [image], print, Terms())
    where = f"127.0.0.1:{project.registry_port}/bakehouse/mpi-cpu:{pushed.tags[0]}"
    assert tables.released([pushed]) == (f"{pushed.date}  release  {where}  {image.digest[:19]}  no commit\n")
    require_all(publishing.verify(project, [pushed], print))
    gone = replace(pushed, digest="sha256:" + "00" * 32)
    with pytest.raises(PublishError, match="no longer holds sha256:000000000000"):
        require_all(publishing.verify(project, [pushed, gone], print))


def test_only_what_was_built_from_these_recipes_is_tried(workspace: Workspace, image: BuiltImage) -> None:
    address = f"127.0.0.1:9/team/mpi-cpu@sha256:{0:064x}"
    with pytest.raises(UsageError) as caught:
        workflow.pulled_image(workspace, "mpi-cpu", address, print)
    assert caught.value.diagnostics == (
        Diagnostic(f"there is no `{address}` here", hint=f"run `docker pull {address}`"),
    )
    with pytest.raises(UsageError) as caught:
        workflow.pulled_image(workspace, "mpi-cpu", image.digest, print)
    [told] = caught.value.diagnostics
    assert told.message == f"`{image.digest}` was not built from this recipe of `mpi-cpu`"
    assert told.facts[1] == ("image's key", "none")


def test_a_report_is_of_one_image(workspace: Workspace, image: BuiltImage, tmp_path: Path) -> None:
    wishes = workflow.Wishes(report=tmp_path / "seen.json")
    with pytest.raises(UsageError, match="one report is of one image, and these are 2"):
        workflow.smoke_images(workspace, [image, image], print, wishes)


def tags(project: Project) -> list[str]:
    """What the registry itself lists."""
    with EmbeddedRegistry(project.state / "registry", project.registry_port) as registry:
        url = f"http://{registry.host}/v2/bakehouse/mpi-cpu/tags/list"
        with urllib.request.urlopen(url) as answer:
            return sorted(json.loads(answer.read())["tags"])
