"""Jobs for clusters: Kubernetes, Kubeflow Trainer, HyperPod's training operator and Slurm.

The launcher of the image itself starts the ranks. SageMaker's toolkit is not used, so what only the toolkit
can start is refused. The script gets its arguments, SageMaker's directories and the variables for them.
"""

import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import NoReturn

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.efa import EFA
from bakehouse.catalog.instance_types import instances
from bakehouse.catalog.user_smoke import SCRIPT, default_launcher
from bakehouse.cluster.kubernetes_job import hyperpod_manifests, kubeflow_manifests, kubernetes_manifests
from bakehouse.cluster.scheduled_job import Launcher, ScheduledJob
from bakehouse.cluster.slurm_job import INPUT, batch_script
from bakehouse.errors import UsageError
from bakehouse.jobs import code_archive, rules
from bakehouse.jobs.distribution import check_keras
from bakehouse.jobs.image_checks import check_instances, check_nccl, check_variables, efa_hint, find_efa_gap
from bakehouse.jobs.instance_groups import InstanceGroup, check_processes, check_rdma, instance_group
from bakehouse.jobs.job_spec import (
    DEFAULT_SCRIPT,
    LIBRARIES,
    S3,
    STRATEGIES,
    JobSpec,
    check_processes_per_host,
)
from bakehouse.jobs.job_variables import fabric_variables
from bakehouse.jobs.model_trainer import REQUIREMENTS
from bakehouse.jobs.request_checks import check_variable_names
from bakehouse.jobs.rules import Findings, RuleViolation
from bakehouse.jobs.script_arguments import argument_text, variable_name
from bakehouse.jobs.torchrun import abbreviation_findings
from bakehouse.jobs.training_request import LaunchImage, TrainingRequest
from bakehouse.util.format import format_names
from bakehouse.util.yaml_writer import dump_documents

FORMS = {
    "kubernetes": "Kubernetes",
    "kubeflow": "Kubeflow Trainer 2",
    "hyperpod": "HyperPod's training operator",
    "slurm": "Slurm with enroot and pyxis",
}
_MANIFESTS = {
    "kubernetes": kubernetes_manifests,
    "kubeflow": kubeflow_manifests,
    "hyperpod": hyperpod_manifests,
}
_AGENT = "hyperpod-elastic-agent"
_CODE, _ML = "/opt/ml/code", "/opt/ml"
_STRATEGIES: Mapping[str, Launcher] = {
    "mpi": "mpirun",
    "MPI": "mpirun",
    "torch_distributed": "torchrun",
    "Torchrun": "torchrun",
    "multi_worker_mirrored_strategy": "tensorflow",
}
"""Strategies of `distribution` that need no toolkit."""
_PROCESSES = ("processes_per_host", "process_count_per_node")
_SWITCHES = ("enabled", *_PROCESSES)
_NAME = re.compile("[^a-z0-9]+")
_MAX_NAME = 40
_SEPARATORS = frozenset(",:")
"""Characters that end a path in a mount of pyxis."""


def cluster_job(
    form: str, image: LaunchImage, job: JobSpec, catalog: Catalog | None, state: str
) -> tuple[str, tuple[RuleViolation, ...]]:
    """Return the text of a job for a cluster, and warnings. `state` describes the image.

    Raises UsageError with all errors, including settings that the form cannot express.
    """
    if form not in FORMS:
        _refuse(f"unknown cluster `{form}`", f"use {format_names(FORMS)}")
    group = _host_group(image, job, catalog)
    launcher, processes = _launcher(image, job, group)
    _check_form(form, image, launcher, group.count)
    findings = _findings(image, job, group, launcher, processes)
    if findings.errors:
        raise UsageError.of(*(error.diagnostic for error in findings.errors))
    scheduled = _scheduled(form, image, job, group, launcher, processes)
    comments = _comments(form, image, job, scheduled, state)
    if form == "slurm":
        return batch_script(scheduled, comments), findings.warnings
    return comments + dump_documents(_MANIFESTS[form](scheduled)), findings.warnings


def sagemaker_type(name: str) -> str:
    """Return SageMaker's name of an instance type of EC2; names of SageMaker stay."""
    return f"ml.{name.removeprefix('ml.')}" if name else ""


