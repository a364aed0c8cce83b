"""Jobs that show whether an image can train: one for each launcher, and SageMaker's contract of `train`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bakehouse.builder.verify import PROBES
from bakehouse.catalog.job_checks import JOB_CHECKS, JobCheck
from bakehouse.catalog.user_smoke import USER_CODE, UserSmoke, toolkit_starts_torchrun
from bakehouse.cluster.job import CODE_CHANNEL, CODE_DIRECTORY, ML, TrainingJob, homogeneous
from bakehouse.plan.model import Image
from bakehouse.util.files import read_bytes
from bakehouse.util.format import format_names
from bakehouse.util.json_reader import json_or_text

_CODE = f"{ML}/input/data/{CODE_CHANNEL}"
_LOGGED = ("--tee=3", "--log-dir=/tmp/torchrun")
_LOGGED_ENVIRONMENT = {"PET_TEE": "3", "PET_LOG_DIR": "/tmp/torchrun"}
"""The same as `_LOGGED`. The toolkit passes on no options."""
_NO_GPU = "no GPU was given; use `--gpus`"
_PROCESSES = "sagemaker_mpi_num_of_processes_per_host"
_ENABLED = {"mpirun": "sagemaker_mpi_enabled", "torchrun": "sagemaker_torch_distributed_enabled"}
"""Hyperparameters with which the toolkit starts a launcher."""


@dataclass(frozen=True, slots=True)
class Startup:
    """The programs and code that SageMaker starts in an image."""

    has_train: bool = True
    """`train` is on PATH."""
    has_toolkit: bool = True
    """`train` is that of the SageMaker Training Toolkit."""
    has_code: bool = False
    """/opt/ml/code contains files, so the toolkit copies no other code there."""

    @property
    def obstacle(self) -> str:
        """The reason why the image cannot run a script through the toolkit; empty if it can."""
        if not self.has_train:
            return "the image contains no `train`"
        return "" if self.has_toolkit else "the image's `train` is not that of the SageMaker Training Toolkit"


@dataclass(frozen=True, slots=True)
class Subject:
    """An image under test."""

    image: Image
    digest: str
    """Its digest in the engine's store; empty for a key."""
    gpus: int
    """GPUs of all hosts."""
    startup: Startup
    hosts: int = 1
    """Hosts that have the GPUs, the same number each."""

    @property
    def gpu_script(self) -> Path | None:
        """The script of the component installed last that uses all GPUs."""
        return next((part.gpu for part in reversed(self.image.all_parts) if part.gpu), None)

    @property
    def toolkit_starts_torchrun(self) -> bool:
        """Return whether the image's toolkit starts torchrun."""
        return self.startup.has_toolkit and toolkit_starts_torchrun(self.image.training_module)


@dataclass(frozen=True, slots=True)
class SmokeCheck:
    """A smoke check of an image: one job, or the reason why it does not apply."""

    kind: JobCheck
    job: TrainingJob | None = None
    source: str = ""
    """Path of the training script."""
    not_tested: str = ""
    smoke: UserSmoke | None = None
    """The user's own test."""

    @property
    def name(self) -> str:
        return self.kind.name


def job_checks(
    image: Image, digest: str, gpus: int = 0, startup: Startup | None = None, hosts: int = 1
) -> tuple[SmokeCheck, ...]:
    """Return the checks of an image, longest first. The GPUs are those of `hosts` hosts together."""
    subject = Subject(image, digest, gpus, startup or Startup(), hosts)
    checks = (
        _user_code(subject, kind) if kind.name == USER_CODE else _check(subject, kind)
        for kind in JOB_CHECKS.values()
    )
    return tuple(check for check in checks if check)


