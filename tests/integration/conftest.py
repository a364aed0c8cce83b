"""What tests with a real engine share: the fleet, built once by the product itself."""

import sys

import pytest

from bakehouse import workflow
from bakehouse.build import BuiltImage
from bakehouse.plan import Image
from bakehouse.progress import Mode, Progress
from bakehouse.project import HOME
from bakehouse.workspace import Workspace, open_workspace

FLEET = ("mpi-cpu", "pytorch-cpu", "tensorflow-cpu")


@pytest.fixture(scope="session")
def workspace() -> Workspace:
    return open_workspace(HOME)


@pytest.fixture(scope="session")
def fleet(workspace: Workspace) -> dict[str, BuiltImage]:
    """The images that can be built on any machine, made in one call; a later call finds them all cached."""
    with Progress(sys.__stderr__ or sys.stderr, Mode.LINES) as progress:
        built = workflow.build_images(workspace, FLEET, progress.say, workflow.Wishes(), progress)
    return {one.image.name: one for one in built}


@pytest.fixture(scope="session")
def mpi_cpu(fleet: dict[str, BuiltImage]) -> tuple[Image, BuiltImage]:
    return fleet["mpi-cpu"].image, fleet["mpi-cpu"]


@pytest.fixture(scope="session")
def pytorch_cpu(fleet: dict[str, BuiltImage]) -> tuple[Image, BuiltImage]:
    return fleet["pytorch-cpu"].image, fleet["pytorch-cpu"]