def _host_group(image: LaunchImage, job: JobSpec, catalog: Catalog | None) -> InstanceGroup:
    """Return the hosts of a job."""
    if job.groups:
        _refuse("a job of a cluster has hosts of one type", "replace `--group` by `--instance-type`")
    if job.hosts < 1:
        _refuse(f"the job has {job.hosts} hosts", "set `--instance-count` to at least 1")
    if image.neuron_architecture:
        _refuse(
            f"`{image.name}` is for Neuron devices, which jobs of clusters do not request yet",
            "use `bake launch`",
        )
    if not job.instance_type:
        if image.gpu:
            _refuse(
                f"`{image.name}` is for GPUs, and the hosts are not known",
                "set `--instance-type`, such as `p5.48xlarge`, which gives the number of GPUs",
            )
        return InstanceGroup("", job.hosts, gpus=0)
    known = instances(catalog) if catalog else {}
    group = instance_group(known, sagemaker_type(job.instance_type), job.hosts)
    if not group.is_known or group.gpus is None:
        _refuse(
            f"the GPUs of `{job.instance_type}` are not known", "use a type of recipes/components/instance"
        )
    return group


def _launcher(image: LaunchImage, job: JobSpec, group: InstanceGroup) -> tuple[Launcher, int]:
    """Return the launcher of a job and the number of ranks on each host."""
    check_processes_per_host(job.processes_per_host)
    processes = job.processes_per_host
    name = job.launcher
    if job.distribution is not None:
        name, processes = _strategy(job.distribution)
    elif not name and (image.components & LIBRARIES or image.has_compiler):
        _refuse(
            f"only SageMaker starts the library that `{image.name}` was made for",
            "use `bake launch`, or set `launcher: torchrun` in a job file",
        )
    elif not name and _is_mirrored(image) and group.count > 1 and processes is None:
        name = "tensorflow"
    elif not name and not (image.entry_point and group.count == 1 and processes is None):
        has_torchrun = "torchrun" in image.launchers
        name = default_launcher(image.launchers, starts_torchrun=has_torchrun) if image.launchers else SCRIPT
    if name in ("torchrun", "mpirun") and name not in image.launchers:
        launchers = format_names(image.launchers)
        hint = f"use {launchers}" if launchers else "use an image with a launcher; this one has none"
        _refuse(f"`{image.name}` can't start a job with `{name}`", hint)
    if name == "tensorflow" and image.framework != "tensorflow":
        _refuse(f"`{image.name}` has no TensorFlow", f"use {format_names((*image.launchers, SCRIPT))}")
    is_single = name in ("tensorflow", SCRIPT)
    if is_single and processes not in (None, 1):
        _refuse(f"`{name}` starts one process on each host", "use `processes_per_host` with a launcher")
    launchers_by_name: Mapping[str, Launcher] = {
        "torchrun": "torchrun",
        "mpirun": "mpirun",
        "tensorflow": "tensorflow",
    }
    return launchers_by_name.get(name, ""), 1 if is_single else processes or group.gpus or 1


def _is_mirrored(image: LaunchImage) -> bool:
    """Return whether MultiWorkerMirroredStrategy connects hosts by default, with or without a toolkit.

    Only the toolkit needs TensorFlow 2.9 for it: jobs of clusters set TF_CONFIG themselves.
    """
    return image.framework == "tensorflow" and not image.has_horovod


def _strategy(distribution: Mapping[str, object]) -> tuple[str, int | None]:
    """Return the launcher of a `distribution`, and its ranks on each host if they are given."""
    for name, settings in distribution.items():
        if name not in _STRATEGIES:
            _refuse(
                f"only SageMaker starts the strategy `{name}`",
                "use `torch_distributed`, `mpi` or `multi_worker_mirrored_strategy`, or `bake launch`",
            )
        values = settings if isinstance(settings, Mapping) else {}
        if extra := [key for key in values if key not in _SWITCHES]:
            _refuse(f"jobs of clusters have no `{name}.{extra[0]}`", "remove it, or use `bake launch`")
        if not name[0].isupper() and values.get("enabled") is not True:
            continue
        count = next((values[key] for key in _PROCESSES if key in values), None)
        if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 1):
            _refuse(f"`{name}` has {count!r} ranks on each host", "use a number of at least 1")
        return _STRATEGIES[name], count
    return SCRIPT, None