def _check(subject: Subject, kind: JobCheck) -> SmokeCheck | None:
    """Return a check of the table; None if it can never apply to the image, unless the recipe requires it."""
    if reason := _never_applies(subject, kind):
        return SmokeCheck(kind, not_tested=reason) if kind.name in subject.image.required else None
    script = PROBES / kind.script if kind.script else subject.gpu_script
    if script is None:
        reason = "no component of the image has a `gpu.py`, which would use the GPUs"
        return SmokeCheck(kind, not_tested=reason)
    hosts, gpus = _size(subject, kind)
    if reason := _obstacle(subject, kind, gpus):
        return SmokeCheck(kind, not_tested=reason)
    processes = (gpus if kind.launcher else 1) if kind.gpus else kind.processes
    values = {
        name: value.format(gpus=gpus, efa_bandwidth=subject.image.efa_bandwidth)
        if isinstance(value, str)
        else value
        for name, value in kind.arguments.items()
    }
    if kind.start == "direct" or not subject.startup.has_toolkit:
        job = _direct_job(subject, kind, script, _launcher(kind.launcher, processes, hosts), values)
    else:
        job = _toolkit_job(subject, kind, script, values)
        # `train_success` tests the toolkit's own end, which comes 30 s after that of mpirun on two hosts.
        job = replace(job, ends_with_mpirun=kind.launcher == "mpirun" and hosts > 1)
    channels = {
        channel: {file: text.encode() for file, text in files.items()}
        for channel, files in kind.channels.items()
    }
    job = replace(job, groups=homogeneous(hosts, gpus), processes_per_host=processes, channels=channels)
    root = PROBES.parents[1] if kind.script else script.parents[3]
    return SmokeCheck(kind, job, script.relative_to(root).as_posix())


def _never_applies(subject: Subject, kind: JobCheck) -> str:
    """Return what an image lacks for a check; empty if nothing."""
    image = subject.image
    if kind.gpus and not image.gpu:
        return "the image is not for GPUs"
    if kind.launcher and kind.launcher not in image.launchers:
        return f"the image contains no {kind.launcher}"
    if kind.contents and not image.contents.intersection(kind.contents):
        return f"the image contains none of {format_names(kind.contents)}"
    if kind.start == "either" and subject.startup.has_toolkit and not subject.toolkit_starts_torchrun:
        return "only the PyTorch training toolkit starts torchrun"
    return ""


def _size(subject: Subject, kind: JobCheck) -> tuple[int, int]:
    """Return the hosts of a check, and the GPUs of each."""
    if not kind.gpus:
        return kind.hosts, 0
    if kind.gpus == "shared":
        return 2, subject.gpus // 2
    return 1 if kind.gpus == "one" else subject.hosts, subject.gpus // subject.hosts


def _obstacle(subject: Subject, kind: JobCheck, gpus: int) -> str:
    """Return why a check of an image cannot run here; empty if it can."""
    if kind.start == "train" and subject.startup.obstacle:
        return subject.startup.obstacle
    if kind.gpus == "several" and subject.hosts == 1:
        return "it needs two hosts with EFA; use `--on`"
    if kind.gpus == "shared" and subject.hosts > 1:
        return "`nccl_all_reduce` connects all hosts of the job"
    if kind.gpus and not subject.gpus:
        return _NO_GPU
    return "it needs a GPU for each of two hosts; use `--gpus 2`" if kind.gpus and not gpus else ""


def _job(subject: Subject, kind: JobCheck) -> TrainingJob:
    # SageMaker does not allow underscores in job names.
    name = kind.name.replace("_", "-")
    environment = dict(kind.environment)
    return TrainingJob(
        subject.digest, name, deadline=kind.seconds, image_name=subject.image.name, environment=environment
    )


def _code(script: Path) -> dict[str, bytes]:
    return {path.name: read_bytes(path) for path in (script, PROBES / "job_record.py")}


def _toolkit_job(
    subject: Subject, kind: JobCheck, script: Path, values: Mapping[str, str | int]
) -> TrainingJob:
    """Return a job that runs a probe like a user's script: through `train`."""
    parameters = dict(values)
    # The toolkit prefers the image's SAGEMAKER_PROGRAM.
    environment = {**kind.environment, "SAGEMAKER_PROGRAM": script.name}
    if kind.launcher:
        parameters |= {_ENABLED[kind.launcher]: True, _PROCESSES: kind.processes}
    if kind.launcher == "torchrun":
        environment |= _LOGGED_ENVIRONMENT
    job = replace(
        _job(subject, kind), entry_point=script.name, environment=environment, hyperparameters=parameters
    )
    if subject.startup.has_code:
        return replace(job, baked_code=_code(script))
    return replace(job, source=_code(script))


