"""Run a user's training job on this machine: `bake run` and its Python interface."""

import secrets
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.instance_types import Instance, instances
from bakehouse.catalog.source_tree import SourceTree
from bakehouse.catalog.user_smoke import SCRIPT, default_launcher, toolkit_starts_torchrun
from bakehouse.cluster import job_report, job_runner
from bakehouse.cluster.job import CODE_DIRECTORY, HOMOGENEOUS, ML, Encoded, Group, TrainingJob, job_name
from bakehouse.cluster.job_report import JobReport
from bakehouse.cluster.job_runner import OutputHandler
from bakehouse.engine.protocol import Engine
from bakehouse.errors import Reason, UsageError
from bakehouse.jobs import code_archive, model_trainer
from bakehouse.jobs.distribution import LaunchContext, LaunchSettings, launch_settings
from bakehouse.jobs.image_checks import check_variables
from bakehouse.jobs.instance_groups import InstanceGroup, check_channels, instance_group
from bakehouse.jobs.job_spec import strategy
from bakehouse.jobs.rules import Findings
from bakehouse.jobs.script_arguments import flag_findings
from bakehouse.jobs.tested_job import find_smoke, tested_launcher
from bakehouse.jobs.training_request import LaunchImage, TrainingRequest
from bakehouse.util.files import write_whole
from bakehouse.util.terminal import Reporter

_PROCESSES = "sagemaker_mpi_num_of_processes_per_host"
"""torchrun uses it too, despite the name."""
_ONE_PROCESS = ("", "parameter_server", "multi_worker_mirrored_strategy")
"""Launchers (or none) that run the script once on each host."""
_REGION = {"AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1"}
"""Region of local jobs, unless the user sets another: the toolkit passes it to the script."""
COLLECTED = {f"{ML}/model": "model", f"{ML}/output": "output", f"{ML}/checkpoints": "checkpoints"}
"""Directories of the hosts to copy, with their names in the run's directory."""

OpenStream = Callable[[TrainingJob], AbstractContextManager[OutputHandler]]
"""Returns the handler for the output of a job that is about to start."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A training job with the arguments of an estimator or a ModelTrainer that determine its launcher.

    The `command` of the job replaces the toolkit. In that case, the code is in /opt/ml/code.
    """

    job: TrainingJob = field(default_factory=TrainingJob)
    """Hosts, hyperparameters and faults of the job. `prepare` adds its image, launcher and code."""
    source_dir: Path | None = None
    """Directory of the training code; None means the code in the image."""
    distribution: Mapping[str, object] = field(default_factory=dict)
    """The estimator's, or `{"Torchrun": {…}}` or `{"MPI": {…}}` for SDK v3."""
    sdk: Path | None = None
    """Directory with the installed SDK v3, whose drivers start the ranks."""
    processes_per_host: int | None = None
    """None means the number in `distribution`, or else one for each GPU, or else one."""
    code_uri: str = ""
    """S3 URI of the archive of the training code, which is needed without a `source_dir`; or empty."""
    launcher: LaunchSettings | None = None
    """Launcher of a request whose hyperparameters start it; None if `distribution` does."""
    picks_launcher: bool = False
    """Start several ranks with the image's default launcher."""


def prepare(
    request: RunRequest,
    image: str,
    catalog: Catalog,
    framework: str = "",
    version: str = "",
    report: Reporter = print,
    variables: Mapping[str, str] | None = None,
) -> TrainingJob:
    """Check a request and build the job of its hosts, complete except for the image's digest.

    `framework`, `version` and `variables` are the image's. Hyperparameters of the distribution override the
    user's, as in the SDK. Files that are not sent and silent actions of the SDK are reported. Raises
    UsageError if the request is invalid or its code too big.
    """
    code = None
    if request.source_dir:
        code = code_archive.select(request.source_dir, request.job.entry_point, report)
    instance_types = instances(catalog)
    job = replace(
        request.job,
        name=request.job.name or job_name(image),
        image_name=image,
        environment={**_REGION, **request.job.environment},
        groups=tuple(_drop_missing_gpus(group, instance_types) for group in request.job.groups),
        seed=(request.job.seed or secrets.randbelow(999) + 1) if request.job.is_heterogeneous else None,
    )
    _check_faults(job)
    groups = tuple(
        instance_group(
            instance_types, group.instance_type, group.count, group.name if job.is_heterogeneous else ""
        )
        for group in job.groups
    )
    findings = Findings()
    channels = {name: job.channel_groups.get(name, ()) for name in job.channel_directories}
    check_channels(channels, groups, findings)
    findings.raise_errors()
    _check_variables(request, groups, findings)
    environment = {**(variables or {}), **job.environment}
    context = LaunchContext(groups, framework, version, job.entry_point, environment=environment)
    job, warnings = _add_launcher(job, request, code, context)
    script = request.source_dir / request.job.entry_point if request.source_dir else None
    flags = flag_findings(script, job.hyperparameters) if script else ()
    for warning in (*warnings, *(finding.message for finding in (*findings.warnings, *flags))):
        report(f"note: {warning}")
    return job


