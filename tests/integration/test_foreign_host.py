"""`bake build` and `bake demo` without programs of Debian, as an ordinary user of an empty engine."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bakehouse.catalog.project import HOME
from bakehouse.engine.daemon_paths import CONTAINERD, DaemonPaths
from bakehouse.maintain.isolated_engine import isolated_engine
from tests.integration.foreign_host import FEDORA, HOSTS, ForeignHost, foreign_host
from tests.integration.ports import kept_port
from tests.support.programs import BAKE

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(os.geteuid() != 0, reason="a mount namespace needs root"),
]

IMAGE = "foreign"
RECIPE = """\
summary: An image whose stages compile nothing
base: {debian: "12"}
components: {python: "3.11", sshd: "*"}
"""
USER = 12345


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with the image, and a mirror with its files."""
    directory = tmp_path_factory.mktemp("project")
    (directory / "recipes/images").mkdir(parents=True)
    (directory / f"recipes/images/{IMAGE}.yaml").write_text(RECIPE)
    settings = directory / "pyproject.toml"
    settings.write_text('[tool.bakehouse]\nrecipes = ["recipes"]\n')
    environment = os.environ | {"PYTHONPATH": str(HOME)}
    subprocess.run(
        [*BAKE, "build", IMAGE, "--download-only", "--to", "files"],
        cwd=directory,
        env=environment,
        check=True,
    )
    settings.write_text(settings.read_text() + 'mirrors = ["files"]\n')
    return directory


@pytest.fixture(scope="module")
def engine() -> Iterator[DaemonPaths]:
    """An engine that the user may use."""
    with isolated_engine(CONTAINERD, print) as engine:
        engine.state.parent.chmod(0o755)
        os.chown(engine.socket, USER, USER)
        yield engine


@pytest.fixture(params=[*HOSTS.values()], ids=[*HOSTS])
def host(request: pytest.FixtureRequest, project: Path) -> Iterator[ForeignHost]:
    with foreign_host(request.param, USER) as host:
        shutil.copytree(project, host.directory, dirs_exist_ok=True)
        subprocess.run(["chown", "-R", f"{USER}:{USER}", host.directory], check=True)
        yield host


@pytest.mark.release
def test_an_image_is_built_without_programs_of_debian(host: ForeignHost, engine: DaemonPaths) -> None:
    for program in ("apt-get", "dpkg", "dpkg-deb", "mmdebstrap", "docker-registry", "gpg", "newuidmap"):
        assert host.run("sh", "-c", f"command -v {program}").stdout == ""
    assert host.run("id", "-u").stdout == f"{USER}\n"

    environment = {"DOCKER_HOST": engine.endpoint}
    built = host.bake("build", IMAGE, environment=environment)
    assert built.returncode == 0, built.stderr
    run = host.run(
        "docker", "run", "--rm", f"bakehouse/{IMAGE}:latest", "dpkg", "--audit", environment=environment
    )
    assert (run.returncode, run.stdout) == (0, ""), run.stderr


@pytest.mark.release
@pytest.mark.timeout(1800)
def test_the_demo_ends_with_an_image_uri(engine: DaemonPaths) -> None:
    with foreign_host(FEDORA, USER) as host, kept_port() as port:
        checkout = host.directory / "bakehouse"
        subprocess.run(["git", "clone", "--quiet", HOME, checkout], check=True)
        # Some machines have PyTorch, but do not reach its index.
        subprocess.run(
            [*BAKE, "build", "pytorch-cpu", "--download-only", "--to", host.directory / "files"],
            cwd=HOME,
            check=True,
        )
        settings = checkout / "pyproject.toml"
        table = "[tool.bakehouse]\n"
        mirrors = f'{table}mirrors = ["{host.directory / "files"}"]\n'
        settings.write_text(settings.read_text().replace(table, mirrors, 1))
        subprocess.run(["chown", "-R", f"{USER}:{USER}", host.directory], check=True)
        environment = {
            "DOCKER_HOST": engine.endpoint,
            "BAKEHOUSE_REGISTRY_PORT": str(port),
            "PYTHONPATH": str(checkout),
        }
        demo = host.bake("demo", environment=environment)
        host.bake("registry", "stop", environment=environment)

    assert demo.returncode == 0, demo.stderr
    # README shows the demo of another host.
    [digest] = {*re.findall(r"sha256:[0-9a-f]{64}", (HOME / "README.md").read_text())}
    assert f"\n127.0.0.1:{port}/bakehouse/pytorch-cpu@{digest}\n" in demo.stdout