def _direct_job(
    subject: Subject, kind: JobCheck, script: Path, launcher: Sequence[str], values: Mapping[str, str | int]
) -> TrainingJob:
    """Return a job that runs a probe without the toolkit."""
    # torchrun starts Python itself
    interpreter = () if kind.launcher == "torchrun" else kind.interpreter.split()
    arguments = (f"--{name}={value}" for name, value in values.items())
    command = (*launcher, *interpreter, f"{_CODE}/{script.name}", *arguments)
    return replace(_job(subject, kind), command=command, source=_code(script))


def _launcher(name: str, processes: int, hosts: int) -> tuple[str, ...]:
    """Return the command that starts ranks; empty without a launcher."""
    if name == "torchrun":
        return _torchrun(processes, hosts)
    return _mpirun(processes) if name else ()


def _mpirun(processes: int) -> tuple[str, ...]:
    """Return the command that starts ranks on one host."""
    options = "--allow-run-as-root --tag-output --bind-to none"
    return "mpirun", *options.split(), "--host", f"localhost:{processes}", "-np", str(processes)


def _torchrun(processes: int, hosts: int = 1) -> tuple[str, ...]:
    """Return the command that starts ranks on every host."""
    options = (*_LOGGED, f"--nproc-per-node={processes}")
    if hosts == 1:
        return "torchrun", "--standalone", *options
    node = "--node-rank=$((${HOSTNAME#algo-} - 1))"
    start = f"exec torchrun --nnodes={hosts} {node} --master-addr=algo-1 --master-port=7777"
    return "sh", "-c", f'{start} "$@"', "torchrun", *options


def _user_code(subject: Subject, kind: JobCheck) -> SmokeCheck | None:
    """Return the check that the recipe describes in `smoke`."""
    image, smoke, gpus = subject.image, subject.image.smoke, subject.gpus
    if smoke is None:
        return SmokeCheck(kind, not_tested="the recipe has no `smoke`") if image.entry_point else None
    check = SmokeCheck(kind, source=f"{CODE_DIRECTORY}/{smoke.entry_point}", smoke=smoke)
    if image.gpu and gpus < smoke.hosts:
        return replace(check, not_tested=f"it needs {smoke.hosts} GPUs; use `--gpus`" if gpus else _NO_GPU)
    job = replace(
        _job(subject, kind),
        groups=homogeneous(smoke.hosts, gpus // smoke.hosts if image.gpu else 0),
        processes_per_host=smoke.processes,
        channel_directories={name: str(path) for name, path in smoke.channels},
        deadline=float(smoke.timeout),
        has_toolkit=subject.startup.has_toolkit,
    )
    launcher = smoke.starter(subject.image.launchers, starts_torchrun=subject.toolkit_starts_torchrun)
    through_train = launcher != "torchrun" or subject.toolkit_starts_torchrun
    if subject.startup.has_train and through_train:
        return replace(check, job=_start_with_train(job, smoke, launcher))
    if launcher == "mpirun" and smoke.hosts > 1:
        reason = f"{subject.startup.obstacle}, which starts `mpirun` on several hosts"
        return replace(check, not_tested=reason)
    return replace(check, job=_start_with_command(job, smoke, launcher))


def _start_with_train(job: TrainingJob, smoke: UserSmoke, launcher: str) -> TrainingJob:
    """Return a job that starts the user's code as SageMaker does."""
    environment = {"SAGEMAKER_PROGRAM": smoke.entry_point}
    parameters = {name: json_or_text(text) for name, text in smoke.hyperparameters}
    if launcher in _ENABLED and job.has_toolkit:
        parameters |= {_ENABLED[launcher]: True, _PROCESSES: smoke.processes}
    if launcher == "torchrun":
        environment |= _LOGGED_ENVIRONMENT
    return replace(job, entry_point=smoke.entry_point, hyperparameters=parameters, environment=environment)


def _start_with_command(job: TrainingJob, smoke: UserSmoke, launcher: str) -> TrainingJob:
    """Return a job that starts the user's code without `train`; hyperparameters are its arguments."""
    script = f"{CODE_DIRECTORY}/{smoke.entry_point}"
    interpreter = "python3" if script.endswith(".py") else "sh"
    starts: dict[str, Sequence[str]] = {
        "script": (interpreter,),
        "mpirun": (*_mpirun(smoke.processes), interpreter),
        "torchrun": _torchrun(smoke.processes, smoke.hosts),
    }
    arguments = (word for name, text in smoke.hyperparameters for word in (f"--{name}", text))
    return replace(job, has_toolkit=False, command=(*starts[launcher], script, *arguments))
