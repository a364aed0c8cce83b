"""Manifests of a job: for Kubernetes itself, Kubeflow Trainer 2 and HyperPod's training operator.

Sources:

- Indexed Jobs give their pods stable names: kubernetes.io/docs/tasks/job/job-with-pod-to-pod-communication.
- `vpc.amazonaws.com/efa` is the resource of AWS's device plugin:
  docs.aws.amazon.com/eks/latest/userguide/node-efa.html.
- Trainer: github.com/kubeflow/trainer, v2.3.0. `manifests/base/runtimes` has runtimes, `torch.go` of its
  plugins the variables that torchrun reads, `mpi.go` the list of hosts and the ssh keys of mpirun.
- HyperPod: models of the package sagemaker-hyperpod 3.12.0, and README of hyperpod-elastic-agent 1.1.3,
  whose `hyperpodrun` has to be the first process of its container, because it handles SIGTERM.
"""

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from bakehouse.cluster.scheduled_job import PORT, ScheduledJob, tensorflow_configuration
from bakehouse.errors import UsageError

MAX_CONFIG_MAP = 1024**2
"""Bytes of all data in a ConfigMap."""
_INDEX = "JOB_COMPLETION_INDEX"
_TRAINER = "trainer.kubeflow.org"
_SSH_KEYS = "/run/ssh-keys"
_WITH_KEYS = ("sh", "-c", f'install -D -m 600 -t /root/.ssh {_SSH_KEYS}/* && exec "$@"', "sh")
"""Runs its arguments with the controller's keys. In Trainer 2.3, root's ssh rejects their file mode."""
_AGENT_PORT = 8080
"""Port of the agent in each container, which the operator calls."""
_INSTANCE_TYPE = "node.kubernetes.io/instance-type"

Document = dict[str, Any]


def kubernetes_manifests(job: ScheduledJob) -> list[Document]:
    """Return a Job and what it needs: a ConfigMap with its files, a Service that names its hosts.

    Raises UsageError if the files are too big.
    """
    labels = {"batch.kubernetes.io/job-name": job.name}
    template: Document = {"spec": _pod(job, labels, _arguments(job), job.name)}
    spec: Document = {"backoffLimit": 0, "activeDeadlineSeconds": job.seconds}
    manifests = _config_maps(job)
    if job.hosts > 1:
        # Hosts look for each other before they are ready.
        service = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": labels}
        manifests.append(_document("v1", "Service", job, service))
        spec |= {"completionMode": "Indexed", "completions": job.hosts, "parallelism": job.hosts}
        template["spec"]["subdomain"] = job.name
    return [*manifests, _document("batch/v1", "Job", job, {**spec, "template": template})]


def kubeflow_manifests(job: ScheduledJob) -> list[Document]:
    """Return a TrainJob and its TrainingRuntime, with a ConfigMap of its files.

    The runtime has what a TrainJob cannot set: volumes, shared memory, nodes. Raises UsageError if the files
    are too big.
    """
    labels = {"jobset.sigs.k8s.io/jobset-name": job.name}
    policy: Document = {"numNodes": job.hosts}
    trainer: Document = {"numNodes": job.hosts}
    is_mpi = job.launcher == "mpirun" and job.hosts > 1
    command = ["torchrun", *job.command] if job.launcher == "torchrun" else _arguments(job)
    replicated = []
    if job.launcher == "torchrun" or is_mpi:
        trainer["numProcPerNode"] = job.processes
    if job.launcher == "torchrun":
        policy["torch"] = {}
    elif is_mpi:
        policy["mpi"] = {
            "mpiImplementation": "OpenMPI",
            "numProcPerNode": job.processes,
            "sshAuthMountPath": _SSH_KEYS,
            "runLauncherAsNode": True,
        }
        daemon = _pod(job, labels, [*_WITH_KEYS, "/usr/sbin/sshd", "-De"])
        daemon["containers"][0]["readinessProbe"] = {"tcpSocket": {"port": 22}}
        replicated.append({"name": "node", "template": {"spec": _job_template(job, daemon)}})
        command = [*_WITH_KEYS, *_mpirun(job)]
    leader: Document = {
        "name": "launcher" if is_mpi else "node",
        "template": {
            "metadata": {"labels": {f"{_TRAINER}/trainjob-ancestor-step": "trainer"}},
            "spec": _job_template(job, _pod(job, labels, command, f"{job.name}-node-0")),
        },
    }
    jobs: Document = {"replicatedJobs": [*replicated, leader]}
    if is_mpi:
        leader["dependsOn"] = [{"name": "node", "status": "Ready"}]
        jobs["network"] = {"publishNotReadyAddresses": True}
        jobs["successPolicy"] = {"operator": "All", "targetReplicatedJobs": ["launcher"]}
    api = f"{_TRAINER}/v1alpha1"
    runtime = {"mlPolicy": policy, "template": {"spec": jobs}}
    reference = {"apiGroup": _TRAINER, "kind": "TrainingRuntime", "name": job.name}
    return [
        *_config_maps(job),
        _document(api, "TrainingRuntime", job, runtime),
        _document(api, "TrainJob", job, {"runtimeRef": reference, "trainer": trainer}),
    ]


