"""Two images from a fetched directory, on an engine of its own whose network leads nowhere: the same images.

Layers and configurations are compared, not manifests: an engine that has a layer compressed at another level,
after a plain `docker build` say, takes that one, and names its manifest so.
"""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

import pytest

from bakehouse.catalog.project import HOME
from bakehouse.plan import workspace
from tests.integration.offline_engine import OfflineNetwork, engine
from tests.support.programs import BAKE

pytestmark = [
    pytest.mark.engine,
    pytest.mark.release,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a network that leads nowhere"),
    pytest.mark.timeout(3600),
]

IMAGES = ("mpi-cpu", "mpi5-cpu")


def bake(
    *arguments: str, inside: OfflineNetwork | None = None, environment: Mapping[str, str] | None = None
) -> str:
    command = inside.inside(*BAKE, *arguments) if inside else [*BAKE, *arguments]
    variables = {**os.environ, "PYTHONPATH": str(HOME), **(environment or {})}
    result = subprocess.run(command, cwd=HOME, env=variables, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-4000:]
    return result.stdout


def contents(host: str = "") -> list[object]:
    """The images' layers, unpacked, and their configurations."""
    images = workspace.select(workspace.open_workspace(HOME), IMAGES).plan.images
    command = ["docker", *(("--host", host) if host else ()), "image", "inspect"]
    result = subprocess.run(
        [*command, *(image.reference for image in images)], check=True, capture_output=True, text=True
    )
    return [(image["RootFS"], image["Config"]) for image in json.loads(result.stdout)]


def test_two_images_without_a_network_are_those_that_a_network_gives(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    bake("build", *IMAGES, "--download-only", "--to", str(disk))
    bake("build", *IMAGES)
    with_network = contents()

    # What a socket's path may be long is less than a test's directory is.
    directory = Path("/tmp", f"bakehouse-{uuid4().hex[:8]}")
    directory.mkdir()
    try:
        with OfflineNetwork(f"bh{uuid4().hex[:6]}") as nowhere:
            command = nowhere.inside("ip", "route", "get", "192.0.2.1")
            assert subprocess.run(command, capture_output=True).returncode != 0
            with engine(nowhere, directory) as host:
                bake(
                    "build", *IMAGES, "--offline", "--from", str(disk),
                    inside=nowhere,
                    environment={
                        "DOCKER_HOST": host,
                        "BAKEHOUSE_CACHE": str(directory / "cache"),
                        "PIP_CONFIG_FILE": os.devnull,
                        "PIP_FIND_LINKS": "",
                    },
                )  # fmt: skip
                without = contents(host)
    finally:
        subprocess.run(["rm", "-rf", str(directory)], check=False)

    assert without == with_network
