"""What a person wants of a training job, and the request that it makes for a released image, checked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NoReturn

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.instance_types import instances
from bakehouse.cluster.job import Group
from bakehouse.errors import Diagnostic, UsageError
from bakehouse.publish.releases import ReleaseRecord
from bakehouse.sagemaker.distribution import launch_settings
from bakehouse.sagemaker.findings import Finding
from bakehouse.sagemaker.instance_groups import InstanceGroup, instance_group
from bakehouse.sagemaker.training_request import LaunchImage, Sender, TrainingRequest, launch_image
from bakehouse.sagemaker.validate import check, training_of

Sdk = Literal["v2", "v3", "boto3"]
SDKS: tuple[Sdk, ...] = ("v2", "v3", "boto3")
S3 = "s3://"
_LAUNCHERS = ("torchrun", "mpirun", "tensorflow")
_STRATEGIES = {
    "mpirun": "mpi",
    "torchrun": "torch_distributed",
    "tensorflow": "multi_worker_mirrored_strategy",
}
_DRIVERS = {"mpirun": "MPI", "torchrun": "Torchrun"}


@dataclass(frozen=True, slots=True)
class JobSpec:
    """What a person may want otherwise than the code's defaults."""

    sdk: Sdk = "v2"
    entry_point: str = "train.py"
    """The script to send along; an image that carries its own gets none."""
    source_dir: str = ""
    role: str = ""
    """An execution role's ARN; empty is the one that the code itself runs as, within SageMaker."""
    instance_type: str = ""
    instance_count: int = 2
    groups: tuple[tuple[str, str, int], ...] = ()
    """The name, type and count of each group, in place of one type and count."""
    launcher: str = ""
    processes_per_host: int | None = None
    """None is one for each GPU, or one where there are none."""
    distribution: Mapping[str, object] = field(default_factory=dict)
    """In place of what the launcher stands for."""
    hyperparameters: Mapping[str, object] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    keep_alive: int | None = None


def job_spec_from_options(
    *,
    sdk: str,
    source_dir: str,
    instance_type: str,
    instance_count: int,
    groups: Sequence[Group],
    launcher: str,
    processes_per_host: int,
    distribution: Mapping[str, object],
    keep_alive: int,
    **others: Any,
) -> JobSpec:
    """The job of a command line; raises UsageError where its words don't go together."""

    if sdk not in SDKS:
        _refuse(f"`--sdk {sdk}` is none", f"it is one of {', '.join(SDKS)}")
    if groups and (instance_type or instance_count):
        hint = "give every group its type and count: `--group data=ml.c5.18xlarge:2`"
        _refuse("`--group` takes the place of `--instance-type` and `--instance-count`", hint)
    if distribution and (launcher or processes_per_host):
        message = "`--distribution` takes the place of `--launcher` and `--processes-per-host`"
        _refuse(message, "say it in the distribution")
    if source_dir and not source_dir.startswith(S3) and not Path(source_dir).is_dir():
        hint = "`--source-dir` is the folder that holds the entry point, or an archive in S3"
        _refuse(f"there is no folder `{source_dir}`", hint)
    if source_dir.startswith(S3) and not source_dir.endswith(".tar.gz"):
        hint = "the toolkit fetches an archive, as in `s3://bucket/code/sourcedir.tar.gz`"
        _refuse(f"`--source-dir {source_dir}` is no archive", hint)
    return JobSpec(
        sdk=sdk,
        source_dir=source_dir,
        instance_type=instance_type,
        instance_count=instance_count or JobSpec().instance_count,
        groups=tuple((group.name, group.instance_type, group.count) for group in groups),
        launcher=launcher,
        processes_per_host=processes_per_host or None,
        distribution=distribution,
        keep_alive=keep_alive or None,
        **others,
    )


@dataclass(frozen=True, slots=True)
class CheckedJob:
    """A job that nothing is wrong with, as the image gets it."""

    image: LaunchImage
    request: TrainingRequest
    """With what the distribution turns into, where nobody else adds it; without an entry point for an image
    that brings its code."""
    warnings: tuple[Finding, ...] = ()


