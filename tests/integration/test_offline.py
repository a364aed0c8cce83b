"""Two images from a fetched directory, on an engine of its own whose network leads nowhere: the same images.

Layers and configurations are compared, not manifests: an engine that has a layer compressed at another level,
after a plain `docker build` say, takes that one, and names its manifest so.
"""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from uuid import uuid4

import pytest

from bakehouse.catalog.project import HOME
from bakehouse.plan import workspace
from tests.support.programs import BAKE

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a network that leads nowhere"),
    pytest.mark.timeout(3600),
]

IMAGES = ("mpi-cpu", "mpi5-cpu")
SUBNET = "10.213.0.1/24"
ADDRESS = "02:42:0a:d5:00:01"
"""An address that the kernel keeps when containers start and stop: see dockerd.loose_address."""


class Nowhere:
    """A network namespace with a bridge and no route."""

    def __init__(self, name: str) -> None:
        self.name, self.bridge = name, f"{name}br"[-15:]

    def __enter__(self) -> "Nowhere":
        self._ip("netns", "add", self.name)
        for arguments in (
            f"link set lo up|link add {self.bridge} address {ADDRESS} type bridge|"
            f"addr add {SUBNET} dev {self.bridge}|link set {self.bridge} up"
        ).split("|"):
            self._ip("-n", self.name, *arguments.split())
        return self

    def __exit__(self, *error: object) -> None:
        self._ip("netns", "delete", self.name)

    def inside(self, *command: str) -> list[str]:
        """`ip netns exec` would hide the cgroups that an engine needs."""
        return ["nsenter", f"--net=/run/netns/{self.name}", "--", *command]

    @staticmethod
    def _ip(*arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True)


@contextlib.contextmanager
def engine(nowhere: Nowhere, directory: Path) -> Iterator[str]:
    """An engine in there, with everything of its own; gives its address."""
    (directory / "daemon.json").write_text(json.dumps({"features": {"containerd-snapshotter": True}}))
    host = f"unix://{directory}/docker.sock"
    command = nowhere.inside(
        "dockerd", f"--config-file={directory}/daemon.json", f"--data-root={directory}/data",
        f"--exec-root={directory}/exec", f"--pidfile={directory}/pid", f"--host={host}",
        f"--bridge={nowhere.bridge}",
    )  # fmt: skip
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            info = ["docker", "--host", host, "info"]
            while subprocess.run(info, capture_output=True).returncode:
                assert process.poll() is None, (directory / "log").read_text()[-2000:]
                time.sleep(0.2)
            yield host
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def bake(*arguments: str, inside: Nowhere | None = None, environment: Mapping[str, str] | None = None) -> str:
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
    bake("fetch", *IMAGES, "--to", str(disk))
    bake("build", *IMAGES)
    with_network = contents()

    # What a socket's path may be long is less than a test's directory is.
    directory = Path("/tmp", f"bakehouse-{uuid4().hex[:8]}")
    directory.mkdir()
    try:
        with Nowhere(f"bh{uuid4().hex[:6]}") as nowhere:
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
