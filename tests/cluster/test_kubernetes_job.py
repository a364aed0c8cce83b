"""Manifests for Kubernetes, Kubeflow Trainer and HyperPod, checked against the schemas of their APIs."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate  # type: ignore[import-untyped]
import pytest

from bakehouse.cli.diagnostics import failure_text
from bakehouse.cluster.kubernetes_job import (
    Document,
    hyperpod_manifests,
    kubeflow_manifests,
    kubernetes_manifests,
)
from bakehouse.cluster.scheduled_job import ScheduledJob
from bakehouse.errors import UsageError
from tests.support.errors import raised

TRAINER = json.loads((Path(__file__).parent / "trainer.schema.json").read_text())
URI = "registry.example/team/churn@sha256:4f1c"
TORCHRUN = ScheduledJob(
    "churn",
    URI,
    ("/opt/ml/code/train.py", "--epochs", "3"),
    3600,
    hosts=2,
    launcher="torchrun",
    processes=8,
    gpus=8,
    efa_interfaces=32,
    instance_type="p5.48xlarge",
    environment={"FI_PROVIDER": "efa"},
    files={"train.py": b"print()\n", "nets/weights.bin": b"\xff"},
    data={"input/data/training": "/opt/ml/input/data/training", "model": "/opt/ml/model"},
)
MPIRUN = replace(TORCHRUN, launcher="mpirun", command=("python3", "/opt/ml/code/train.py"))
TENSORFLOW = replace(MPIRUN, launcher="tensorflow", processes=1)
SCRIPT = replace(MPIRUN, launcher="", processes=1)
JOBS = (TORCHRUN, MPIRUN, TENSORFLOW, SCRIPT, *(replace(job, hosts=1) for job in (TORCHRUN, MPIRUN, SCRIPT)))


def validate(manifest: Document) -> None:
    """Validate a manifest by the schema of its kind, and Jobs of a runtime by that of Kubernetes 1.31."""
    if manifest["kind"] not in TRAINER:
        kubernetes_validate.validate(manifest, "1.31", strict=True)
        return
    jsonschema.validate(manifest, TRAINER[manifest["kind"]])
    for replica in manifest["spec"].get("replicaSpecs", ()):
        document = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "pod"}}
        kubernetes_validate.validate({**document, "template": replica["template"]}, "1.31", strict=True)
    for replicated in replicated_jobs(manifest):
        spec = replicated["template"]["spec"]
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"}, "spec": spec}
        kubernetes_validate.validate(job, "1.31", strict=True)


def replicated_jobs(manifest: Document) -> list[Document]:
    jobs: list[Document] = manifest["spec"].get("template", {}).get("spec", {}).get("replicatedJobs", [])
    return jobs


def kinds(manifests: list[Document]) -> dict[str, Any]:
    return {manifest["kind"]: manifest for manifest in manifests}


def pod(manifests: list[Document]) -> Document:
    result: Document = kinds(manifests)["Job"]["spec"]["template"]["spec"]
    return result


@pytest.mark.parametrize("job", JOBS, ids=lambda job: f"{job.launcher or 'script'}-{job.hosts}")
@pytest.mark.parametrize("write", [kubernetes_manifests, kubeflow_manifests])
def test_the_manifests_are_valid(write: Any, job: ScheduledJob) -> None:
    for manifest in write(job):
        validate(manifest)


@pytest.mark.parametrize("hosts", [1, 2])
def test_the_manifest_for_hyperpod_is_valid(hosts: int) -> None:
    for manifest in hyperpod_manifests(replace(TORCHRUN, hosts=hosts)):
        validate(manifest)


def test_hyperpodrun_is_the_first_process_on_each_host() -> None:
    spec = kinds(hyperpod_manifests(TORCHRUN))["HyperPodPyTorchJob"]["spec"]

    [replica] = spec["replicaSpecs"]
    pod = replica["template"]["spec"]
    [container] = pod["containers"]
    assert (spec["nprocPerNode"], replica["replicas"]) == ("8", 2)
    assert container["command"] == [
        *("hyperpodrun", "--nnodes=2", "--nproc_per_node=8"),
        *("/opt/ml/code/train.py", "--epochs", "3"),
    ]
    assert container["env"][-1] == {"name": "NNODES", "value": "2"}
    assert "args" not in container
    assert "restartPolicy" not in pod
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "32"}


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("HyperPodPyTorchJob", ("runPolicy",)),
        ("HyperPodPyTorchJob", ("replicaSpecs", 0, "template", "spec")),
        ("TrainJob", ("trainer",)),
        ("TrainingRuntime", ("mlPolicy", "torch")),
        ("TrainingRuntime", ("template", "spec", "replicatedJobs", 0, "template", "spec")),
    ],
)
def test_the_schemas_reject_unknown_fields(kind: str, path: tuple[Any, ...]) -> None:
    manifest = kinds([*kubeflow_manifests(TORCHRUN), *hyperpod_manifests(TORCHRUN)])[kind]
    place = manifest["spec"]
    for step in path:
        place = place[step]
    place["unknown"] = 1

    with pytest.raises((jsonschema.ValidationError, kubernetes_validate.ValidationError)):
        validate(manifest)


def test_hosts_find_the_first_one_through_a_headless_service() -> None:
    manifests = kinds(kubernetes_manifests(TORCHRUN))

    job, service = manifests["Job"]["spec"], manifests["Service"]["spec"]
    assert service["clusterIP"] == "None"
    assert service["selector"] == {"batch.kubernetes.io/job-name": "churn"}
    assert (job["completionMode"], job["completions"], job["parallelism"]) == ("Indexed", 2, 2)
    assert job["template"]["spec"]["subdomain"] == manifests["Service"]["metadata"]["name"]
    assert job["template"]["spec"]["containers"][0]["args"] == [
        "torchrun",
        "--nproc_per_node=8",
        "--nnodes=2",
        "--node_rank=$(JOB_COMPLETION_INDEX)",
        "--master_addr=churn-0.churn",
        "--master_port=29500",
        "/opt/ml/code/train.py",
        "--epochs",
        "3",
    ]


def test_one_host_needs_no_service() -> None:
    manifests = kubernetes_manifests(replace(TORCHRUN, hosts=1, files={}))

    assert [manifest["kind"] for manifest in manifests] == ["Job"]
    assert "completionMode" not in manifests[0]["spec"]
    assert pod(manifests)["containers"][0]["args"][:3] == ["torchrun", "--nproc_per_node=8", "--standalone"]


def test_each_host_is_a_node_of_the_type_with_its_devices() -> None:
    template = pod(kubernetes_manifests(TORCHRUN))

    [container] = template["containers"]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "32"}}
    assert container["securityContext"] == {"capabilities": {"add": ["IPC_LOCK"]}}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    [term] = template["affinity"]["nodeAffinity"][required]["nodeSelectorTerms"]
    assert term["matchExpressions"][0]["values"] == ["p5.48xlarge", "ml.p5.48xlarge"]
    [other] = template["affinity"]["podAntiAffinity"][required]
    assert other["topologyKey"] == "kubernetes.io/hostname"


def test_a_job_without_efa_adds_no_capability() -> None:
    [container] = pod(kubernetes_manifests(replace(TORCHRUN, efa_interfaces=0)))["containers"]

    assert "securityContext" not in container
    assert container["resources"] == {"limits": {"nvidia.com/gpu": "8"}}


def test_shared_memory_has_no_limit_unless_one_is_set() -> None:
    volumes = [
        pod(kubernetes_manifests(replace(TORCHRUN, shared_memory_mib=size)))["volumes"][0]
        for size in (None, 64)
    ]

    assert [volume["emptyDir"] for volume in volumes] == [
        {"medium": "Memory"},
        {"medium": "Memory", "sizeLimit": "64Mi"},
    ]


def test_files_keep_their_paths() -> None:
    manifests = kubernetes_manifests(TORCHRUN)

    config_map, template = kinds(manifests)["ConfigMap"], pod(manifests)
    assert (config_map["binaryData"], config_map["data"]) == ({"file-0": "/w=="}, {"file-1": "print()\n"})
    volume = next(volume for volume in template["volumes"] if volume["name"] == "files")
    assert volume["configMap"]["items"] == [
        {"key": "file-0", "path": "nets/weights.bin"},
        {"key": "file-1", "path": "train.py"},
    ]


def test_files_that_no_config_map_can_contain_are_refused() -> None:
    error = raised(UsageError, kubernetes_manifests, replace(TORCHRUN, files={"train.py": b"x" * 1_100_000}))

    assert failure_text(error.diagnostics[0]) == (
        "error: the files of the job are too big for a ConfigMap\n\n"
        "hint: for a smoke test, select some checks with `--check`; else set `code` in the recipe\n"
    )


def test_values_are_not_expanded() -> None:
    odd = replace(SCRIPT, command=("python3", "$(HOME)"), environment={"A": "$(B)"})

    [container] = pod(kubernetes_manifests(odd))["containers"]

    assert container["args"] == ["python3", "$$(HOME)"]
    assert container["env"] == [{"name": "A", "value": "$$(B)"}]


@pytest.mark.parametrize(
    ("write", "host"), [(kubernetes_manifests, "churn-1.churn"), (kubeflow_manifests, "churn-node-0-1.churn")]
)
def test_tensorflow_gets_the_hosts_and_the_index(write: Any, host: str) -> None:
    manifests = kinds(write(TENSORFLOW))
    if "Job" in manifests:
        template = manifests["Job"]["spec"]["template"]
    else:
        [replicated] = replicated_jobs(manifests["TrainingRuntime"])
        template = replicated["template"]["spec"]["template"]
    index, *variables = template["spec"]["containers"][0]["env"]
    [configuration] = [item["value"] for item in variables if item["name"] == "TF_CONFIG"]

    # A variable has to stand before those that refer to it.
    assert index["name"] == "JOB_COMPLETION_INDEX"
    value = json.loads(configuration.replace("$(JOB_COMPLETION_INDEX)", "1"))
    assert value["cluster"]["worker"][value["task"]["index"]] == f"{host}:29500"


def test_trainer_tells_torchrun_about_the_hosts() -> None:
    manifests = kinds(kubeflow_manifests(TORCHRUN))

    train_job, runtime = manifests["TrainJob"]["spec"], manifests["TrainingRuntime"]
    assert train_job["trainer"] == {"numNodes": 2, "numProcPerNode": 8}
    assert train_job["runtimeRef"]["name"] == runtime["metadata"]["name"]
    assert runtime["spec"]["mlPolicy"] == {"numNodes": 2, "torch": {}}
    [replicated] = replicated_jobs(runtime)
    assert replicated["name"] == "node"
    [container] = replicated["template"]["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["torchrun", "/opt/ml/code/train.py", "--epochs", "3"]


def test_trainer_starts_mpirun_when_the_other_hosts_accept_ssh() -> None:
    runtime = kinds(kubeflow_manifests(MPIRUN))["TrainingRuntime"]

    assert runtime["spec"]["mlPolicy"]["mpi"] == {
        "mpiImplementation": "OpenMPI",
        "numProcPerNode": 8,
        "sshAuthMountPath": "/run/ssh-keys",
        "runLauncherAsNode": True,
    }
    node, launcher = replicated_jobs(runtime)
    assert launcher["dependsOn"] == [{"name": "node", "status": "Ready"}]
    [daemon] = node["template"]["spec"]["template"]["spec"]["containers"]
    with_keys = ["sh", "-c", 'install -D -m 600 -t /root/.ssh /run/ssh-keys/* && exec "$@"', "sh"]
    assert daemon["args"] == [*with_keys, "/usr/sbin/sshd", "-De"]
    [container] = launcher["template"]["spec"]["template"]["spec"]["containers"]
    assert container["args"][:7] == [*with_keys, "mpirun", "-np", "16"]
    # Sessions of ssh do not have the variables of the container.
    assert container["args"][-4:] == ["-x", "FI_PROVIDER", "python3", "/opt/ml/code/train.py"]
    assert container["resources"] == daemon["resources"]


def test_mpirun_on_one_host_needs_no_controller_of_mpi() -> None:
    runtime = kinds(kubeflow_manifests(replace(MPIRUN, hosts=1)))["TrainingRuntime"]

    assert runtime["spec"]["mlPolicy"] == {"numNodes": 1}
    [replicated] = replicated_jobs(runtime)
    [container] = replicated["template"]["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["mpirun", "-np", "8", "python3", "/opt/ml/code/train.py"]
