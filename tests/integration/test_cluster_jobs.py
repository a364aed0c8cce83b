"""A job of Kubeflow Trainer in containers. The test does the controller's work: names, hosts and ssh keys."""

import io
import subprocess
import tarfile
import uuid
from collections.abc import Iterator, Mapping

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from bakehouse.builder.built_image import BuiltImage
from bakehouse.catalog.project import HOME
from bakehouse.cluster.kubernetes_job import Document, kubeflow_manifests
from bakehouse.cluster.scheduled_job import ScheduledJob
from bakehouse.plan.model import Image

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

NAME = "job"
HOSTS = {name: f"{NAME}-{name}-0-0.{NAME}" for name in ("launcher", "node")}


def docker(*words: str, content: bytes | None = None) -> str:
    ended = subprocess.run(["docker", *words], input=content, capture_output=True, check=True)
    return ended.stdout.decode().strip()


@pytest.fixture
def network() -> Iterator[str]:
    """Name of a network; its containers are removed with it."""
    name = f"cluster-job-{uuid.uuid4().hex[:8]}"
    docker("network", "create", "--internal", name)
    yield name
    containers = docker("ps", "--all", "--quiet", "--filter", f"network={name}").split()
    if containers:
        docker("rm", "--force", "--volumes", *containers)
    docker("network", "rm", name)


def ssh_keys() -> dict[str, tuple[bytes, int]]:
    """Return the files of the secret with their modes, as Trainer 2.3 mounts them."""
    key = ec.generate_private_key(ec.SECP521R1())
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return {
        "run/ssh-keys/id_rsa": (private, 0o640),
        "run/ssh-keys/id_rsa.pub": (public, 0o644),
        "run/ssh-keys/authorized_keys": (public + b"\n", 0o644),
    }


def archive(files: Mapping[str, tuple[bytes, int]]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for path, (content, mode) in files.items():
            member = tarfile.TarInfo(path)
            member.size, member.mode = len(content), mode
            tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def start(name: str, pod: Document, network: str, files: bytes, variables: Mapping[str, str]) -> str:
    """Start a pod, and return its container."""
    [container] = pod["containers"]
    environment = {**{item["name"]: item["value"] for item in container["env"]}, **variables}
    options = [word for key, value in environment.items() for word in ("--env", f"{key}={value}")]
    alias = HOSTS[name]
    options += ["--network", network, "--network-alias", alias, "--hostname", alias.partition(".")[0]]
    created = docker("create", *options, container["image"], *container["args"])
    docker("cp", "-", f"{created}:/", content=files)
    docker("start", created)
    return created


def test_mpirun_reaches_the_hosts_of_a_train_job(mpi_cpu: tuple[Image, BuiltImage], network: str) -> None:
    script = (HOME / "examples/mpi/train.py").read_bytes()
    job = ScheduledJob(
        NAME,
        mpi_cpu[1].stored,
        ("python3", "/opt/ml/code/train.py"),
        60,
        hosts=2,
        launcher="mpirun",
        environment={"SM_MODEL_DIR": "/opt/ml/model"},
        files={"train.py": script},
    )
    runtime = next(manifest for manifest in kubeflow_manifests(job) if manifest["kind"] == "TrainingRuntime")
    pods = {
        replicated["name"]: replicated["template"]["spec"]["template"]["spec"]
        for replicated in runtime["spec"]["template"]["spec"]["replicatedJobs"]
    }
    hosts = "".join(f"{host} slots=1\n" for host in HOSTS.values()).encode()
    files = {"opt/ml/code/train.py": (script, 0o644), "etc/mpi/hostfile": (hosts, 0o444), **ssh_keys()}
    packed = archive(files)

    start("node", pods["node"], network, packed, {})
    # The variables of Trainer's `mpi.go`
    launcher = start(
        "launcher",
        pods["launcher"],
        network,
        packed,
        {
            "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
            "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
            "OMPI_MCA_orte_set_default_slots": "1",
            "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
        },
    )

    code, log = docker("wait", launcher), docker("logs", launcher)
    assert code == "0", log
    assert sorted(line.partition(",")[0] for line in log.splitlines() if line.startswith("rank")) == [
        f"rank {rank} of 2 on {HOSTS[name].partition('.')[0]}"
        for rank, name in enumerate(("launcher", "node"))
    ]
