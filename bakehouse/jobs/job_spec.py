"""Settings of a SageMaker job, and their check with an image."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import NoReturn

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.instance_types import instances
from bakehouse.catalog.user_smoke import SCRIPT
from bakehouse.cluster.job import Group
from bakehouse.errors import UsageError
from bakehouse.jobs import rules
from bakehouse.jobs.api_fields import CHANNELS, ApiField
from bakehouse.jobs.distribution import MIRRORED, OLDEST_MIRRORED, is_for_tensorflow, launch_settings
from bakehouse.jobs.image_checks import COMPILER_TENSORFLOW
from bakehouse.jobs.instance_groups import InstanceGroup, instance_group, numbers
from bakehouse.jobs.model_trainer import REQUIREMENTS, drivers, is_for_model_trainer
from bakehouse.jobs.rules import RuleViolation
from bakehouse.jobs.sdk_channels import channel_inputs, channel_objects
from bakehouse.jobs.sdk_fields import estimator_argument, trainer_argument
from bakehouse.jobs.smp_parameters import SmpContext
from bakehouse.jobs.training_request import LaunchImage, Sender, TrainingRequest
from bakehouse.jobs.validate import launch_context, validate
from bakehouse.util.format import format_names

SDKS = {"v2": "version 2 of the SageMaker SDK", "v3": "version 3 of the SageMaker SDK", "boto3": "boto3"}
_MAX_RUN, _MAX_WAIT = "StoppingCondition.MaxRuntimeInSeconds", "StoppingCondition.MaxWaitTimeInSeconds"
_KEEP_ALIVE = "ResourceConfig.KeepAlivePeriodInSeconds"
_OUTPUT = "OutputDataConfig.S3OutputPath"
_FILE_MODE = ("AlgorithmSpecification.TrainingInputMode", "File")
_VOLUME, _SPOT = "ResourceConfig.VolumeSizeInGB", "EnableManagedSpotTraining"
MAX_SPOT_WAIT = 3600
"""Seconds that a job waits for Spot capacity, beyond its time limit."""
DEFAULT_SCRIPT = "train.py"
"""Script of a job that names none."""
_LIMITS_OF_V3 = (rules.DRIVER, rules.GROUPS_V3, rules.RANKS_V3)
"""Warnings about jobs that SDK v3 starts differently from SDK v2."""
S3 = "s3://"
DAY = 24 * 60 * 60
VOLUME_GIB = 30
_GPUS = 8
"""GPUs of a host whose type is unknown. All types for SMP have this number."""
_LAUNCHERS = ("torchrun", "mpirun", "tensorflow")
LAUNCHERS = (*_LAUNCHERS, SCRIPT)
"""Values of `launcher`; the last one starts the script once on each host."""
STRATEGIES = {
    "mpirun": "mpi",
    "torchrun": "torch_distributed",
    "tensorflow": "multi_worker_mirrored_strategy",
}
DRIVERS = {"mpirun": "MPI", "torchrun": "Torchrun"}
LIBRARIES = frozenset({"smp", "aws-smp2", "smddp"})
"""Components that are the purpose of an image: jobs use these libraries unless a launcher is set."""
COMPILER = "sagemaker_training_compiler_enabled"
_COMPILER_DEBUG = "sagemaker_training_compiler_debug_mode"
_XLA_LAUNCHER = "sagemaker_pytorch_xla_multi_worker_enabled"
_OLDEST_XLA = (1, 11)
"""PyTorch with which the toolkit of AWS's compiler images starts XLA's launcher."""


@dataclass(frozen=True, slots=True)
class JobSpec:
    """Settings of a SageMaker job, as they are given. None and empty texts mean that nothing is given."""

    sdk: str = ""
    """One of `SDKS`; empty means v3, or v2 for a job that v3 cannot start."""
    entry_point: str = ""
    """Script to send; empty means the script of the image, or else `train.py`."""
    source_dir: str = ""
    """Directory of the script, or S3 URI of an archive; empty means to send the script alone."""
    role: str = ""
    """ARN of the execution role; empty means the role of the caller within SageMaker."""
    instance_type: str = ""
    """Empty means a type that suits the image."""
    instance_count: int | None = None
    """None means the number of the smoke test, or else one."""
    groups: tuple[Group, ...] = ()
    """Instance groups, instead of one type and count."""
    launcher: str = ""
    """One of `LAUNCHERS`; empty means the launcher that suits the image."""
    processes_per_host: int | None = None
    """None means one for each GPU, or one on hosts without GPUs."""
    distribution: Mapping[str, object] | None = None
    """Replaces the launcher; empty means no launcher, and None the launcher that suits the image."""
    hyperparameters: Mapping[str, object] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    keep_alive: int | None = None
    """Seconds to keep the instances for the next job."""
    channels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Instance groups of each channel; empty means all."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """S3 URIs of the channels; directories for a job on this machine."""
    output: str = ""
    """S3 URI for the model and the code; empty means the bucket of the SageMaker SDK."""
    name: str = ""
    """Empty means image name and time."""
    max_run: int | None = None
    """Seconds until SageMaker stops the job; each host may be billed for so long. None means a day."""
    volume_gib: int | None = None
    """Disk of each host; None means 30."""
    spot: bool | None = None
    """Use Spot instances."""
    request: tuple[ApiField, ...] = ()
    """Further fields of CreateTrainingJob."""
    origin: str = field(default="", compare=False)
    """Source of the settings that the command does not give."""

    @property
    def hosts(self) -> int:
        """Number of hosts of a job without instance groups."""
        return 1 if self.instance_count is None else self.instance_count

    @property
    def time_limit(self) -> int:
        return DAY if self.max_run is None else self.max_run

    @property
    def disk_gib(self) -> int:
        return VOLUME_GIB if self.volume_gib is None else self.volume_gib

    @property
    def api_fields(self) -> tuple[ApiField, ...]:
        """The fields of the API except those of the hosts, the image and the script."""
        given = {field.path: field for field in self.request}
        own = {_MAX_RUN: ApiField(_MAX_RUN, "max_run", self.time_limit)}
        own[_VOLUME] = ApiField(_VOLUME, "volume_size", self.disk_gib)
        if self.keep_alive is not None:
            own[_KEEP_ALIVE] = ApiField(_KEEP_ALIVE, "keep_alive", self.keep_alive)
        if self.spot:
            own[_SPOT] = ApiField(_SPOT, _SPOT, True)
            own[_MAX_WAIT] = ApiField(_MAX_WAIT, _MAX_WAIT, self.time_limit + MAX_SPOT_WAIT)
        return tuple({**own, **given}.values())

    @property
    def sdk_fields(self) -> tuple[ApiField, ...]:
        """The given fields that code of the SDK has to set, apart from its defaults."""
        defaults = {_MAX_RUN, _KEEP_ALIVE} | ({_VOLUME} if self.volume_gib is None else set())
        fields = tuple(
            field
            for field in self.api_fields
            if field.path not in defaults and (field.path, field.value) != _FILE_MODE
        )
        return (*fields, ApiField(_OUTPUT, "output", self.output)) if self.output else fields


@dataclass(frozen=True, slots=True)
class CheckedJob:
    """A job with the findings about it."""

    request: TrainingRequest
    findings: tuple[RuleViolation, ...]
    """Errors first, then warnings."""
    image: LaunchImage | None
    """None if the SDK selects an image of AWS by the version of its framework."""
    sdk: str = ""
    """One of `SDKS`; empty for a job from a file."""
    reason: str = ""
    """Reason why v3 cannot start the job, if v2 was selected instead."""

    @property
    def title(self) -> str:
        return self.image.name if self.image else "image of AWS"

    @property
    def is_known(self) -> bool:
        """False if it is not known whether the job violates a rule."""
        return all(finding.rule.is_known for finding in self.findings)

    @property
    def errors(self) -> tuple[RuleViolation, ...]:
        return tuple(finding for finding in self.findings if finding.is_error)

    @property
    def warnings(self) -> tuple[RuleViolation, ...]:
        return tuple(finding for finding in self.findings if not finding.is_error)


def check_job(
    image: LaunchImage, job: JobSpec, catalog: Catalog | None = None, *, code_root: Path | None = None
) -> CheckedJob:
    """Check a job with an image. Paths of code start at `code_root`; None skips their check.

    Raises UsageError if its settings are incomplete or contradict each other.
    """
    job, reason = _select_sdk(image, job, catalog, code_root)
    request, findings = _findings(image, job, catalog, code_root)
    return CheckedJob(request, findings, image, job.sdk, reason)


def valid_job(
    image: LaunchImage, job: JobSpec, catalog: Catalog | None = None, *, code_root: Path | None = None
) -> CheckedJob:
    """Return a job whose request can be sent; raise UsageError with all its errors.

    The request contains the hyperparameters of the distribution if nothing else adds them, and no entry point
    if the image contains its own code.
    """
    checked = check_job(image, job, catalog, code_root=code_root)
    if checked.errors:
        raise UsageError.of(*(error.diagnostic for error in checked.errors))
    request = checked.request
    hyperparameters = request.hyperparameters
    needs_settings = bool(image.entry_point) or checked.sdk == "boto3"
    if needs_settings and request.sender != "ModelTrainer":
        settings = launch_settings(request.distribution, launch_context(request, image))
        hyperparameters = {**hyperparameters, **settings.hyperparameters}
    script = "" if image.entry_point else request.entry_point
    request = replace(request, hyperparameters=hyperparameters, entry_point=script)
    return replace(checked, request=request)


def _select_sdk(
    image: LaunchImage, job: JobSpec, catalog: Catalog | None, code_root: Path | None
) -> tuple[JobSpec, str]:
    """Return the job with an SDK, and the reason if that is v2 because v3 cannot start the job."""
    if job.sdk:
        return job, ""
    job = replace(job, sdk="v3")
    if job.distribution is not None and is_for_model_trainer(job.distribution):
        return job, ""
    try:
        _, findings = _findings(image, job, catalog, code_root)
        limits = [finding for finding in findings if finding.is_error or finding.rule in _LIMITS_OF_V3]
        reason = limits[0].message if limits else ""
    except UsageError as error:
        reason = error.diagnostics[0].message
    if reason and any(
        not estimator_argument(field.path) and not _has_channels("v2", field) for field in job.sdk_fields
    ):
        return replace(job, sdk="boto3"), reason
    return replace(job, sdk="v2") if reason else job, reason


def _findings(
    image: LaunchImage, job: JobSpec, catalog: Catalog | None, code_root: Path | None
) -> tuple[TrainingRequest, tuple[RuleViolation, ...]]:
    """Return the request of a job that names its SDK, and all findings about it.

    Raises UsageError if its settings are incomplete or contradict each other.
    """
    _check_options(image, job)
    request = _request(image, job, catalog, code_root)
    if job.sdk == "v3" and request.is_local and image.entry_point:
        _refuse("SDK v3 has no instance type `local`", "use `bake run` to run the job on this machine")
    if job.sdk == "boto3" and request.is_local:
        _refuse("SageMaker does not run local jobs", "use `bake run` to run it on this machine")
    findings = validate(request, replace(image, entry_point=""))
    if not request.is_local and not any(finding.is_error for finding in findings):
        # Its module needs this one.
        from bakehouse.jobs.create_training_job import sent_findings

        findings = (*sent_findings(request, image, job).errors, *findings)
    return request, findings


def _check_options(image: LaunchImage, job: JobSpec) -> None:
    """Raise UsageError if settings are missing or contradict each other."""
    source_dir = job.source_dir
    check_processes_per_host(job.processes_per_host)
    if job.sdk not in SDKS:
        _refuse(f"unknown SDK `{job.sdk}`", f"set `--sdk` to one of {', '.join(SDKS)}")
    if job.sdk == "boto3" and not job.role:
        message = "a boto3 request needs the execution role"
        _refuse(message, "set `--role arn:aws:iam::123456789012:role/SageMakerRole`")
    argument_of = {"v2": estimator_argument, "v3": trainer_argument}.get(job.sdk)
    missing = [
        field.path
        for field in job.sdk_fields
        if argument_of and not argument_of(field.path) and not _has_channels(job.sdk, field)
    ]
    if missing:
        _refuse(f"{SDKS[job.sdk]} has no argument for `{missing[0]}`", "use `--sdk boto3`, or `bake launch`")
    if job.groups and (job.instance_type or job.instance_count is not None):
        hint = "give each group its type and count: `--group data=ml.c5.18xlarge:2`"
        _refuse("`--group` replaces `--instance-type` and `--instance-count`", hint)
    if job.distribution is not None and (job.launcher or job.processes_per_host is not None):
        message = "`distribution` replaces `launcher` and `processes_per_host`"
        _refuse(message, "set them in the distribution")
    if image.entry_point and (source_dir or job.entry_point not in ("", image.entry_point)):
        message = f"`{image.name}` contains its own code, `{image.entry_point}`, so no other code is sent"
        _refuse(message, "remove `--entry-point` and `--source-dir`")
    if source_dir and not source_dir.startswith(S3) and not Path(source_dir).is_dir():
        hint = "set `--source-dir` to the directory with the entry point, or to an archive in S3"
        _refuse(f"the directory `{source_dir}` does not exist", hint)
    if source_dir.startswith(S3) and not source_dir.endswith(".tar.gz"):
        hint = "use a `.tar.gz` file, such as `s3://bucket/code/sourcedir.tar.gz`"
        _refuse(f"`--source-dir {source_dir}` is not an archive", hint)


def _has_channels(sdk: str, field: ApiField) -> bool:
    """Return whether a field has the channels of the job, in a form that a version of the SDK supports."""
    channels = channel_inputs if sdk == "v2" else channel_objects
    return field.path == CHANNELS and channels(field.value) is not None


def check_processes_per_host(count: int | None) -> None:
    """Raise UsageError for a number of ranks below 1."""
    if count is not None and count < 1:
        _refuse(f"a host cannot have {count} ranks", "set `processes_per_host` to at least 1")


def _request(
    image: LaunchImage, job: JobSpec, catalog: Catalog | None, code_root: Path | None
) -> TrainingRequest:
    """Return the request to check. It contains an entry point even if the image has its own."""
    instance_types = instances(catalog) if catalog else {}
    default_type = "ml.g5.12xlarge" if image.gpu else "ml.c5.2xlarge"
    if image.neuron_architecture:
        default_type = "ml.trn1.32xlarge"
    if image.components & LIBRARIES:
        # SMP and SMDDP do not support G5.
        default_type = "ml.p4d.24xlarge"
    single_group = _preferred(job) or Group("", job.instance_type or default_type, job.hosts)
    groups = tuple(
        instance_group(instance_types, group.instance_type, group.count, group.name)
        for group in job.groups or (single_group,)
    )
    # Unknown content may be TensorFlow
    wanted = job.distribution or [STRATEGIES.get(job.launcher, "")]
    needs_tensorflow = not image.is_known and is_for_tensorflow(wanted)
    is_tensorflow = image.framework == "tensorflow" or needs_tensorflow
    sender: Sender = "TensorFlow" if is_tensorflow else "PyTorch"
    if job.sdk == "v3" and not image.entry_point:
        sender = "ModelTrainer"
    source_dir, entry_point = job.source_dir, image.entry_point or job.entry_point or DEFAULT_SCRIPT
    script, requirements = PurePosixPath(entry_point), ""
    if sender == "ModelTrainer" and not source_dir:
        source_dir, entry_point = str(script.parent), script.name
    elif sender == "ModelTrainer" and Path(source_dir, REQUIREMENTS).is_file():
        # The toolkit installs this file by itself, but the SDK's drivers do not.
        requirements = REQUIREMENTS
    # For this strategy the SDK wants a version, although `image_uri` selects the image
    is_asked = not image.is_known and MIRRORED in wanted
    least = ".".join(map(str, OLDEST_MIRRORED)) if is_asked else ""
    framework_version = image.versions.get("tensorflow", least) if sender == "TensorFlow" else ""
    is_off = job.hyperparameters.get(COMPILER) is False
    compiler = {} if is_off else _compiler_parameters(image, sender)
    oldest, newest = COMPILER_TENSORFLOW
    # In the other classes, the SDK does not accept a compiler_config together with an image_uri.
    has_config = sender == "TensorFlow" and job.sdk == "v2" and not image.entry_point
    has_config = has_config and oldest <= numbers(framework_version) <= newest
    distribution = job.distribution
    if distribution is None:
        distribution = _distribution(image, job, sender, groups)
    elif sender == "ModelTrainer":
        distribution = drivers(distribution)
    is_compiled = bool(compiler) and has_config and COMPILER not in job.hyperparameters
    return TrainingRequest(
        sender=sender,
        groups=groups,
        distribution=distribution,
        entry_point=entry_point,
        source_dir=source_dir,
        requirements=requirements,
        hyperparameters=job.hyperparameters if is_compiled else {**compiler, **job.hyperparameters},
        environment=job.environment,
        framework_version=framework_version,
        compiler=True if is_compiled else None,
        keep_alive=job.keep_alive,
        channels=job.channels,
        code_root=None if image.entry_point else code_root,
        fields=job.api_fields,
    )


def _preferred(job: JobSpec) -> Group | None:
    """Return the first of the instance types that a job prefers; None if it has no list of them."""
    path = "ResourceConfig.InstancePreferences"
    preferences = next((field.value for field in job.request if field.path == path), None)
    first = preferences[0] if isinstance(preferences, list) and preferences else None
    if not isinstance(first, dict) or not isinstance(first.get("InstanceType"), str) or job.instance_type:
        return None
    count = first.get("InstanceCount")
    return Group("", first["InstanceType"], count if isinstance(count, int) else job.hosts)


def _distribution(
    image: LaunchImage, job: JobSpec, sender: Sender, groups: tuple[InstanceGroup, ...]
) -> Mapping[str, object]:
    """Return the distribution that makes the toolkit or the SDK's drivers use the launcher."""
    if job.launcher == SCRIPT or (not job.launcher and image.has_compiler):
        return {}
    if not job.launcher and image.components & LIBRARIES:
        return _library(image, job, sender, groups)
    is_alone = image.entry_point and not groups[0].name and groups[0].count == 1
    if is_alone and not job.launcher and job.processes_per_host is None:
        return {}
    launcher = _launcher(image, job, sender, groups)
    if not launcher:
        return {}
    is_driver = sender == "ModelTrainer"
    if job.processes_per_host and launcher != "mpirun" and not is_driver:
        message = f"`{launcher}` starts one process for each GPU, or one on hosts without GPUs"
        _refuse(message, "use `processes_per_host` with `mpirun` only")
    if is_driver:
        processes = {"process_count_per_node": job.processes_per_host} if job.processes_per_host else {}
        return {DRIVERS[launcher]: processes}
    return {**strategy(launcher, job.processes_per_host), **_launch_group(groups)}