def check_job(
    record: ReleaseRecord, job: JobSpec, catalog: Catalog | None = None, *, folder: Path | None = None
) -> CheckedJob:
    """The job that is asked for with a released image; `folder` is where its code is looked for.

    Raises UsageError with everything that is wrong with the job.
    """
    image = launch_image(record, catalog)
    if job.sdk == "boto3" and not job.role:
        message = "a request of boto3 names the role that the job runs as"
        _refuse(message, "`--role arn:aws:iam::123456789012:role/SageMakerRole`")
    request = _request(image, job, catalog, folder)
    if job.sdk == "boto3" and request.is_local:
        _refuse("a local job is not sent to SageMaker", "`./bake run` runs it on this machine")
    found = check(request, replace(image, entry_point=""))
    if errors := [one for one in found if one.is_error]:
        raise UsageError(*(one.diagnostic for one in errors))
    settings = request.hyperparameters
    is_told = bool(image.entry_point) or job.sdk == "boto3"
    if is_told and request.sender != "ModelTrainer":
        settings = {
            **settings,
            **launch_settings(request.distribution, training_of(request, image)).hyperparameters,
        }
    script = "" if image.entry_point else request.entry_point
    return CheckedJob(image, replace(request, hyperparameters=settings, entry_point=script), found)


def _request(
    image: LaunchImage, job: JobSpec, catalog: Catalog | None, folder: Path | None
) -> TrainingRequest:
    """The job as it is checked: as if it brought its code, for the same launcher."""
    known = instances(catalog) if catalog else {}
    asked = job.groups or (
        ("", job.instance_type or ("ml.g5.12xlarge" if image.gpu else "ml.c5.2xlarge"), job.instance_count),
    )
    groups = tuple(instance_group(known, kind, count, name) for name, kind, count in asked)
    is_tensorflow = image.framework == "tensorflow"
    sender: Sender = "TensorFlow" if is_tensorflow else "PyTorch"
    if job.sdk == "v3" and not image.entry_point:
        sender = "ModelTrainer"
    if image.entry_point and (job.source_dir or job.entry_point != JobSpec().entry_point):
        message = f"`{image.name}` brings its own code, `{image.entry_point}`: nothing is sent along"
        _refuse(message, "leave out `--entry-point` and `--source-dir`")
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
        keep_alive=job.keep_alive,
        folder=None if image.entry_point else folder,
    )


def _distribution(
    image: LaunchImage, job: JobSpec, sender: Sender, groups: tuple[InstanceGroup, ...]
) -> Mapping[str, object]:
    """What makes SageMaker's toolkit, or the SDK's drivers, use a launcher."""
    launcher = _launcher(image, job, sender)
    if not launcher:
        return {}
    is_driver = sender == "ModelTrainer"
    if job.processes_per_host and launcher != "mpirun" and not is_driver:
        message = f"`{launcher}` starts one process for each GPU, or one where there are none"
        _refuse(message, "a number of processes is for `mpirun`")
    if is_driver:
        counted = {"process_count_per_node": job.processes_per_host} if job.processes_per_host else {}
        return {_DRIVERS[launcher]: counted}
    settings: dict[str, object] = {"enabled": True}
    if job.processes_per_host:
        settings["processes_per_host"] = job.processes_per_host
    found: dict[str, object] = {_STRATEGIES[launcher]: settings}
    with_gpus = [group.name for group in groups if group.gpus]
    if len(groups) > 1 and len(with_gpus) == 1:
        found["instance_groups"] = with_gpus
    return found


def _launcher(image: LaunchImage, job: JobSpec, sender: Sender) -> str:
    """Which launcher starts the processes: the one asked for, or the framework's own before MPI."""
    module = image.training_module
    there = [name for name in _LAUNCHERS if name in image.launchers]
    if sender != "ModelTrainer" and "pytorch" not in module and "torchrun" in there:
        # The plain toolkit knows no torchrun.
        there.remove("torchrun")
    if sender != "ModelTrainer" and "tensorflow" in module:
        there.insert(0, "tensorflow")
    if not job.launcher:
        chosen = there[0] if there else ""
        return "mpirun" if job.processes_per_host and "mpirun" in there else chosen
    if job.launcher not in there:
        message = f"`{image.name}` can't start a job with `{job.launcher}`"
        hint = "it has " + ", ".join(f"`{name}`" for name in there) if there else "it has no launcher"
        _refuse(message, hint)
    return job.launcher


def _refuse(message: str, hint: str) -> NoReturn:
    raise UsageError(Diagnostic(message, hint=hint))