def hyperpod_manifests(job: ScheduledJob) -> list[Document]:
    """Return a HyperPodPyTorchJob of a job with torchrun, with a ConfigMap of its files.

    The operator tells `hyperpodrun` which host it is, and restarts it; by default, it restarts no whole job.
    Raises UsageError if the files are too big.
    """
    labels = {"bakehouse-job": job.name}
    words = ["hyperpodrun", f"--nnodes={job.hosts}", f"--nproc_per_node={job.processes}"]
    # The package's model cannot read pod anti-affinity; a host's GPUs keep other pods away
    pod = _pod(replace(job, hosts=1), labels, [])
    del pod["restartPolicy"]
    [container] = pod["containers"]
    container.pop("args", None)
    container |= {"command": [*words, *_literal(job.command)], "ports": [{"containerPort": _AGENT_PORT}]}
    # The agent ignores the option for it
    container["env"] = [*container.get("env", ()), {"name": "NNODES", "value": str(job.hosts)}]
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {
        "nprocPerNode": str(job.processes),
        "runPolicy": {"activeDeadlineSeconds": job.seconds, "cleanPodPolicy": "None", "jobMaxRetryCount": 0},
        "replicaSpecs": [{"name": "node", "replicas": job.hosts, "template": template}],
    }
    return [*_config_maps(job), _document("sagemaker.amazonaws.com/v1", "HyperPodPyTorchJob", job, spec)]


def _job_template(job: ScheduledJob, pod: Document) -> Document:
    return {"backoffLimit": 0, "activeDeadlineSeconds": job.seconds, "template": {"spec": pod}}


def _document(api: str, kind: str, job: ScheduledJob, spec: Document) -> Document:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": job.name}, "spec": spec}