def strategy(launcher: str, processes_per_host: int | None) -> dict[str, object]:
    """Return the distribution of an estimator that starts ranks with a launcher other than `script`."""
    processes = {"processes_per_host": processes_per_host} if processes_per_host else {}
    return {STRATEGIES[launcher]: {"enabled": True, **processes}}


def _launch_group(groups: tuple[InstanceGroup, ...]) -> dict[str, object]:
    """Return the only group with GPUs of a heterogeneous job as the group of its launcher."""
    with_gpus = [group.name for group in groups if group.gpus]
    return {"instance_groups": with_gpus} if len(groups) > 1 and len(with_gpus) == 1 else {}


def _library(
    image: LaunchImage, job: JobSpec, sender: Sender, groups: tuple[InstanceGroup, ...]
) -> Mapping[str, object]:
    """Return the distribution that starts SMP or SMDDP, the library that the image was made for."""
    on = {"enabled": True}
    if not image.smp and sender == "ModelTrainer":
        message = "SDK v3 has no launcher for SMDDP"
        _refuse(message, "use `--sdk v2`, `--sdk boto3` or `launcher: torchrun` in a job file")
    if not image.smp:
        if job.processes_per_host:
            _refuse("SMDDP starts one process for each GPU", "use `processes_per_host` with `mpirun` only")
        return {"smdistributed": {"dataparallel": on}, **_launch_group(groups)}
    hosts = [group for group in groups if group.gpus] or list(groups)
    processes = job.processes_per_host or hosts[0].gpus or _GPUS
    ranks = processes * sum(group.count for group in hosts)
    if numbers(image.smp) >= (2,):
        shards = {"hybrid_shard_degree": ranks}
        if sender == "ModelTrainer":
            return {"Torchrun": {"smp": shards}}
        library = {"modelparallel": {**on, "parameters": shards}}
        return {"smdistributed": library, "torch_distributed": on}
    if sender == "ModelTrainer":
        _refuse("SDK v3 does not support SMP 1", "use `--sdk v2` or `--sdk boto3`")
    degree = SmpContext(image.smp, 1, image.framework, ranks).degree
    parameters = {degree: 1 if ranks % 2 else 2, **({"ddp": True} if image.framework == "pytorch" else {})}
    return {
        "smdistributed": {"modelparallel": {**on, "parameters": parameters}},
        "mpi": {**on, "processes_per_host": processes},
        **_launch_group(groups),
    }


