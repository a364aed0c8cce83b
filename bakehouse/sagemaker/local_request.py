"""Settings of a job, from the command line and a job file, as a job on this machine."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from bakehouse.catalog.user_smoke import CHANNEL_NAME, CHANNEL_NAME_HINT, SCRIPT
from bakehouse.cluster.job import INSTANCE_TYPE, Group, TrainingJob
from bakehouse.errors import Diagnostic, LaunchError, Problems, UsageError
from bakehouse.jobs.given_job import GivenJob
from bakehouse.jobs.job_spec import S3, STRATEGIES, JobSpec, check_processes_per_host
from bakehouse.sagemaker.client import TrainingService
from bakehouse.sagemaker.local_job import RunRequest
from bakehouse.util.aws import AwsError
from bakehouse.util.terminal import Reporter

_TIME_LIMIT = 3600
"""Seconds until a job on this machine is stopped, unless another limit is set."""
_MAX_HOSTS = 64
_DEFAULT_REGION = "us-east-1"
"""Region of S3's global endpoint, which redirects to the region of a bucket."""


def local_request(given: GivenJob, job: TrainingJob, gpus: int = 0) -> RunRequest:
    """Return the job of the command line and a file as a job on this machine.

    `job` has the command, the faults, the seed, and the GPUs to distribute, which replace `gpus` for each
    host. Raises UsageError for a channel or code that is not on this machine.
    """
    spec, local, file = given.spec, given.local, given.file
    command = job.command
    if file and not command and not spec.launcher and not spec.entry_point:
        command = file.command
    launcher = None
    distribution, hyperparameters = spec.distribution or {}, spec.hyperparameters
    if spec.launcher == SCRIPT:
        distribution = {}
    elif spec.launcher:
        distribution = {STRATEGIES.get(spec.launcher, spec.launcher): {"enabled": True}}
    elif file and not file.has_new_launcher:
        launcher, distribution, hyperparameters = file.launcher, {}, file.sent_hyperparameters
    check_processes_per_host(spec.processes_per_host)
    uri = spec.source_dir if spec.source_dir.startswith(S3) else ""
    if spec.source_dir and not uri:
        _require_code(spec, command)
    job = replace(
        job,
        groups=_groups(spec, local.cpus, gpus, job.gpu_ids),
        entry_point="" if command else spec.entry_point,
        command=command,
        hyperparameters=hyperparameters,
        environment=spec.environment,
        channel_directories=_directories(spec),
        channel_groups={name: groups for name, groups in spec.channels.items() if groups},
        memory=local.memory,
        volume_bytes=local.volume_bytes,
        deadline=float(_TIME_LIMIT if spec.max_run is None else spec.max_run),
        stop_grace=job.stop_grace if local.stop_grace is None else float(local.stop_grace),
    )
    return RunRequest(
        job,
        Path(spec.source_dir) if spec.source_dir and not uri else None,
        distribution,
        _sdk(local.sdk),
        spec.processes_per_host,
        "" if command else uri,
        launcher,
        picks_launcher=launcher is None and spec.distribution is None and not spec.launcher and not command,
    )


def _require_code(spec: JobSpec, command: tuple[str, ...]) -> None:
    source, script = Path(spec.source_dir), spec.entry_point
    hint = ""
    if not source.is_dir():
        message = f"the directory `{source}` of the code does not exist"
        hint = "set `--source-dir` to the directory that contains the entry point"
    elif not script and not command:
        message, hint = "`--source-dir` needs `--entry-point`", "such as `--entry-point train.py`"
    elif not command and not (source / script).is_file():
        message = f"`{source}` contains no `{script}`"
        hint = "`--entry-point` is a path relative to `--source-dir`"
    if hint:
        raise UsageError(message, hint=hint)


def _groups(
    spec: JobSpec, cpus: Mapping[str, float], gpus: int, gpu_ids: tuple[str, ...]
) -> tuple[Group, ...]:
    """Return the hosts of a job, with their shares of this machine."""
    count = 1 if spec.instance_count is None else spec.instance_count
    groups = spec.groups or (Group(instance_type=spec.instance_type or INSTANCE_TYPE, count=count),)
    if spec.groups and (spec.instance_type or spec.instance_count is not None):
        raise UsageError(
            "`--group` cannot be combined with `--instance-count` or `--instance-type`",
            hint="give each group a type and a count: `--group data=ml.c5.18xlarge:2`",
        )
    names = {group.name for group in groups}
    for name in cpus.keys() - names:
        raise UsageError(
            f"`local.cpus` names unknown group `{name}`", hint=f"the groups are {', '.join(sorted(names))}"
        )
    if any(group.count < 1 for group in groups):
        raise UsageError("the job has no host", hint="set `--instance-count` to at least 1")
    hosts = sum(group.count for group in groups)
    if len(gpu_ids) % hosts:
        raise UsageError(
            f"{len(gpu_ids)} GPUs cannot be distributed evenly to {hosts} hosts",
            hint="name as many GPUs for each host: `--gpus device=0,2`",
        )
    gpus = gpus or len(gpu_ids) // hosts
    if hosts > _MAX_HOSTS:
        raise UsageError(
            f"more than {_MAX_HOSTS} hosts",
            hint="set a smaller `--instance-count`; all hosts share this machine",
        )
    return tuple(replace(group, cpus=cpus.get(group.name), gpus=gpus) for group in groups)


def _directories(spec: JobSpec) -> dict[str, str]:
    """Return the absolute path of each channel's directory."""
    problems = Problems()
    directories = {}
    for name in spec.channels:
        source = spec.inputs.get(name, "")
        if not CHANNEL_NAME.fullmatch(name):
            problems.add(Diagnostic(f"`{name}` is not a valid channel name", hint=CHANNEL_NAME_HINT))
        elif not source or source.startswith(S3):
            message = f"the channel `{name}` has no directory on this machine"
            facts = (("source", source),) if source else ()
            hint = f"set `--channel {name}=DIRECTORY` to a copy of its data"
            problems.add(Diagnostic(message, facts=facts, hint=hint))
        elif not Path(source).is_dir():
            message = f"directory `{source}` of channel `{name}` does not exist"
            problems.add(Diagnostic(message, hint="`--channel training=data` copies the directory `data`"))
        else:
            directories[name] = str(Path(source).resolve())
    problems.raise_as(UsageError)
    return directories


def _sdk(directory: str) -> Path | None:
    """Return the directory with the SDK: of `pip install --target`, or of a virtual environment."""
    if not directory:
        return None
    directories = (Path(directory), *Path(directory).glob("lib/python3*/site-packages"))
    installed = next((path for path in directories if (path / "sagemaker").is_dir()), None)
    if installed is None:
        hint = "run `pip install --target sdk sagemaker-train`"
        raise UsageError(f"`local.sdk` is `{directory}`, which contains no SageMaker SDK", hint=hint)
    return installed


def download_code(uri: str, region: str, report: Reporter) -> bytes:
    """Return the archive of the training code, as the toolkit gets it. Raises LaunchError."""
    bucket, _, key = uri.removeprefix(S3).partition("/")
    report(f"downloading the code from {uri}")
    try:
        return TrainingService(region or _DEFAULT_REGION).download(bucket, key)
    except AwsError as error:
        hint = "set `--source-dir` to a directory with this code"
        raise LaunchError.of(replace(error.diagnostic, hint=hint)) from error
