"""Shared fixtures: a user project, the fleet, built once, and an installed wheel of this checkout."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from uv import find_uv_bin

from bakehouse.builder.built_image import BuiltImage
from bakehouse.builder.progress import Mode, Progress
from bakehouse.catalog.project import HOME
from bakehouse.engine import dockerd, provision
from bakehouse.engine.daemon_paths import DaemonPaths
from bakehouse.maintain import seconds, selftest
from bakehouse.pipeline.build import build
from bakehouse.plan.model import Image
from bakehouse.plan.workspace import Workspace, open_workspace, select
from bakehouse.util.file_lock import exclusive
from tests.integration.fleet import FLEET, Fleet
from tests.integration.ports import kept_port
from tests.integration.projects import Project
from tests.integration.sagemaker_sdk import Aws, moto_for_aws
from tests.support.programs import install

_LONG_SECONDS = 30.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the long files, so that in the end no worker is left alone with one."""
    lengths = seconds.seconds_of_files(seconds.read(), selftest.ENGINE)
    files = {item.nodeid.partition("::")[0] for item in items}
    of_fleet = {item.nodeid.partition("::")[0] for item in items if "fleet" in _fixtures(item)}
    first = max(of_fleet, key=lambda file: lengths.get(file, 0.0), default="")

    def rank(file: str) -> tuple[int, float]:
        length = lengths.get(file, 0.0)
        # The first builds the fleet; those after it need none of it. Others would wait for it.
        turn = 0 if file == first else 1 if length >= _LONG_SECONDS and file not in of_fleet else 2
        return turn, -length

    ranks = {file: rank(file) for file in files}
    items.sort(key=lambda item: ranks[item.nodeid.partition("::")[0]])


def _fixtures(item: pytest.Item) -> list[str]:
    return list(getattr(item, "fixturenames", ()))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Start the engine again if a test ended it, so that only that test fails, and say why it ended."""
    paths = DaemonPaths()
    if item.get_closest_marker("engine") and "DOCKER_HOST" not in os.environ and paths.log.exists():
        if dockerd.answers(paths.socket) or dockerd.answers(paths.socket):
            return
        log = "".join(f"  {line}\n" for line in paths.log.read_text(errors="replace").splitlines()[-30:])
        terminal = sys.__stderr__ or sys.stderr
        print(f"\nno engine answers before {item.nodeid}; end of {paths.log}:\n{log}", file=terminal)
        provision.ensure(lambda _: True, lambda text: print(text, file=terminal))


@pytest.fixture(scope="session")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    """A project in a directory of its own: what it writes is not Bakehouse's own `images/` and `build/`."""
    root = tmp_path_factory.mktemp("project")
    with kept_port() as port:
        (root / "pyproject.toml").write_text(f"[tool.bakehouse]\nregistry_port = {port}\n")
        yield open_workspace(root)


@pytest.fixture
def unique() -> str:
    """Text that makes a step unique, so that it is not cached."""
    return uuid4().hex


@pytest.fixture
def project(tmp_path: Path, unique: str) -> Iterator[Project]:
    """A project without images; what it builds is removed at the end."""
    project = Project(tmp_path, unique[:8])
    yield project
    project.remove()


@pytest.fixture(scope="session")
def fleet(workspace: Workspace) -> Fleet:
    with (
        exclusive(HOME / "build/fleet.lock"),
        Progress(sys.__stderr__ or sys.stderr, Mode.LINES) as progress,
    ):
        built = build(select(workspace, FLEET), progress.report, progress=progress)
        return Fleet({result.image.name: result for result in built}, progress.steps())


@pytest.fixture(scope="session")
def mpi_cpu(fleet: Fleet) -> tuple[Image, BuiltImage]:
    return fleet.images["mpi-cpu"].image, fleet.images["mpi-cpu"]


@pytest.fixture(scope="session")
def pytorch_cpu(fleet: Fleet) -> tuple[Image, BuiltImage]:
    return fleet.images["pytorch-cpu"].image, fleet.images["pytorch-cpu"]


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aws]:
    """moto in place of AWS."""
    with moto_for_aws(tmp_path_factory.mktemp("moto")) as aws:
        yield aws


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of this checkout."""
    directory = tmp_path_factory.mktemp("wheel")
    subprocess.run([find_uv_bin(), "build", "--quiet", "--wheel", "--out-dir", directory, HOME], check=True)
    [path] = directory.glob("*.whl")
    return path


@pytest.fixture(scope="session")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of the programs of an environment with the wheel and what it requires."""
    return install(tmp_path_factory.mktemp("environment"), wheel)
