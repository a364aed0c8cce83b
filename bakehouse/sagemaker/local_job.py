"""Runs a user's training job on one machine: `./bake run`, and the same for programs."""

import contextlib
import secrets
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.instance_types import Instance, instances
from bakehouse.cluster import cluster, job_report
from bakehouse.cluster.cluster import OutputHandler
from bakehouse.cluster.job import HOMOGENEOUS, ML, Group, NetworkPartition, TrainingJob, homogeneous, job_name
from bakehouse.cluster.job_report import JobReport
from bakehouse.engine import network_faults
from bakehouse.engine.protocol import Engine
from bakehouse.errors import Diagnostic, UsageError
from bakehouse.sagemaker import code_upload, model_trainer
from bakehouse.sagemaker.distribution import Framework, Training, launch_settings
from bakehouse.sagemaker.instance_groups import instance_group
from bakehouse.util.files import write_whole

_PROCESSES = "sagemaker_mpi_num_of_processes_per_host"
"""Of torchrun too, whatever its name says."""
_ONE_EACH = ("", "parameter_server", "multi_worker_mirrored_strategy")
"""Launchers, and none, with which a host runs its script once."""
KEPT = {f"{ML}/model": "model", f"{ML}/output": "output", f"{ML}/checkpoints": "checkpoints"}
"""What a job leaves: where on its hosts, and below which folder here."""

OpenStream = Callable[[TrainingJob], AbstractContextManager[OutputHandler]]
"""Given a job that is about to start, who hears what its hosts print."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A training job as its user asks for it: what an estimator or a ModelTrainer is told."""

    groups: tuple[Group, ...] = homogeneous()
    source_dir: Path | None = None
    """The folder of the training code; None is the code that the image holds."""
    entry_point: str = ""
    """The script, a path below `source_dir`."""
    command: tuple[str, ...] = ()
    """What the hosts run instead of the toolkit; the code lies at /opt/ml/code then."""
    distribution: Mapping[str, object] = field(default_factory=dict)
    """An estimator's, or `{"Torchrun": {…}}` or `{"MPI": {…}}` for version 3 of the SDK."""
    sdk: Path | None = None
    """The folder that version 3 of the SDK is installed in, whose drivers start the ranks then."""
    processes_per_host: int = 0
    """Ranks on each host; 0 is what the distribution says, else one for each GPU, else one."""
    hyperparameters: Mapping[str, object] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    channels: Mapping[str, Path] = field(default_factory=dict)
    memory: int | None = None
    """Bytes that each host may use."""
    deadline: float = 3600.0
    stop_after: float | None = None
    stop_grace: float = 120.0
    kills: Mapping[str, float] = field(default_factory=dict)
    """Hosts that die, and when."""
    partitions: tuple[NetworkPartition, ...] = ()
    """Groups, or hosts, that are cut off from each other, and when."""
    netem: str = ""
    """Delay and loss on every host's network, such as `delay 100ms loss 1%`."""
    volume_bytes: int | None = None
    """Bytes that /opt/ml/model, output and checkpoints of a host hold at most, each."""
    seed: int | None = None
    """Deals hosts to groups as an earlier run did; None deals them anew."""
    name: str = ""
    """The job's; empty: the image's and the time."""

    @property
    def is_heterogeneous(self) -> bool:
        return [group.name for group in self.groups] != [HOMOGENEOUS]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request that was checked, as the hosts are to be started; the image comes when it is there."""

    job: TrainingJob
    source_dir: Path | None
    """What is still to be delivered by S3, for the toolkit to fetch."""
    efa_types: frozenset[str]
    warnings: tuple[str, ...] = ()
    """What the SDK does without a word."""


def prepare(
    request: RunRequest, image: str, catalog: Catalog, framework: Framework = "", version: str = ""
) -> Prepared:
    """Check a request, and settle what its hosts are told; raises UsageError for what can't be run.

    `framework` and its `version` are the image's. What a distribution turns into wins over hyperparameters
    given by hand, as in the SDK.
    """
    known = instances(catalog)
    groups = tuple(_with_gpus(group, known) for group in request.groups)
    job = TrainingJob(
        image="",
        name=request.name or job_name(image),
        image_name=image,
        groups=groups,
        seed=(request.seed or _any_seed()) if request.is_heterogeneous else None,
        entry_point=request.entry_point,
        hyperparameters=request.hyperparameters,
        environment=request.environment,
        channel_directories={name: str(path.resolve()) for name, path in request.channels.items()},
        memory=request.memory,
        deadline=request.deadline,
        stop_after=request.stop_after,
        stop_grace=request.stop_grace,
        kills=request.kills,
        partitions=request.partitions,
        netem=request.netem,
        volume_bytes=request.volume_bytes,
    )
    _check_disturbances(job, request)
    training = Training(
        tuple(
            instance_group(known, one.instance_type, one.count, one.name if request.is_heterogeneous else "")
            for one in groups
        ),
        framework,
        version,
        request.entry_point,
    )
    job, warnings = _launched(job, request, training)
    delivered = request.source_dir if job.has_toolkit else None
    return Prepared(job, delivered, _efa_types(known), warnings)


def run(
    engine: Engine,
    prepared: Prepared,
    folder: Path,
    address: str,
    heard: OutputHandler = lambda host, data: None,
) -> JobReport:
    """Run a job to its end; its logs, model, output and report lie below `folder`.

    `address` is one of this machine that the hosts reach. Raises UsageError for code that is too big.
    """
    job = prepared.job
    with contextlib.ExitStack() as stack:
        if prepared.source_dir:
            delivered = stack.enter_context(code_upload.serve_from_s3(prepared.source_dir, address))
            environment = {**delivered.environment, **job.environment}
            job = replace(job, submit_directory=delivered.uri, environment=environment)
        kept = {path: folder / name for path, name in KEPT.items()}
        end = cluster.run(engine, job, folder / "logs", on_output=heard, collect=kept)
    found = job_report.report(job, end, folder, prepared.efa_types)
    write_whole(folder / "report.json", job_report.as_json(found))
    return found


def _check_disturbances(job: TrainingJob, request: RunRequest) -> None:
    """That what is to be disturbed is there, and that this machine can do it."""
    for host in job.kills:
        if host not in job.host_names:
            hint = f"there are {', '.join(job.host_names)}"
            raise UsageError(Diagnostic(f"no host `{host}` can be killed", hint=hint))
    groups = [group.name for group in job.groups] if request.is_heterogeneous else []
    for cut in job.partitions:
        for name in (cut.first, cut.second):
            if name not in (*groups, *job.host_names):
                hint = f"there are {', '.join((*groups, *job.host_names))}"
                raise UsageError(Diagnostic(f"no group or host `{name}` can be cut off", hint=hint))
        if {*job.hosts_of(cut.first)} & {*job.hosts_of(cut.second)}:
            message = (
                f"`{cut.first}` can't be cut off from `{cut.second}`, which is the same host or holds it"
            )
            raise UsageError(Diagnostic(message, hint="name two groups, or two hosts"))
    network_faults.require(job.netem, cuts=bool(job.partitions))


def _launched(
    job: TrainingJob, request: RunRequest, training: Training
) -> tuple[TrainingJob, tuple[str, ...]]:
    """The job with what starts its ranks: a command, the SDK's drivers, or the toolkit in the image."""
    if request.command:
        if request.distribution:
            message = "a command and a distribution both start the job"
            raise UsageError(Diagnostic(message, hint="leave one of them out"))
        baked = code_upload.read_files(request.source_dir) if request.source_dir else {}
        changed = replace(job, command=request.command, has_toolkit=False, baked_code=baked)
        return replace(changed, processes_per_host=_processes(job, request)), ()
    if model_trainer.is_for_model_trainer(request.distribution):
        return _by_drivers(job, request, training)
    settings = launch_settings(request.distribution, training)
    parameters = {**job.hyperparameters, **settings.hyperparameters}
    starts_ranks = settings.launcher not in _ONE_EACH
    if request.processes_per_host and not starts_ranks:
        hint = "name a launcher with `--distribution`, such as `mpi` or `torch_distributed`"
        raise UsageError(Diagnostic("there is a number of processes, and nothing starts them", hint=hint))
    if request.processes_per_host:
        parameters[_PROCESSES] = request.processes_per_host
    job = replace(job, hyperparameters=parameters, launcher_groups=settings.groups)
    processes = _processes(job, request, parameters.get(_PROCESSES)) if starts_ranks else 1
    return replace(job, processes_per_host=processes), settings.warnings


