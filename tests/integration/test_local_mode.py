"""The printed code in the local mode of both SDKs: two hosts in real containers, by Docker Compose."""

import stat
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bakehouse.builder.built_image import BuiltImage
from bakehouse.catalog.apt_lock import Deb
from bakehouse.jobs import snippets
from bakehouse.jobs.job_spec import JobSpec
from bakehouse.ledger.releases import ReleasedComponent
from bakehouse.plan.model import Image
from bakehouse.util import deb
from tests.integration.sagemaker_sdk import ROLE, V2, V3, Aws, installed
from tests.support import feeds
from tests.support.release_records import a_record

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

COMPOSE = Deb(
    "docker-compose",
    "2.26.1-4",
    "47681197cb2b1ab88206b42a1a92fc75f50d9530a6322d03494a473eed0408ea",
    12965524,
    "pool/main/d/docker-compose/docker-compose_2.26.1-4_amd64.deb",
)
"""Package of Debian 13, whose program needs only glibc 2.34."""
NETWORK = "sagemaker-local"
SCRIPT = """\
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
ranks = torch.ones(1)
dist.all_reduce(ranks)
print(f"counted {int(ranks)} ranks")
"""
LOCALLY = {
    "v2": ("ml.c5.2xlarge", "local"),
    "v3": ("ModelTrainer(\n", 'ModelTrainer(\n    training_mode="LOCAL_CONTAINER",\n'),
}
"""Change with which the code runs in local mode."""


@pytest.fixture(scope="module")
def compose(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory for PATH with Docker Compose."""
    directory = tmp_path_factory.mktemp("compose")
    feeds.get([COMPOSE], directory)
    with (directory / COMPOSE.file).open("rb") as package, deb.open_files(package) as files:
        program = files.extractfile("./usr/libexec/docker/cli-plugins/docker-compose")
        assert program
        (directory / "docker-compose").write_bytes(program.read())
    (directory / "docker-compose").chmod(stat.S_IRWXU)
    yield directory
    # The SDK leaves its network and stopped containers.
    listed = ["docker", "ps", "--all", "--quiet", "--filter", f"network={NETWORK}"]
    containers = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split()
    subprocess.run(["docker", "rm", "--force", *containers], capture_output=True, check=bool(containers))
    subprocess.run(["docker", "network", "rm", NETWORK], capture_output=True, check=False)


@pytest.mark.parametrize("sdk", LOCALLY)
def test_two_hosts_train_with_torchrun(
    sdk: str,
    pytorch_cpu: tuple[Image, BuiltImage],
    compose: Path,
    aws: Aws,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    image, _ = pytorch_cpu
    (aws.home / ".sagemaker").mkdir(exist_ok=True)
    (aws.home / ".sagemaker/config.yaml").write_text("local: {local_code: true}\n")
    monkeypatch.setenv("PATH", str(compose), prepend=":")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    record = replace(
        a_record(),
        image=image.name,
        image_uri=image.reference,
        parts=(ReleasedComponent("pytorch", "2.13.0", "cpu"),),
        launchers=("mpirun", "torchrun"),
        training_module="sagemaker_pytorch_container.training:main",
    )
    code = snippets.snippet(record, JobSpec(role=ROLE, sdk=sdk, instance_count=2)).code
    printed, changed = LOCALLY[sdk]
    assert printed in code

    output = aws.run(installed(V3 if sdk == "v3" else V2), ["-c", code.replace(printed, changed)], tmp_path)

    # Compose ends the other host with the first; the toolkit cuts lines in two.
    assert "counted 2 ranks" in output
