"""Pins of images and files of vendors, with stubs of Docker Hub, of Amazon ECR and of servers of files."""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from bakehouse.catalog.catalog import Catalog, load_catalog
from bakehouse.catalog.pins import with_hosts
from bakehouse.cli.diagnostics import failure_text
from bakehouse.errors import BuildError, NotReleasableError, Problems, Reason, StaleError
from bakehouse.evidence.gate import check_pinned
from bakehouse.lock import locking
from bakehouse.lock.drift import Drift, table
from bakehouse.lock.vendor_images import drift, vendor_images
from bakehouse.plan.model import Image, RegistryBase
from bakehouse.plan.workspace import Selection, open_workspace, select
from bakehouse.util.oci import split_reference
from tests.support import own_recipes
from tests.support.data import text_of
from tests.support.errors import error_text
from tests.support.vendors import HUB, Vendors, vendors

RECIPE = """\
summary: On CUDA
base: {nvidia-cuda: "13.0.2"}
variants: {nvidia-cuda: "runtime-ubuntu24.04"}
components: {python: "*", efa: "1.51.0"}
"""


def hosts_of(catalog: Catalog) -> set[str]:
    """All hosts that files and images of a catalogue come from."""
    hosts = set()
    for component in catalog.components.values():
        for spec in component.specs:
            hosts |= {urlsplit(artifact.source).hostname or "" for artifact in spec.artifacts}
            if spec.base and spec.base.reference:
                names = with_hosts(spec.base.reference, component.registries)
                hosts |= {split_reference(name)[0] for name in names}
    regions = {match[1] for host in hosts if (match := re.search(r"\.ecr\.([a-z0-9-]+)\.amazonaws", host))}
    return {host for host in hosts if host} | {f"api.ecr.{region}.amazonaws.com" for region in regions}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vendors]:
    hosts = hosts_of(own_recipes.catalog())
    with vendors(tmp_path_factory.mktemp("vendors"), hosts) as stubs:
        yield stubs


@pytest.fixture
def stubs(running: Vendors, monkeypatch: pytest.MonkeyPatch) -> Iterator[Vendors]:
    for name, value in running.environment.items():
        monkeypatch.setenv(name, value)
    yield running
    for trouble in (running.down, running.removed, running.moved, running.rebuilt, running.refused):
        trouble.clear()
    running.requests.clear()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[tool.bakehouse]\nrecipes = ["own"]\n')
    (tmp_path / "own/images").mkdir(parents=True)
    return tmp_path


def quiet(text: str) -> None:
    """Reports nothing."""


def images(project: Path, *patterns: str) -> tuple[Image, ...]:
    return select(open_workspace(project), patterns).plan.images


def refused(planned: tuple[Image, ...]) -> list[str]:
    """The images that the release gate rejects."""
    names = []
    for image in planned:
        try:
            check_pinned(image)
        except NotReleasableError:
            names.append(image.name)
    return names


def lock(project: Path, *patterns: str, upgrade: bool = False) -> tuple[list[str], Problems]:
    """Run the part of `bake lock` that asks vendors, which needs no engine."""
    workspace = open_workspace(project)
    recipes = select(workspace, patterns).recipes
    problems = Problems()
    return [*locking.pin(workspace, recipes, quiet, problems, upgrade=upgrade)], problems


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.release)], ids=["some", "all"])
def test_no_image_of_the_catalogue_is_refused_once_its_project_is_locked(
    stubs: Vendors, project: Path, step: int
) -> None:
    workspace, problems = open_workspace(project), Problems()
    recipes = tuple(workspace.recipes.values())[::step]
    before = Selection(workspace, recipes).plan.images
    assert refused(before)

    for _ in locking.pin(workspace, recipes, quiet, problems):
        pass

    assert not problems.all
    workspace = replace(workspace, catalog=load_catalog(workspace.project.recipe_roots))
    after = Selection(workspace, recipes).plan.images
    assert refused(after) == []
    assert [image.build_base for image in after if image.build_base and "@" not in image.build_base] == []
    pinned = {image.name for image in before if image.name in {*refused(before)}}
    changed = {new.name for old, new in zip(before, after, strict=True) if old.key != new.key}
    assert pinned == changed
    accounts = {urlsplit(line.split()[1]).hostname for line in stubs.requests if ".dkr.ecr." in line}
    assert len(accounts) > 1


@pytest.fixture
def cuda(project: Path) -> Path:
    """A project with one image on a base of Docker Hub, with a file of unknown checksum."""
    (project / "own/images/mine.yaml").write_text(RECIPE)
    return project