def _check_variables(request: RunRequest, groups: tuple[InstanceGroup, ...], findings: Findings) -> None:
    """Check what the values of variables would do to the job on SageMaker."""
    job, is_driven = request.job, model_trainer.is_for_model_trainer(request.distribution)
    sent = TrainingRequest(
        sender="ModelTrainer" if is_driven or job.command else "PyTorch",
        groups=tuple(
            replace(group, gpus=max(group.gpus or 0, local.gpus))
            for group, local in zip(groups, job.groups, strict=True)
        ),
        distribution=request.distribution,
        # Without a script of the user, the variable names the one of the image's code
        entry_point=job.entry_point or job.environment.get("SAGEMAKER_PROGRAM", ""),
        environment=job.environment,
    )
    check_variables(sent, None, findings)


def with_default_launcher(request: RunRequest, image: LaunchImage, report: Reporter = print) -> RunRequest:
    """Return a request for several ranks with the launcher of the smoke test, or else the image's default.

    It is that of jobs on SageMaker. The choice is reported, and so are several hosts without a launcher.
    """
    job, processes = request.job, request.processes_per_host
    hosts = sum(group.count for group in job.groups)
    if job.is_heterogeneous or (hosts == 1 and processes in (None, 1)):
        return request
    smoke = find_smoke(image, job.entry_point)
    launcher, tested_processes = tested_launcher(image, smoke, hosts) if processes is None else ("", None)
    origin = "that of the smoke test" if launcher else "the image's default"
    starts_torchrun = toolkit_starts_torchrun(image.training_module)
    if not launcher and image.is_mirrored and processes is None:
        launcher = "tensorflow"
    launcher = launcher or default_launcher(image.launchers, starts_torchrun=starts_torchrun)
    is_startable = starts_torchrun if launcher == "torchrun" else launcher != SCRIPT
    if is_startable and (job.entry_point or image.entry_point).endswith(".py"):
        report(f"note: the launcher is `{launcher}`, {origin}; use `--distribution '{{}}'` for none")
        return replace(request, distribution=strategy(launcher, tested_processes))
    if hosts > 1:
        report(
            f"note: no launcher: the script starts once on each of {hosts} hosts. Unless it connects them "
            "itself, each host trains alone"
        )
    return request


def efa_types(catalog: Catalog) -> frozenset[str]:
    """Return the instance types with EFA."""
    return frozenset(name for name, instance in instances(catalog).items() if instance.efa_interfaces)


def check_code(request: RunRequest, own: str) -> None:
    """Raise UsageError if the toolkit would not start the given code, because the image contains `own`."""
    job = request.job
    if job.command or not job.has_toolkit or "SAGEMAKER_PROGRAM" in job.environment:
        return
    reasons = (
        Reason(f"the image contains code in {CODE_DIRECTORY}, so the toolkit would start its `{own}`"),
    )
    if request.source_dir:
        raise UsageError(
            f"the job would not start the code in `{request.source_dir}`",
            reasons=reasons,
            hint="omit `--source-dir`: `run` builds the image again after an edit of its code",
        )
    if job.entry_point not in ("", own):
        raise UsageError(
            f"the job would not start `{job.entry_point}`",
            reasons=reasons,
            hint=f"use `--environment SAGEMAKER_PROGRAM={job.entry_point}` for a script of the image's code",
        )


def run(
    engine: Engine,
    job: TrainingJob,
    directory: Path,
    on_output: OutputHandler = lambda host, data: None,
    efa_types: frozenset[str] = frozenset(),
) -> JobReport:
    """Run a job to its end. Its logs, model, output and report are written to `directory`."""
    collect = {path: directory / name for path, name in COLLECTED.items()}
    result = job_runner.run(engine, job, directory / "logs", on_output=on_output, collect=collect)
    report = job_report.report(job, result, directory, efa_types)
    write_whole(directory / "report.json", job_report.as_json(report))
    return report


