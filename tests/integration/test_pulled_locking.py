"""A base out of a registry, whose apt has a mirror of its own: what steps add is locked, and built again."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from uuid import uuid4

import pytest

from bakehouse.catalog.base_image_lock import read_locks
from bakehouse.catalog.project import HOME
from bakehouse.util.oci import EPOCH
from tests.integration.apt_mirror import NAMES, Mirror, serving_mirror
from tests.integration.projects import base
from tests.support.programs import BAKE, docker

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

NEWER_BYTES = 200_000_000
"""Size of a file of the vendor base that is newer than the times that steps set."""
COMPONENTS = {
    "house": """\
summary: The house's own base, out of its registry
releases:
  - version: "1"
    build_packages: [house-tools]
    base: {{image: "{reference}", digest: "{digest}"}}
""",
    "speech": """\
summary: A part that is made with a package of the distribution
releases:
  - version: "1"
    build_packages: [house-maker]
""",
}
SPEECH = """\
{% block build %}
FROM toolchain AS speech
{{ apt(stage.build_apt, debs=stage.packages) -}}
RUN {{ mount("bin/finish-layer") }} \\
    mkdir -p /out/usr/share && house-maker > /out/usr/share/made-with && {{ stage.finish }}
{% endblock %}
"""
RECIPE = """\
summary: On the house's base
base: {house: "1"}
components: {speech: "*"}
packages: [house-editor]
"""
VENDOR = """\
FROM {base}
COPY house.list /etc/apt/sources.list.d/
RUN mkdir -p /etc/ssh /opt/vendor /usr/share/doc/vendor && echo vendor > /etc/ssh/ssh_host_rsa_key && \\
    echo vendor > /usr/share/doc/vendor/README && head -c {size} /dev/zero > /opt/vendor/newer