def _config_maps(job: ScheduledJob) -> list[Document]:
    """Return a ConfigMap with the files, if there are any. Its keys cannot contain slashes."""
    if not job.files:
        return []
    text: dict[str, str] = {}
    binary: dict[str, str] = {}
    for key, path in _keys(job).items():
        try:
            text[key] = job.files[path].decode()
        except UnicodeDecodeError:
            binary[key] = base64.b64encode(job.files[path]).decode()
    if sum(len(value.encode()) for value in (*text.values(), *binary.values())) > MAX_CONFIG_MAP:
        raise UsageError(
            "the files of the job are too big for a ConfigMap",
            hint="for a smoke test, select some checks with `--check`; else set `code` in the recipe",
        )
    contents = {"data": text, "binaryData": binary}
    given = {name: values for name, values in contents.items() if values}
    return [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": job.name}, **given}]


def _keys(job: ScheduledJob) -> dict[str, str]:
    """Return the path of each key of the ConfigMap."""
    return {f"file-{index}": path for index, path in enumerate(sorted(job.files))}


def _pod(job: ScheduledJob, labels: Mapping[str, str], command: list[str], host: str = "") -> Document:
    """Return a pod whose container runs a command, on a node without another pod of these labels.

    `host` is the start of the hosts' names, before their numbers.
    """
    volumes: list[Document] = []
    mounts: list[Document] = []

    def mount(name: str, path: str, volume: Document, **options: object) -> None:
        volumes.append({"name": name, **volume})
        mounts.append({"name": name, "mountPath": path, **options})

    size = {} if job.shared_memory_mib is None else {"sizeLimit": f"{job.shared_memory_mib}Mi"}
    mount("shared-memory", "/dev/shm", {"emptyDir": {"medium": "Memory", **size}})
    if job.files:
        items = [{"key": key, "path": path} for key, path in _keys(job).items()]
        mount("files", job.directory, {"configMap": {"name": job.name, "items": items}}, readOnly=True)
    if job.data:
        volumes.append({"name": "data", "persistentVolumeClaim": {"claimName": f"{job.name}-data"}})
        mounts += [
            {"name": "data", "mountPath": path, "subPath": directory} for directory, path in job.data.items()
        ]
    container: Document = {
        "name": "node",
        "image": job.uri,
        ("command" if job.replaces_entrypoint else "args"): command,
    }
    if variables := _variables(job, host):
        container["env"] = variables
    if resources := _resources(job):
        # For extended resources, requests are the limits.
        container["resources"] = {"limits": resources}
    if job.efa_interfaces:
        # EFA registers memory, which the limit of locked memory would prevent.
        container["securityContext"] = {"capabilities": {"add": ["IPC_LOCK"]}}
    container["volumeMounts"] = mounts
    pod: Document = {"restartPolicy": "Never", "automountServiceAccountToken": False}
    if job.hostname:
        pod["hostname"] = job.hostname
    if affinity := _affinity(job, labels):
        pod["affinity"] = affinity
    if job.gpus:
        pod["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    return {**pod, "containers": [container], "volumes": volumes}


def _resources(job: ScheduledJob) -> dict[str, str]:
    counts = {"nvidia.com/gpu": job.gpus, "vpc.amazonaws.com/efa": job.efa_interfaces}
    return {name: str(count) for name, count in counts.items() if count}


def _affinity(job: ScheduledJob, labels: Mapping[str, str]) -> Document:
    """Return the constraints on nodes: of the type, and one for each host of the job."""
    affinity: Document = {}
    if job.instance_type:
        # HyperPod's nodes have names of SageMaker.
        types = [job.instance_type, f"ml.{job.instance_type}"]
        terms = [{"matchExpressions": [{"key": _INSTANCE_TYPE, "operator": "In", "values": types}]}]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        affinity["nodeAffinity"] = required
    if job.hosts > 1:
        term = {"labelSelector": {"matchLabels": dict(labels)}, "topologyKey": "kubernetes.io/hostname"}
        affinity["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return affinity


def _variables(job: ScheduledJob, host: str) -> list[Document]:
    values = dict(zip(job.all_variables, _literal(job.all_variables.values()), strict=True))
    variables: list[Document] = []
    if job.launcher == "tensorflow" and job.hosts > 1:
        # A value can only refer to variables before it, and the Job appends its own.
        path = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
        variables.append({"name": _INDEX, "valueFrom": {"fieldRef": {"fieldPath": path}}})
        workers = json.dumps([f"{host}-{index}.{job.name}:{PORT}" for index in range(job.hosts)])
        values["TF_CONFIG"] = tensorflow_configuration(workers, f"$({_INDEX})")
    return [*variables, *({"name": name, "value": value} for name, value in values.items())]


def _arguments(job: ScheduledJob) -> list[str]:
    """Return the command of each host in an Indexed Job."""
    if job.launcher == "torchrun":
        return ["torchrun", f"--nproc_per_node={job.processes}", *_rendezvous(job), *_literal(job.command)]
    return _mpirun(job) if job.launcher == "mpirun" else _literal(job.command)


def _rendezvous(job: ScheduledJob) -> list[str]:
    if job.hosts == 1:
        return ["--standalone", "--nnodes=1"]
    address = f"{job.name}-0.{job.name}"
    return [
        f"--nnodes={job.hosts}",
        f"--node_rank=$({_INDEX})",
        f"--master_addr={address}",
        f"--master_port={PORT}",
    ]


def _mpirun(job: ScheduledJob) -> list[str]:
    exported = [word for name in job.all_variables for word in ("-x", name)] if job.hosts > 1 else []
    return ["mpirun", "-np", str(job.hosts * job.processes), *exported, *_literal(job.command)]


def _literal(words: Iterable[str]) -> list[str]:
    """Return words in which no `$(NAME)` is replaced by the value of a variable."""
    return [word.replace("$(", "$$(") for word in words]