def _check_form(form: str, image: LaunchImage, launcher: Launcher, hosts: int) -> None:
    """Raise UsageError if the form cannot start a launcher on several hosts."""
    if form == "hyperpod" and launcher != "torchrun":
        _refuse(
            f"HyperPod's training operator starts PyTorch as torchrun does, not `{launcher or SCRIPT}`",
            "set `launcher: torchrun` in a job file, or use `--for kubernetes`",
        )
    if launcher != "mpirun" or hosts == 1:
        return
    if form == "kubernetes":
        _refuse(
            "a Job of Kubernetes has no list of hosts for `mpirun`",
            "use `--for kubeflow`, whose controller makes it, or one host",
        )
    if form == "kubeflow" and "sshd" not in image.components:
        _refuse(
            f"`mpirun` needs ssh on several hosts, but `{image.name}` has no component `sshd`",
            "add the component `sshd`, or use one host",
        )


def _findings(
    image: LaunchImage, job: JobSpec, group: InstanceGroup, launcher: Launcher, processes: int
) -> Findings:
    findings = Findings()
    if group.instance_type:
        check_instances(TrainingRequest(groups=(group,)), image, findings)
    check_processes("processes_per_host", processes, group, findings)
    environment = [f"{name}={value}" for name, value in job.environment.items()]
    check_rdma("environment", environment, group, image.versions.get("libfabric", ""), findings)
    check_variable_names(job.environment, findings)
    channels: dict[str, str] = {}
    for name in job.inputs:
        other = channels.setdefault(_channel_variable(name), name)
        if other != name:
            message = (
                f"the channels `{other}` and `{name}` have the same variable, `{_channel_variable(name)}`"
            )
            findings.add(rules.LIMITS, message, "rename one of them")
    request = TrainingRequest(groups=(group,), environment=job.environment)
    check_variables(request, image, findings, is_sagemaker=False)
    check_nccl((group,), image, findings)
    if launcher == "tensorflow":
        version = image.versions.get("tensorflow", "")
        variables = {**image.environment, **job.environment}
        check_keras(STRATEGIES[launcher], group.count, version, variables, findings)
    if launcher == "torchrun":
        for finding in abbreviation_findings(job.hyperparameters, image.versions, letters_have_one_dash=True):
            findings.add(finding.rule, finding.message, finding.hint)
    if launcher == "mpirun" and group.count > 1 and not group.gpus and _lacks_efa(image, group):
        message = f"`{group.instance_type}` has EFA, but `{image.name}` has no `{EFA}`, so Open MPI uses TCP"
        findings.add(rules.EFA_UNUSED, message, efa_hint(EFA, image))
    return findings


def _lacks_efa(image: LaunchImage, group: InstanceGroup) -> bool:
    """Return whether hosts have EFA, but the image is known to have no `efa`."""
    gap = find_efa_gap(image)
    return bool(group.efa_interfaces and gap and gap.missing == EFA and gap.is_certain)


def _scheduled(
    form: str, image: LaunchImage, job: JobSpec, group: InstanceGroup, launcher: Launcher, processes: int
) -> ScheduledJob:
    script, files, mounts = _code(form, image, job)
    uses_efa = bool(group.efa_interfaces) and group.count > 1 and not _lacks_efa(image, group)
    fabric = fabric_variables(group, image.versions) if uses_efa else {}
    arguments = [
        word
        for name, value in job.hyperparameters.items()
        for word in (f"-{name}" if len(name) == 1 else f"--{name}", argument_text(value))
    ]
    channels = {f"{INPUT}data/{name}": f"{_ML}/input/data/{name}" for name in job.inputs}
    data = {**channels, "model": f"{_ML}/model", "output": f"{_ML}/output/data"}
    variables = {_channel_variable(name): f"{_ML}/input/data/{name}" for name in job.inputs}
    variables |= {"SM_MODEL_DIR": data["model"], "SM_OUTPUT_DATA_DIR": data["output"]}
    interpreter = () if launcher == "torchrun" else ("python3",)
    return ScheduledJob(
        _NAME.sub("-", (job.name or image.name).lower()).strip("-")[:_MAX_NAME].strip("-"),
        image.uri,
        (*interpreter, f"{_CODE}/{script}", *arguments),
        job.time_limit,
        hosts=group.count,
        launcher=launcher,
        processes=processes,
        gpus=group.gpus or 0,
        efa_interfaces=(group.efa_interfaces or 0) if uses_efa else 0,
        instance_type=group.instance_type.removeprefix("ml."),
        environment={**variables, "SM_NUM_GPUS": str(group.gpus or 0), **fabric, **job.environment},
        files=files,
        mounts=mounts,
        data=data,
    )