BASE = "nvidia/cuda:13.0.2-runtime-ubuntu24.04"
DEVEL = BASE.replace("runtime", "devel")
DOWN = "`docker.io`: its proxy `{}` answered with 502"
NO_IMAGE = """\
error: the digest of `nvidia/cuda:13.0.2-runtime-ubuntu24.04` cannot be read
  --> own/images/mine.yaml:2:21
   |
 2 | base: {nvidia-cuda: "13.0.2"}
   |                     ^^^^^^^^
  because `docker.io`: it has no tag `13.0.2-runtime-ubuntu24.04` of `nvidia/cuda`
  used by  mine

hint: check the name of the image; a vendor may have removed it
"""
NO_REGISTRY = """\
error: the digest of `nvidia/cuda:13.0.2-devel-ubuntu24.04` cannot be read
  --> own/images/mine.yaml:2:21
   |
 2 | base: {nvidia-cuda: "13.0.2"}
   |                     ^^^^^^^^
  because `docker.io`: its proxy `{}` answered with 502
  used by  mine

hint: check the network and the proxy
"""
SMP2 = "658645717510.dkr.ecr.us-east-1.amazonaws.com"
REFUSED = f"""\
error: the digest of `{SMP2}/smdistributed-modelparallel:2.5.1-gpu-py311-cu124` cannot be read
  --> own/images/mine.yaml:2:18
   |
 2 | base: {{aws-smp2: "2.8.0"}}
   |                  ^^^^^^^
  because `{SMP2}`: not allowed to perform: ecr:BatchGetImage
  used by  mine

hint: log in to AWS with an account that may pull it
"""
MOVED = text_of(__file__, "moved")
OTHER = "nvidia/cuda:13.0.2-base-ubuntu22.04"
EFA = "https://efa-installer.amazonaws.com/aws-efa-installer-1.51.0.tar.gz"


def test_pins_are_written_to_the_project(stubs: Vendors, cuda: Path) -> None:
    lines, problems = lock(cuda, "mine")

    assert not problems.all
    sha256 = hashlib.sha256(f"stub of {EFA}".encode()).hexdigest()
    assert (cuda / "own/pins.yaml").read_text() == (
        "# Images and files of vendors that components do not pin; made by `bake lock`\n"
        "images:\n"
        f"  {DEVEL}: {stubs.digest(DEVEL)}\n"
        f"  {BASE}: {stubs.digest(BASE)}\n"
        "files:\n"
        f"  {EFA}: {{sha256: {sha256}, bytes: 75}}\n"
    )
    assert lines == [
        f"{DEVEL}: {stubs.digest(DEVEL)}",
        f"{BASE}: {stubs.digest(BASE)}",
        f"aws-efa-installer-1.51.0.tar.gz: sha256:{sha256}, 75 bytes, from `{EFA}`",
    ]
    [image] = images(cuda, "mine")
    assert isinstance(image.base, RegistryBase)
    assert image.base.pinned == f"{BASE}@{stubs.digest(BASE)}"
    assert image.build_base == f"{DEVEL}@{stubs.digest(DEVEL)}"
    assert image.unpinned == ()
    before = len(stubs.requests)
    assert lock(cuda, "mine")[0] == []
    assert stubs.requests[before:] == []


def test_a_pin_is_part_of_the_key_whatever_its_line(stubs: Vendors, cuda: Path) -> None:
    lock(cuda, "mine")
    [image] = images(cuda, "mine")
    pins = cuda / "own/pins.yaml"
    text = pins.read_text()
    pins.write_text(f"# Read\n\n{text}")
    assert images(cuda, "mine")[0].key == image.key
    pins.write_text(text.replace(stubs.digest(BASE), "sha256:" + "a" * 64))
    assert images(cuda, "mine")[0].key != image.key


def test_a_base_in_ecr_comes_from_the_region_of_the_project(stubs: Vendors, project: Path) -> None:
    recipe = 'summary: AWS\'s\nbase: {aws-dlc-pytorch: "2.5.1"}\nvariants: {aws-dlc-pytorch: "cpu-*"}\n'
    (project / "own/images/mine.yaml").write_text(recipe + 'components: {python: "*"}\n')
    name = "pytorch-training:2.5.1-cpu-py311-ubuntu22.04-sagemaker"
    digest = stubs.digest(name)
    settings = project / "pyproject.toml"

    assert lock(project, "mine")[0] == [f"763104351884.dkr.ecr.us-east-1.amazonaws.com/{name}: {digest}"]
    settings.write_text(settings.read_text() + 'region = "eu-south-1"\n')
    # The other region has the same image
    [image] = images(project, "mine")
    assert isinstance(image.base, RegistryBase)
    assert image.base.pinned == f"692866216735.dkr.ecr.eu-south-1.amazonaws.com/{name}@{digest}"
    stubs.moved[name] = 1
    moved = stubs.digest(name)
    line = f"692866216735.dkr.ecr.eu-south-1.amazonaws.com/{name}: {digest} -> {moved}"
    assert lock(project, "mine", upgrade=True)[0] == [line]
    assert (project / "own/pins.yaml").read_text().splitlines()[1:] == [
        "images:",
        f"  692866216735.dkr.ecr.eu-south-1.amazonaws.com/{name}: {moved}",
    ]
    assert [line for line in stubs.requests if line.startswith("POST")] == [
        "POST https://api.ecr.us-east-1.amazonaws.com/",
        "POST https://api.ecr.eu-south-1.amazonaws.com/",
    ]