""".replace("{size}", str(NEWER_BYTES))
Bake = Callable[..., str]


@pytest.fixture(scope="module")
def mirror(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mirror]:
    with serving_mirror(tmp_path_factory.mktemp("mirror")) as mirror:
        yield mirror


@pytest.fixture(scope="module")
def vendor_base(
    mirror: Mirror, registry_port: int, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, str]:
    """The base in a registry: its reference and its digest."""
    directory = tmp_path_factory.mktemp("base")
    (directory / "house.list").write_text(f"deb [trusted=yes] {mirror.url}/ /\n")
    (directory / "Dockerfile").write_text(VENDOR.format(base=base()))
    reference = f"127.0.0.1:{registry_port}/house-{uuid4().hex[:8]}:1"
    docker("build", "--provenance=false", "--tag", reference, str(directory))
    docker("push", reference)
    digest = (
        docker("image", "inspect", "--format", "{{index .RepoDigests 0}}", reference)
        .strip()
        .partition("@")[2]
    )
    docker("image", "rm", reference)
    return {"reference": reference, "digest": digest}


@pytest.fixture
def image(tmp_path: Path, mirror: Mirror, vendor_base: Mapping[str, str]) -> Iterator[str]:
    """An image on that base in a project of its own; its packages are 1.0 in the mirror."""
    mirror.has("1.0")
    name = f"spoken-{uuid4().hex[:8]}"
    (tmp_path / "pyproject.toml").write_text('[tool.bakehouse]\nrecipes = ["own"]\n')
    for component, text in COMPONENTS.items():
        directory = tmp_path / "own/components" / component
        directory.mkdir(parents=True)
        (directory / "component.yaml").write_text(text.format(**vendor_base))
    (tmp_path / "own/components/speech/install.j2").write_text(SPEECH)
    (tmp_path / "own/images").mkdir()
    (tmp_path / f"own/images/{name}.yaml").write_text(RECIPE)
    yield name
    if ids := {*docker("images", "--quiet", f"bakehouse/{name}").split()}:
        docker("image", "rm", "--force", *ids)


@pytest.fixture
def bake(tmp_path: Path) -> Bake:
    """Runs a task in the project, whose files are cached below it; gives what it prints."""

    def run(*arguments: str, code: int = 0) -> str:
        command = [*BAKE, *arguments]
        cache = str(tmp_path / "cache")
        environment = {**os.environ, "PYTHONPATH": str(HOME), "BAKEHOUSE_CACHE": cache}
        result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert result.returncode == code, result.stderr[-4000:]
        return result.stderr if code else result.stdout

    return run


def container_output(image: str, *command: str) -> str:
    return docker("run", "--rm", "--network=none", f"bakehouse/{image}:latest", *command).strip()


def test_what_steps_add_to_a_pulled_base_is_locked_and_built_when_the_mirror_has_moved_on(
    image: str, bake: Bake, mirror: Mirror, vendor_base: Mapping[str, str], tmp_path: Path
) -> None:
    output = bake("lock", image)

    [lock] = read_locks([tmp_path / "own"]).bases.values()
    assert f"{lock.path.name}: 4 packages, 4 changed\n" in output
    assert lock.pinned == f"{vendor_base['reference']}@{vendor_base['digest']}"
    assert {step: [deb.name for deb in lock.adds(step)] for step in lock.steps} == {
        ("house-tools",): ["house-tools"],
        ("house-maker", "house-tools"): ["house-maker", "house-tools"],
        ("house-editor",): ["house-common", "house-editor"],
    }
    assert {deb.url.partition("/pool")[0] for deb in lock.debs} == {mirror.url}
    bake("build", image, "--download-only", "--to", "files")

    mirror.has("2.0")
    pinned = f"{vendor_base['reference']}@{vendor_base['digest']}"
    assert pinned in bake("build", image, "--offline", "--from", "files", code=5)
    docker("pull", pinned)
    bake("build", image, "--offline", "--from", "files")
    docker("image", "rm", pinned)

    assert container_output(image, "house-editor") == "house-editor 1.0"
    assert container_output(image, "dpkg-query", "-W", "-f", "${Version}", "house-common") == "1.0"
    assert container_output(image, "cat", "/usr/share/made-with") == "house-maker 1.0"
    generated = ("/var/lib/apt/lists", "/etc/machine-id")
    assert container_output(image, "find", *generated, "-size", "+0", "-type", "f") == ""
    check_that_steps_change_nothing_else_of_the_base(image)


def check_that_steps_change_nothing_else_of_the_base(image: str) -> None:
    assert container_output(image, "ls", "/etc/ssh") == "ssh_host_rsa_key"
    assert container_output(image, "cat", "/etc/ssh/ssh_host_rsa_key", "/usr/share/doc/vendor/README") == (
        "vendor\nvendor"
    )
    assert container_output(image, "find", "/var/log", "/tmp", "-mindepth", "1") == ""
    assert container_output(image, "stat", "-c", "%Y", "/usr/bin/house-editor") == str(EPOCH)
    assert int(container_output(image, "stat", "-c", "%Y", "/opt/vendor/newer")) > EPOCH
    history = docker("image", "history", "--human=false", "--format", "{{.Size}}", f"bakehouse/{image}")
    sizes = [int(size) for size in history.split()]
    above_base = sizes[: sizes.index(max(sizes))]
    assert max(sizes) > NEWER_BYTES
    assert sum(above_base) < 1_000_000


def test_a_lock_stays_until_it_is_upgraded(image: str, bake: Bake, mirror: Mirror, tmp_path: Path) -> None:
    bake("lock", image)
    mirror.has("2.0")
    [lock] = read_locks([tmp_path / "own"]).bases.values()
    before = lock.path.read_text()
    recipe = tmp_path / f"own/images/{image}.yaml"
    recipe.write_text(RECIPE.replace("packages: [house-editor]", "packages: [house-common]"))

    assert "1 item is not locked" in bake("lock", image, "--check", code=4)

    bake("lock", image)
    [base] = read_locks([tmp_path / "own"]).bases.values()
    assert {deb.version for deb in base.debs} == {"1.0"}
    assert base.path.read_text() != before

    newer = bake("lock", image, "--check")
    assert "house-common 1.0 -> 2.0\n" in newer

    bake("lock", "--upgrade", "house-common")
    [upgraded] = read_locks([tmp_path / "own"]).bases.values()
    assert {deb.name: deb.version for deb in upgraded.debs} == {
        "house-common": "2.0",
        "house-maker": "2.0",
        "house-tools": "2.0",
    }


def test_a_package_that_the_base_cannot_install_is_reported_at_its_line(
    image: str, bake: Bake, vendor_base: Mapping[str, str], tmp_path: Path
) -> None:
    (tmp_path / f"own/images/{image}.yaml").write_text(RECIPE.replace("house-editor", "house-nowhere"))
    output = bake("lock", image, code=2)
    assert f"error: `{vendor_base['reference']}` has no package `house-nowhere`\n" in output
    assert f"  --> own/images/{image}.yaml:4:" in output
    assert not (tmp_path / "own/apt").exists()


def test_the_lock_of_the_image_tells_the_files(image: str, bake: Bake, tmp_path: Path) -> None:
    bake("lock", image)
    bake("render", image)
    rows = json.loads((tmp_path / f"images/{image}/lock.json").read_text())["system"]
    assert {row["name"]: row["version"] for row in rows} == dict.fromkeys(NAMES, "1.0")