def _compiler_parameters(image: LaunchImage, sender: Sender) -> Mapping[str, object]:
    """Return the hyperparameters with which a compiler_config enables SageMaker Training Compiler."""
    if not image.has_compiler:
        return {}
    if sender == "ModelTrainer":
        message = "SDK v3 does not support SageMaker Training Compiler"
        _refuse(message, "use `--sdk v2` or `--sdk boto3`")
    has_launcher = image.framework == "pytorch" and numbers(image.versions["pytorch"]) >= _OLDEST_XLA
    launcher = {_XLA_LAUNCHER: True} if has_launcher else {}
    return {COMPILER: True, _COMPILER_DEBUG: False, **launcher}


def _launcher(image: LaunchImage, job: JobSpec, sender: Sender, groups: tuple[InstanceGroup, ...]) -> str:
    """Return the requested launcher, or else the framework's own before MPI."""
    # MultiWorkerMirroredStrategy has no instance groups.
    suits_tensorflow = image.is_mirrored and len(groups) < 2
    is_mirrored = job.launcher == "tensorflow" or (
        not job.launcher and suits_tensorflow and not job.processes_per_host
    )
    has_tensorflow = "tensorflow" in image.training_module or not image.is_known
    if is_mirrored and has_tensorflow and sender == "ModelTrainer":
        if sum(group.count for group in groups) == 1:
            return ""
        message = "SDK v3 does not set TF_CONFIG, which MultiWorkerMirroredStrategy needs on several hosts"
        _refuse(message, "use `--sdk v2`, `--sdk boto3` or `launcher: mpirun` in a job file")
    if not image.is_known:
        if job.launcher not in ("", *_LAUNCHERS):
            _refuse(f"unknown launcher `{job.launcher}`", f"use {format_names(LAUNCHERS)}")
        return job.launcher
    module = image.training_module
    launchers = [name for name in _LAUNCHERS if name in image.launchers]
    if sender != "ModelTrainer" and "pytorch" not in module and "torchrun" in launchers:
        # The SageMaker Training Toolkit itself does not support torchrun.
        launchers.remove("torchrun")
    if sender != "ModelTrainer" and (suits_tensorflow or (job.launcher and "tensorflow" in module)):
        launchers.insert(0, "tensorflow")
    if not job.launcher:
        default = launchers[0] if launchers else ""
        return "mpirun" if job.processes_per_host and "mpirun" in launchers else default
    if job.launcher not in launchers:
        hint = (
            f"use {format_names(launchers)}"
            if launchers
            else "use an image with a launcher; this one has none"
        )
        _refuse(f"`{image.name}` can't start a job with `{job.launcher}`", hint)
    return job.launcher


def _refuse(message: str, hint: str) -> NoReturn:
    raise UsageError(message, hint=hint)
