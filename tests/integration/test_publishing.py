"""Staging, promoting and listing as the tasks do it, with the registry on loopback."""

import contextlib
import json
import os
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from bakehouse.builder.built_image import BuiltImage
from bakehouse.catalog.project import ProjectSettings
from bakehouse.cli import tables
from bakehouse.cluster import smoke_report
from bakehouse.cluster.smoke_report import Setup
from bakehouse.errors import Diagnostic, PublishError, RegistryAuthError, UsageError
from bakehouse.evidence import check_rows
from bakehouse.ledger import image_uris
from bakehouse.ledger.releases import ReleasedCheck
from bakehouse.ledger.store import open_ledger
from bakehouse.pipeline.smoke import SmokeOptions, pulled_image, smoke_images
from bakehouse.plan.workspace import Workspace, select
from bakehouse.publish import image_push, options, promote, push, queue
from bakehouse.publish.options import PublishOptions
from bakehouse.publish.verify import require_all, verify_releases
from bakehouse.registry.destination import local_registry
from tests.integration.ports import kept_port
from tests.integration.tiny_images import built, published_digest
from tests.support import built_images, plans
from tests.support.built_images import results
from tests.support.proxy import Proxy, error_body

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

GPUS = Setup("train toolkit", gpus=1)


@pytest.fixture
def project(tmp_path: Path) -> Iterator[ProjectSettings]:
    with kept_port() as port:
        yield ProjectSettings(tmp_path, (), registry_port=port)


@pytest.fixture
def team(project: ProjectSettings, tmp_path: Path) -> ProjectSettings:
    """A project that shares a registry with others but not its repository prefix."""
    return replace(project, repository_prefix=tmp_path.name.replace("_", "-").rstrip("-"))


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BuiltImage]:
    """One whose recipe requires a GPU."""
    with built(tmp_path_factory.mktemp("image"), "mpi-cpu") as image:
        gpu = {"gpu": True, "launchers": ("mpirun", "torchrun"), "required": ("nccl_all_reduce",)}
        yield replace(image, image=plans.changed(image.image, **gpu))


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[BuiltImage]]:
    """Images that have a layer of 2 MB in common, and 0.1 MB each of their own."""
    shared = os.urandom(2_000_000)
    with contextlib.ExitStack() as stack:
        builds = [
            built(tmp_path_factory.mktemp(name), name, bytes_=100_000, shared=shared)
            for name in ("mpi-cpu", "mpi5-cpu", "pytorch-cpu")
        ]
        yield [stack.enter_context(build) for build in builds]


def test_a_candidate_becomes_a_release_by_a_report_from_elsewhere(
    project: ProjectSettings, image: BuiltImage, tmp_path_factory: pytest.TempPathFactory
) -> None:
    check_rows.record(project.state, image.content, results(image.image))
    [staged] = image_push.push_images(project, [image], print, PublishOptions(candidate=True))
    assert (staged.candidate, staged.tested) == (True, False)
    with pytest.raises(UsageError, match="no release of `mpi-cpu` has passed its smoke test"):
        image_uris.retrieve("mpi-cpu", ledger=project.images)
    with pytest.raises(PublishError, match="`mpi-cpu` cannot be released yet"):
        promote.promote_image(project, image.image, print, PublishOptions())

    handed_back = tmp_path_factory.mktemp("elsewhere") / "seen.json"
    smoke_report.write(built_images.smoke_report(image.content, results(image.image, GPUS)), handed_back)
    terms = PublishOptions(reports=(handed_back,), move_tag=True)
    released = promote.promote_image(project, image.image, print, terms)
    assert (released.candidate, released.tested, released.digest) == (False, True, staged.digest)
    assert ReleasedCheck("nccl_all_reduce", "passed") in released.checks
    assert {check.outcome for check in released.checks} == {"passed", "not tested"}
    assert image_uris.retrieve("mpi-cpu", ledger=project.images) == released.image_uri
    assert open_ledger(project).records("mpi-cpu") == (staged, released)
    assert tags(project) == sorted([*staged.tags, *released.tags, "mpi-cpu"])


def test_promoting_what_is_released_changes_nothing_but_the_alias(
    project: ProjectSettings, image: BuiltImage
) -> None:
    check_rows.record(project.state, image.content, (*results(image.image), *results(image.image, GPUS)))
    [pushed] = image_push.push_images(project, [image], print, PublishOptions())
    assert promote.promote_image(project, image.image, print, PublishOptions(move_tag=True)) == pushed
    assert open_ledger(project).records("mpi-cpu") == (pushed,)
    assert tags(project) == ["mpi-cpu", *pushed.tags]


def test_an_address_names_the_candidate(project: ProjectSettings, image: BuiltImage) -> None:
    check_rows.record(project.state, image.content, (*results(image.image), *results(image.image, GPUS)))
    [staged] = image_push.push_images(project, [image], print, PublishOptions(candidate=True))
    with pytest.raises(UsageError, match="no candidate of `mpi-cpu` was published"):
        promote.promote_image(project, image.image, print, PublishOptions(image_uri="elsewhere"))
    terms = PublishOptions(image_uri=staged.image_uri)
    assert promote.promote_image(project, image.image, print, terms).digest == staged.digest


