"""Fake GPUs, from a CDI specification in an engine of its own: devices that Bakehouse passes and reads back.

The device nodes are /dev/null and the library is empty, so nothing here tests GPUs.
"""

import io
import json
import os
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from bakehouse.cli import doctor
from bakehouse.cli.doctor import CheckState
from bakehouse.engine import daemon_info, docker
from bakehouse.engine.daemon_info import Daemon, ProgramResult
from bakehouse.engine.docker import DockerEngine
from bakehouse.engine.protocol import ContainerSpec
from bakehouse.errors import EngineError
from tests.integration.offline_engine import OfflineNetwork, engine

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can start an engine of its own"),
    pytest.mark.timeout(300),
]
IMAGE = "fake-gpus:1"
NAMES = ("0", "1", "2", "GPU-5c1e0f2a", "0:1")
SMI = "#!/bin/sh\necho Fake GPU, 570.86.15\n"
LISTING = 'for device in /dev/nvidia*; do echo "$device"; done; nvidia-smi; echo "$FAKE_LIBRARY"'


def specification(directory: Path) -> dict[str, object]:
    """A CDI specification of fake GPUs, whose files are in a directory."""
    (directory / "nvidia-smi").write_text(SMI)
    (directory / "nvidia-smi").chmod(0o755)
    (directory / "libcuda.so.1").touch()
    places = {"nvidia-smi": "/usr/bin/nvidia-smi", "libcuda.so.1": "/usr/lib/libcuda.so.1"}
    mounts = [
        {"hostPath": str(directory / name), "containerPath": path, "options": ["ro", "bind"]}
        for name, path in places.items()
    ]

    def node(name: str) -> dict[str, str]:
        return {"path": f"/dev/nvidia{name}", "hostPath": "/dev/null"}

    devices = [(name, node(name.replace(":", "-"))) for name in NAMES]
    return {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "containerEdits": {
            "deviceNodes": [node("ctl")],
            "mounts": mounts,
            "env": [f"FAKE_LIBRARY={places['libcuda.so.1']}"],
        },
        "devices": [{"name": name, "containerEdits": {"deviceNodes": [edit]}} for name, edit in devices],
    }


def shell_image() -> bytes:
    """The root file system of an image with a shell and nothing else."""
    libraries = subprocess.run(["ldd", "/bin/sh"], capture_output=True, text=True, check=True).stdout.split()
    paths = ["/bin/sh", *(word for word in libraries if word.startswith("/"))]
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in paths:
            archive.add(Path(path).resolve(), path.lstrip("/"))
    return buffer.getvalue()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("gpus")
    (directory / "cdi").mkdir()
    (directory / "cdi" / "nvidia.json").write_text(json.dumps(specification(directory)))
    features = {"containerd-snapshotter": True, "cdi": True}
    settings = {"experimental": True, "features": features, "cdi-spec-dirs": [str(directory / "cdi")]}
    with (
        OfflineNetwork(f"gpus{uuid4().hex[:6]}") as network,
        engine(network, directory, settings) as host,
    ):
        load = ["docker", "--host", host, "import", "-", IMAGE]
        subprocess.run(load, input=shell_image(), capture_output=True, check=True)
        yield host


@pytest.fixture
def client(address: str) -> Iterator[DockerEngine]:
    connection = docker.connect(address)
    yield connection
    connection.close()


def seen(client: DockerEngine, log: Path, *gpus: str) -> list[str]:
    """Devices, driver and library in a container with these GPUs."""
    with client.container(ContainerSpec(IMAGE, ("/bin/sh", "-c", LISTING), gpus=gpus)) as container:
        container.start(log)
        container.wait(60)
        return container.stdout().splitlines()


@pytest.mark.parametrize("gpus", [("0",), ("0", "2"), ("GPU-5c1e0f2a",), ("0:1",)])
def test_a_container_gets_the_named_gpus_alone(
    client: DockerEngine, tmp_path: Path, gpus: tuple[str, ...]
) -> None:
    nodes = sorted(f"/dev/nvidia{gpu.replace(':', '-')}" for gpu in (*gpus, "ctl"))

    assert seen(client, tmp_path / "log", *gpus) == [
        *nodes,
        "Fake GPU, 570.86.15",
        "/usr/lib/libcuda.so.1",
    ]


def test_a_container_without_gpus_gets_none(client: DockerEngine, tmp_path: Path) -> None:
    assert seen(client, tmp_path / "log")[:1] == ["/dev/nvidia*"]


def test_a_gpu_that_is_gone_is_named(client: DockerEngine, tmp_path: Path) -> None:
    with pytest.raises(EngineError) as caught:
        seen(client, tmp_path / "log", "7")

    [diagnostic] = caught.value.diagnostics
    assert "nvidia.com/gpu=7" in repr(diagnostic)
    hint = "CDI does not list this GPU; `nvidia-ctk cdi list` shows the available ones"
    assert diagnostic.hint == hint


def test_doctor_finds_gpus_through_cdi(address: str) -> None:
    daemon = daemon_info.probe(lambda *words: daemon_info.docker("--host", address, *words))
    assert isinstance(daemon, Daemon)

    check = doctor.gpu_finding(ProgramResult(0, "Fake GPU, 570.86.15\n"), daemon)
    assert (check.state, check.detail) == (
        CheckState.OK,
        "1 x Fake GPU, driver 570.86.15, through CDI",
    )