def _channel_variable(channel: str) -> str:
    return variable_name("SM_CHANNEL_", channel)


def _code(form: str, image: LaunchImage, job: JobSpec) -> tuple[str, dict[str, bytes], dict[str, str]]:
    """Return the script, the files that Kubernetes gets, and the mounts for Slurm."""
    script = image.entry_point or job.entry_point or DEFAULT_SCRIPT
    if not script.endswith(".py"):
        _refuse(f"`{script}` is not a Python script", "jobs of clusters start Python scripts only")
    if image.entry_point:
        if job.source_dir or job.entry_point not in ("", script):
            _refuse(
                f"`{image.name}` contains its own code, `{script}`, so no other code is sent",
                "remove `--entry-point` and `--source-dir`",
            )
        return script, {}, {}
    if job.source_dir.startswith(S3):
        _refuse("a cluster does not unpack archives in S3", "set `--source-dir` to a directory")
    source = Path(job.source_dir or script)
    if not source.exists():
        _refuse(
            f"`{image.name}` contains no script, and `{source}` does not exist",
            "set `--source-dir` and `--entry-point`, or `code` in the recipe",
        )
    if source.is_dir() and (source / REQUIREMENTS).is_file():
        _refuse(
            f"`{source / REQUIREMENTS}` would not be installed",
            "name it in `requirements` of the recipe, so that the image has the packages",
        )
    name = script if source.is_dir() else PurePosixPath(script).name
    tree = code_archive.select(source, name if source.is_dir() else "", lambda _: None)
    if name not in [file.name for file in tree.files]:
        _refuse(f"`{source}` does not contain `{name}`", "set `--entry-point` to a file of `--source-dir`")
    if form != "slurm":
        return name, code_archive.read_files(tree), {}
    path = str(source.resolve())
    if _SEPARATORS.intersection(path):
        _refuse(f"the path `{path}` has a comma or colon, which pyxis does not mount", "move the code")
    return name, {}, {_CODE if source.is_dir() else f"{_CODE}/{name}": path}


def _comments(form: str, image: LaunchImage, job: JobSpec, scheduled: ScheduledJob, state: str) -> str:
    command = "sbatch FILE" if form == "slurm" else "kubectl create -f FILE"
    comments = [f"{image.name}, {state}; for {FORMS[form]}", f"Start it with: {command}"]
    if form == "hyperpod":
        comments.append(f"It is not known whether the image has the package {_AGENT}, which it needs.")
    if job.origin:
        comments.append(f"Missing settings come from {job.origin}.")
    if form == "slurm":
        comments.append("Set DATA to a directory that all hosts share; it gets `model` and `output`.")
    else:
        claim = f"{scheduled.name}-data"
        comments.append(f"It needs the PersistentVolumeClaim {claim}, which gets `model` and `output`.")
    for name, uri in job.inputs.items():
        variable = _channel_variable(name)
        renamed = "" if variable == f"SM_CHANNEL_{name.upper()}" else f" Its variable is {variable}."
        comments.append(f"Channel {name}: copy {uri} to the directory {INPUT}data/{name} there.{renamed}")
    if unused := _sagemaker_settings(job):
        comments.append(f"Not used, because only SageMaker has them: {', '.join(unused)}.")
    # Line breaks in a ledger's values must not end the comment.
    return "".join(f"# {' '.join(comment.split())}\n" for comment in comments)


def _sagemaker_settings(job: JobSpec) -> list[str]:
    """Return the given settings that a cluster does not have."""
    names = ("role", "keep_alive", "output", "volume_gib", "spot", "request")
    unset = JobSpec()
    return [name for name in names if getattr(job, name) != getattr(unset, name)]


def _refuse(message: str, hint: str) -> NoReturn:
    raise UsageError(message, hint=hint)