def _by_drivers(
    job: TrainingJob, request: RunRequest, training: Training
) -> tuple[TrainingJob, tuple[str, ...]]:
    """The job as version 3's ModelTrainer sends it: no toolkit, its drivers in a channel."""
    [name] = list(request.distribution)[:1]
    if request.sdk is None or not (request.sdk / "sagemaker/train/container_drivers").is_dir():
        message = f"`{name}` is started by drivers of the SageMaker SDK's version 3"
        where = f"`{request.sdk}` holds no such SDK" if request.sdk else "nobody said where that is"
        hint = "`pip install --target sdk sagemaker-train sagemaker-core`, then `--sdk sdk`"
        raise UsageError(Diagnostic(message, facts=(("and", where),), hint=hint))
    if request.source_dir is None:
        message = "the SDK's drivers start a script that comes with the job"
        raise UsageError(Diagnostic(message, hint="`--source-dir` names its folder"))
    settings = model_trainer.driver_settings(request.distribution, training, str(request.source_dir))
    changed = replace(
        job,
        command=(*model_trainer.ENTRYPOINT, *model_trainer.ARGUMENTS),
        has_toolkit=False,
        hyperparameters={**job.hyperparameters, **settings.hyperparameters},
        channels={
            model_trainer.CODE_CHANNEL: code_upload.read_files(request.source_dir),
            model_trainer.DRIVERS_CHANNEL: model_trainer.channel(request.sdk, settings),
        },
    )
    if request.processes_per_host:
        message = "a number of processes beside `process_count_per_node`"
        raise UsageError(Diagnostic(message, hint=f'`{{"{name}": {{"process_count_per_node": 2}}}}` alone'))
    processes = _processes(job, request, settings.distributed.get("process_count_per_node"))
    in_all = processes if settings.driver == "MPI" else None
    return replace(changed, processes_per_host=processes, total_ranks=in_all), settings.warnings


def _processes(job: TrainingJob, request: RunRequest, told: object = None) -> int:
    """Ranks on each host that has some."""
    started_in = job.launcher_groups or job.hosts_by_group
    gpus = max(group.gpus for group in job.groups if group.name in started_in)
    return told if isinstance(told, int) and told > 0 else request.processes_per_host or max(gpus, 1)


def _with_gpus(group: Group, known: Mapping[str, Instance]) -> Group:
    """A group of a heterogeneous cluster gets GPUs only where its type has some."""
    has_none = known.get(group.instance_type, Instance("")).gpus == 0
    return replace(group, gpus=0) if has_none and group.name != HOMOGENEOUS else group


def _efa_types(known: Mapping[str, Instance]) -> frozenset[str]:
    return frozenset(name for name, one in known.items() if one.efa_interfaces)


def _any_seed() -> int:
    """A number that deals hosts to groups anew each time, short enough to be typed again."""
    return secrets.randbelow(999) + 1