def test_the_ledger_is_listed_and_compared_with_the_registry(
    project: ProjectSettings, image: BuiltImage
) -> None:
    check_rows.record(project.state, image.content, (*results(image.image), *results(image.image, GPUS)))
    [pushed] = image_push.push_images(project, [image], print, PublishOptions())
    assert tables.released([pushed]) == (
        f"{pushed.date}  release  {pushed.tags[0]}  {pushed.image_uri}  no commit\n"
    )
    require_all(verify_releases(project, [pushed], print))
    gone = replace(pushed, digest="sha256:" + "00" * 32)
    with pytest.raises(PublishError, match="no longer has sha256:000000000000"):
        require_all(verify_releases(project, [pushed, gone], print))


def test_only_what_was_built_from_these_recipes_is_tried(workspace: Workspace, image: BuiltImage) -> None:
    address = f"127.0.0.1:9/team/mpi-cpu@sha256:{0:064x}"
    with pytest.raises(UsageError) as caught:
        pulled_image(select(workspace, ["mpi-cpu"]), address, print)
    assert caught.value.diagnostics == (
        Diagnostic(f"the engine has no image `{address}`", hint=f"run `docker pull {address}`"),
    )
    with pytest.raises(UsageError) as caught:
        pulled_image(select(workspace, ["mpi-cpu"]), image.stored, print)
    [diagnostic] = caught.value.diagnostics
    assert diagnostic.message == f"`{image.stored}` was not built from this recipe of `mpi-cpu`"
    assert diagnostic.facts[0] == ("org.opencontainers.image.title", "none; the recipe has mpi-cpu")


def test_a_report_is_of_one_image(workspace: Workspace, image: BuiltImage, tmp_path: Path) -> None:
    wishes = SmokeOptions(report_file=tmp_path / "seen.json")
    with pytest.raises(UsageError, match="`--report` needs exactly one image, got 2"):
        smoke_images(workspace, [image, image], print, wishes)


def tags(project: ProjectSettings) -> list[str]:
    """Return the tags that the registry lists."""
    with local_registry(project) as registry:
        url = f"http://{registry.host}/v2/bakehouse/mpi-cpu/tags/list"
        with urllib.request.urlopen(url) as response:
            return sorted(json.loads(response.read())["tags"])


def sent(proxy: Proxy) -> int:
    """The bytes of layers that came to a registry."""
    return sum(
        len(request.body)
        for request in proxy.requests
        if request.method in ("PUT", "PATCH") and "/uploads/" in request.path
    )


def test_of_many_images_at_once_a_shared_layer_is_sent_once(
    team: ProjectSettings, fleet: list[BuiltImage], registry_proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine too, each push waits for a layer that another one uploads.
    monkeypatch.setattr(queue, "_SLOW_SECONDS", 100.0)
    lines: list[str] = []
    terms = PublishOptions(registry=registry_proxy.host, candidate=True)
    records = image_push.push_images(team, fleet, lines.append, terms)
    assert [record.image for record in records] == [image.image.name for image in fleet]
    assert 2_300_000 < sent(registry_proxy) < 2_400_000
    assert sum(line.endswith(": uploaded 0.1 MB, reused 2.0 MB") for line in lines) == 2
    assert lines[-1] == "3 images of 6.3 MB: uploaded 2.3 MB"


def test_an_image_that_can_not_be_pushed_keeps_no_other_from_it(
    team: ProjectSettings, fleet: list[BuiltImage], registry_proxy: Proxy
) -> None:
    denied = error_body("DENIED", "requested access to the resource is denied")
    registry_proxy.fail("POST", "/mpi5-cpu/blobs/uploads/", 403, denied)
    lines: list[str] = []
    with pytest.raises(RegistryAuthError) as caught:
        image_push.push_images(
            team, fleet, lines.append, PublishOptions(registry=registry_proxy.host, candidate=True)
        )
    registry = f"{registry_proxy.host}/{team.repository_prefix}"
    [diagnostic] = caught.value.diagnostics
    assert diagnostic.message == f"not allowed to push to `{registry}/mpi5-cpu`"
    for image in (fleet[0], fleet[2]):
        uri = f"{registry}/{image.image.name}@{published_digest(image)}"
        assert f"{image.image.name}: published as {uri}" in lines
        assert [record.image_uri for record in open_ledger(team).records(image.image.name)] == [uri]
    assert open_ledger(team).images() == ("mpi-cpu", "pytorch-cpu")


def test_a_push_that_stalls_does_not_hold_up_the_others(
    team: ProjectSettings, fleet: list[BuiltImage], registry_proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "_SLOW_SECONDS", 1.0)
    monkeypatch.setattr(options, "PushOptions", partial(push.PushOptions, stall=10.0))
    registry_proxy.stall("PUT|PATCH", "/mpi-cpu/blobs/uploads/")
    others: list[str] = []

    def say(line: str) -> None:
        if ": uploaded " in line and " images of " not in line and not registry_proxy.hung_up.is_set():
            others.append(line.partition(":")[0])

    with pytest.raises(PublishError, match="stalled and was stopped"):
        image_push.push_images(team, fleet, say, PublishOptions(registry=registry_proxy.host, candidate=True))
    assert sorted(others) == ["mpi5-cpu", "pytorch-cpu"]