def test_what_a_vendor_does_not_give_is_named_and_others_go_on(stubs: Vendors, cuda: Path) -> None:
    recipe = RECIPE.replace("runtime-ubuntu24.04", "base-ubuntu22.04")
    (cuda / "own/images/other.yaml").write_text(recipe)
    stubs.removed |= {BASE, EFA}

    _, problems = lock(cuda, "mine", "other")

    with pytest.raises(BuildError) as raised:
        problems.raise_as(BuildError)
    # The order of files depends on where the checkout is
    missing_file, missing_image = sorted(raised.value.diagnostics, key=lambda error: error.message)
    assert missing_file.message == "`aws-efa-installer-1.51.0.tar.gz` is unavailable"
    assert failure_text(missing_image) == NO_IMAGE
    assert refused(images(cuda, "mine", "other")) == ["mine", "other"]
    [_, other] = images(cuda, "mine", "other")
    assert isinstance(other.base, RegistryBase)
    assert other.base.digest == stubs.digest(OTHER)


def test_a_registry_that_is_down_is_asked_once(stubs: Vendors, cuda: Path) -> None:
    stubs.down.add(HUB)

    _, problems = lock(cuda, "mine")

    with pytest.raises(BuildError) as raised:
        problems.raise_as(BuildError)
    down = DOWN.format(stubs.address)
    assert [error.reasons for error in raised.value.diagnostics] == [(Reason(down),)] * 2
    assert failure_text(raised.value.diagnostics[0]) == NO_REGISTRY.replace("{}", stubs.address)


def test_a_login_that_a_registry_refuses(stubs: Vendors, project: Path) -> None:
    recipe = 'summary: AWS\'s\nbase: {aws-smp2: "2.8.0"}\ncomponents: {python: "*"}\n'
    (project / "own/images/mine.yaml").write_text(recipe)
    stubs.refused.add("658645717510")

    _, problems = lock(project, "mine")

    with pytest.raises(BuildError) as raised:
        problems.raise_as(BuildError)
    assert error_text(raised.value) == REFUSED


def drifts(project: Path) -> tuple[Drift, ...]:
    workspace = open_workspace(project)
    found = vendor_images(workspace, [workspace.recipes["mine"]])
    return tuple(drift(found, workspace.project, quiet))


def test_a_tag_that_has_moved(stubs: Vendors, cuda: Path) -> None:
    lock(cuda, "mine")
    assert drifts(cuda) == ()
    old = stubs.digest(BASE)
    stubs.moved[BASE] = 1

    found = drifts(cuda)

    with pytest.raises(StaleError) as raised:
        locking.require_locked(found)
    assert error_text(raised.value) == MOVED.format(old=old, new=stubs.digest(BASE), carets="^" * 71)
    assert table(found) == f"tag has moved:\n  {BASE}  {old} -> {stubs.digest(BASE)}\n"
    lock(cuda, "mine", upgrade=True)
    assert drifts(cuda) == ()


def test_an_image_rebuilt_for_other_platforms_alone_has_not_moved(stubs: Vendors, cuda: Path) -> None:
    stubs.rebuilt[BASE] = 0
    lock(cuda, "mine")
    old = stubs.digest(BASE)
    stubs.rebuilt[BASE] = 1
    assert stubs.digest(BASE) != old

    assert drifts(cuda) == ()
    assert lock(cuda, "mine", upgrade=True)[0] == []


def test_a_tag_that_cannot_be_compared(stubs: Vendors, cuda: Path) -> None:
    lock(cuda, "mine")
    stubs.down.add(HUB)

    found = drifts(cuda)

    with pytest.raises(BuildError) as raised:
        locking.require_locked(found)
    down = DOWN.format(stubs.address)
    assert [error.reasons for error in raised.value.diagnostics] == [(Reason(down),)] * 2
    assert table(found) == f"tag not compared:\n  {DEVEL}    {down}\n  {BASE}  {down}\n"
