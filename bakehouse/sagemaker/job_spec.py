"""The job of `bake estimator` and `bake launch`, and its validation for a release."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import NoReturn

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.instance_types import instances
from bakehouse.cluster.job import Group
from bakehouse.errors import Diagnostic, UsageError
from bakehouse.publish.releases import ReleaseRecord
from bakehouse.sagemaker.distribution import launch_settings
from bakehouse.sagemaker.instance_groups import InstanceGroup, instance_group
from bakehouse.sagemaker.rules import Finding
from bakehouse.sagemaker.training_request import LaunchImage, Sender, TrainingRequest, launch_image
from bakehouse.sagemaker.validate import training_of, validate
from bakehouse.util.format import format_names

SDKS = {
    "v2": "version 2 of the SageMaker SDK",
    "v3": "version 3 of the SageMaker SDK",
    "boto3": "boto3",
}
S3 = "s3://"
_INSTANCE_COUNT = 2
_LAUNCHERS = ("torchrun", "mpirun", "tensorflow")
_STRATEGIES = {
    "mpirun": "mpi",
    "torchrun": "torch_distributed",
    "tensorflow": "multi_worker_mirrored_strategy",
}
_DRIVERS = {"mpirun": "MPI", "torchrun": "Torchrun"}


@dataclass(frozen=True, slots=True)
class JobSpec:
    """Settings of a SageMaker job."""

    sdk: str = "v2"
    """One of `SDKS`."""
    entry_point: str = "train.py"
    """Script to send; ignored for an image that contains its own."""
    source_dir: str = ""
    """Directory of the script, or S3 URI of an archive; empty means to send the script alone."""
    role: str = ""
    """ARN of the execution role; empty means the role of the caller within SageMaker."""
    instance_type: str = ""
    """Empty means a type that suits the image."""
    instance_count: int = 0
    """0 means 2."""
    groups: tuple[Group, ...] = ()
    """Instance groups, instead of one type and count."""
    launcher: str = ""
    processes_per_host: int = 0
    """0 means one for each GPU, or one on hosts without GPUs."""
    distribution: Mapping[str, object] = field(default_factory=dict)
    """Replaces the launcher."""
    hyperparameters: Mapping[str, object] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    keep_alive: int = 0
    """Seconds to keep the instances for the next job."""


@dataclass(frozen=True, slots=True)
class CheckedJob:
    """A job without errors."""

    image: LaunchImage
    request: TrainingRequest
    """Contains the hyperparameters of the distribution if nothing else adds them, and no entry point if the
    image contains its own code."""
    warnings: tuple[Finding, ...] = ()


def check_job(
    record: ReleaseRecord, job: JobSpec, catalog: Catalog | None = None, *, code_root: Path | None = None
) -> CheckedJob:
    """Check a job with a release. Paths of code start at `code_root`; None skips their check.

    Raises UsageError with all errors in the job.
    """
    image = launch_image(record, catalog)
    _check_options(image, job)
    request = _request(image, job, catalog, code_root)
    if job.sdk == "boto3" and request.is_local:
        _refuse("SageMaker does not run local jobs", "use `bake run` to run it on this machine")
    findings = validate(request, replace(image, entry_point=""))
    if errors := [finding for finding in findings if finding.is_error]:
        raise UsageError(*(error.diagnostic for error in errors))
    hyperparameters = request.hyperparameters
    needs_settings = bool(image.entry_point) or job.sdk == "boto3"
    if needs_settings and request.sender != "ModelTrainer":
        settings = launch_settings(request.distribution, training_of(request, image))
        hyperparameters = {**hyperparameters, **settings.hyperparameters}
    script = "" if image.entry_point else request.entry_point
    return CheckedJob(image, replace(request, hyperparameters=hyperparameters, entry_point=script), findings)


def _check_options(image: LaunchImage, job: JobSpec) -> None:
    """Raise UsageError if settings are missing or contradict each other."""
    source_dir = job.source_dir
    if job.sdk not in SDKS:
        _refuse(f"unknown SDK `{job.sdk}`", f"set `--sdk` to one of {', '.join(SDKS)}")
    if job.sdk == "boto3" and not job.role:
        message = "a boto3 request needs the execution role"
        _refuse(message, "set `--role arn:aws:iam::123456789012:role/SageMakerRole`")
    if job.groups and (job.instance_type or job.instance_count):
        hint = "give each group its type and count: `--group data=ml.c5.18xlarge:2`"
        _refuse("`--group` replaces `--instance-type` and `--instance-count`", hint)
    if job.distribution and (job.launcher or job.processes_per_host):
        message = "`--distribution` replaces `--launcher` and `--processes-per-host`"
        _refuse(message, "set them in the distribution")
    if image.entry_point and (source_dir or job.entry_point != JobSpec().entry_point):
        message = f"`{image.name}` contains its own code, `{image.entry_point}`, so no other code is sent"
        _refuse(message, "remove `--entry-point` and `--source-dir`")
    if source_dir and not source_dir.startswith(S3) and not Path(source_dir).is_dir():
        hint = "set `--source-dir` to the directory with the entry point, or to an archive in S3"
        _refuse(f"the directory `{source_dir}` does not exist", hint)
    if source_dir.startswith(S3) and not source_dir.endswith(".tar.gz"):
        hint = "use a `.tar.gz` file, such as `s3://bucket/code/sourcedir.tar.gz`"
        _refuse(f"`--source-dir {source_dir}` is not an archive", hint)


def _request(
    image: LaunchImage, job: JobSpec, catalog: Catalog | None, code_root: Path | None
) -> TrainingRequest:
    """Return the request to check. It contains an entry point even if the image has its own."""
    instance_types = instances(catalog) if catalog else {}
    default_type = "ml.g5.12xlarge" if image.gpu else "ml.c5.2xlarge"
    single_group = Group("", job.instance_type or default_type, job.instance_count or _INSTANCE_COUNT)
    groups = tuple(
        instance_group(instance_types, group.instance_type, group.count, group.name)
        for group in job.groups or (single_group,)
    )
    sender: Sender = "TensorFlow" if image.framework == "tensorflow" else "PyTorch"
    if job.sdk == "v3" and not image.entry_point:
        sender = "ModelTrainer"
    source_dir, entry_point = job.source_dir, image.entry_point or job.entry_point
    script = PurePosixPath(entry_point)
    if sender == "ModelTrainer" and not source_dir:
        source_dir, entry_point = str(script.parent), script.name
    return TrainingRequest(
        sender=sender,
        groups=groups,
        distribution=job.distribution or _distribution(image, job, sender, groups),
        entry_point=entry_point,
        source_dir=source_dir,
        hyperparameters=job.hyperparameters,
        environment=job.environment,
        framework_version=image.versions["tensorflow"] if sender == "TensorFlow" else "",
        keep_alive=job.keep_alive or None,
        code_root=None if image.entry_point else code_root,
    )


def _distribution(
    image: LaunchImage, job: JobSpec, sender: Sender, groups: tuple[InstanceGroup, ...]
) -> Mapping[str, object]:
    """Return the distribution that makes the toolkit or the SDK's drivers use the launcher."""
    launcher = _launcher(image, job, sender)
    if not launcher:
        return {}
    is_driver = sender == "ModelTrainer"
    if job.processes_per_host and launcher != "mpirun" and not is_driver:
        message = f"`{launcher}` starts one process for each GPU, or one on hosts without GPUs"
        _refuse(message, "use `--processes-per-host` with `mpirun` only")
    if is_driver:
        processes = {"process_count_per_node": job.processes_per_host} if job.processes_per_host else {}
        return {_DRIVERS[launcher]: processes}
    settings: dict[str, object] = {"enabled": True}
    if job.processes_per_host:
        settings["processes_per_host"] = job.processes_per_host
    distribution: dict[str, object] = {_STRATEGIES[launcher]: settings}
    with_gpus = [group.name for group in groups if group.gpus]
    if len(groups) > 1 and len(with_gpus) == 1:
        distribution["instance_groups"] = with_gpus
    return distribution


def _launcher(image: LaunchImage, job: JobSpec, sender: Sender) -> str:
    """Return the requested launcher, or else the framework's own before MPI."""
    module = image.training_module
    launchers = [name for name in _LAUNCHERS if name in image.launchers]
    if sender != "ModelTrainer" and "pytorch" not in module and "torchrun" in launchers:
        # The SageMaker Training Toolkit itself does not support torchrun.
        launchers.remove("torchrun")
    if sender != "ModelTrainer" and "tensorflow" in module:
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
    raise UsageError(Diagnostic(message, hint=hint))