def _check_faults(job: TrainingJob) -> None:
    """Check that the hosts to kill exist."""
    for host in job.kills:
        if host not in job.host_names:
            raise UsageError(
                f"can't kill `{host}`, which is not a host of this job",
                hint=f"choose from {', '.join(job.host_names)}",
            )


def _add_launcher(
    job: TrainingJob, request: RunRequest, code: SourceTree | None, context: LaunchContext
) -> tuple[TrainingJob, tuple[str, ...]]:
    """Return the job with its launcher: a command, the SDK's drivers, or the image's toolkit."""
    if job.command:
        if request.distribution:
            raise UsageError("a command and a distribution both start the job", hint="remove one of them")
        files = code_archive.read_files(code) if code else {}
        processes = _processes(job, request)
        return replace(job, has_toolkit=False, baked_code=files, processes_per_host=processes), ()
    if model_trainer.is_for_model_trainer(request.distribution):
        return _add_drivers(job, request, code, context)
    settings = request.launcher or launch_settings(request.distribution, context)
    parameters = {**job.hyperparameters, **settings.hyperparameters}
    starts_ranks = settings.launcher not in _ONE_PROCESS
    if request.processes_per_host is not None and not starts_ranks:
        raise UsageError(
            "`processes_per_host` needs a launcher",
            hint="set `--distribution` to a launcher, such as `mpi` or `torch_distributed`",
        )
    if request.processes_per_host is not None:
        parameters[_PROCESSES] = request.processes_per_host
    job = replace(job, hyperparameters=parameters, launcher_groups=settings.groups)
    processes = _processes(job, request, parameters.get(_PROCESSES)) if starts_ranks else 1
    job = replace(job, processes_per_host=processes)
    if code:
        with code_archive.pack(code) as archive:
            job = replace(job, code_archive=archive.read())
    return job, settings.warnings


def _add_drivers(
    job: TrainingJob, request: RunRequest, code: SourceTree | None, context: LaunchContext
) -> tuple[TrainingJob, tuple[str, ...]]:
    """Return the job as ModelTrainer of SDK v3 sends it: without toolkit, with its drivers in a channel."""
    [name] = list(request.distribution)[:1]
    if request.sdk is None or not (request.sdk / "sagemaker/train/container_drivers").is_dir():
        message = f"`{name}` needs the drivers of SageMaker SDK v3"
        reason = f"`{request.sdk}` does not contain them" if request.sdk else "`local.sdk` is not set"
        raise UsageError(
            message,
            facts=(("because", reason),),
            hint="run `pip install --target sdk sagemaker-train sagemaker-core`, and set `local.sdk`",
        )
    if code is None:
        raise UsageError(
            f"`{name}` needs a script, which is sent with the job",
            hint="set `--source-dir` to the script's directory",
        )
    settings = model_trainer.driver_settings(request.distribution, context, str(code.source))
    if request.processes_per_host is not None:
        raise UsageError(
            f"`processes_per_host` cannot be combined with `{name}`",
            hint=f'write `{{"{name}": {{"process_count_per_node": {request.processes_per_host}}}}}` instead',
        )
    processes = _processes(job, request, settings.distributed.get("process_count_per_node"))
    job = replace(
        job,
        command=(*model_trainer.ENTRYPOINT, *model_trainer.ARGUMENTS),
        has_toolkit=False,
        hyperparameters={**job.hyperparameters, **settings.hyperparameters},
        channels={
            model_trainer.CODE_CHANNEL: code_archive.read_files(code),
            model_trainer.DRIVERS_CHANNEL: model_trainer.channel(request.sdk, settings),
        },
        processes_per_host=processes,
        total_ranks=processes if settings.driver == "MPI" else None,
    )
    return job, settings.warnings


def _processes(job: TrainingJob, request: RunRequest, setting: object = None) -> int:
    """Return the number of ranks on each host that runs ranks."""
    names = job.launcher_groups or job.hosts_by_group
    gpus = max(group.gpus for group in job.groups if group.name in names)
    if isinstance(setting, Encoded) and setting.isdecimal():
        setting = int(setting)
    if isinstance(setting, int) and setting > 0:
        return setting
    return max(gpus, 1) if request.processes_per_host is None else request.processes_per_host


def _drop_missing_gpus(group: Group, instance_types: Mapping[str, Instance]) -> Group:
    """Remove the GPUs of a heterogeneous cluster's group if its type has none."""
    has_none = instance_types.get(group.instance_type, Instance("")).gpus == 0
    return replace(group, gpus=0) if has_none and group.name != HOMOGENEOUS else group
