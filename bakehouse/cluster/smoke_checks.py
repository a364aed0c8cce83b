"""Jobs that show whether an image can train: one for each launcher, and SageMaker's contract of `train`."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bakehouse.builder.verify import PROBES
from bakehouse.catalog.gpu_checks import EFA_BANDWIDTH
from bakehouse.catalog.user_smoke import USER_CODE, UserSmoke, toolkit_starts_torchrun
from bakehouse.cluster.job import CODE_CHANNEL, CODE_DIRECTORY, ML, TrainingJob, homogeneous
from bakehouse.plan.model import Image
from bakehouse.util.files import read_bytes

_CODE = f"{ML}/input/data/{CODE_CHANNEL}"
_LOGGED = ("--tee=3", "--log-dir=/tmp/torchrun")
_LOGGED_ENVIRONMENT = {"PET_TEE": "3", "PET_LOG_DIR": "/tmp/torchrun"}
"""The same as `_LOGGED`. The toolkit passes on no options."""
SECONDS, TWO_HOST_SECONDS = 300.0, 420.0
_NO_GPU = "no GPU was given; use `--gpus`"
_NO_MPIRUN, _NO_TORCHRUN = "the image contains no mpirun", "the image contains no torchrun"
_PROCESSES = "sagemaker_mpi_num_of_processes_per_host"
_GPU_SCRIPTS = {"pytorch": "gpu.py", "tensorflow": "tensorflow_gpu.py", "nccl-tests": "nccl_tests_gpu.py"}
"""Script that uses all GPUs, by what an image contains. None passes without a GPU."""
_GPU_FRAMEWORKS = "PyTorch, TensorFlow or NVIDIA's NCCL tests"
_NCCL_USERS = {"horovod", "horovod-nccl", "pytorch"}
_STORE = {"STORE_PORT": "29400"}
"""Port of torch.distributed's store, for ranks that mpirun starts."""
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
    def contents(self) -> frozenset[str]:
        """Names of the image's contents. An image with torchrun also contains PyTorch."""
        return self.image.contents | ({"pytorch"} if "torchrun" in self.image.launchers else set())

    @property
    def toolkit_starts_torchrun(self) -> bool:
        """Return whether the image's toolkit starts torchrun."""
        return self.startup.has_toolkit and toolkit_starts_torchrun(self.image.training_module)


@dataclass(frozen=True, slots=True)
class SmokeCheck:
    """A smoke check: one job, or the reason why it does not apply."""

    name: str
    job: TrainingJob | None = None
    source: str = ""
    """Path of the training script."""
    must_fail: bool = False
    """The check passes if the job reports its failure as SageMaker requires."""
    needs_model: bool = False
    records_ranks: bool = True
    """The script records the events of each rank."""
    needs_efa: bool = False
    """The hosts must communicate over EFA; without EFA devices the script reports that it tested nothing."""
    not_tested: str = ""
    smoke: UserSmoke | None = None
    """The user's own test."""


def job_checks(
    image: Image, digest: str, gpus: int = 0, startup: Startup | None = None, hosts: int = 1
) -> tuple[SmokeCheck, ...]:
    """Return the checks of an image, longest first. The GPUs are those of `hosts` hosts together."""
    makers = (
        _user_code,
        _mpi_2x2,
        _torchrun_2x2,
        _train_success,
        _train_failure,
        _torchrun_1x2,
        _efa_bandwidth,
        _nccl,
        _nccl_2_hosts,
        _gpu,
        _mpirun_nccl,
        _mpirun_1x2,
    )
    subject = Subject(image, digest, gpus, startup or Startup(), hosts)
    checks = (maker(subject) for maker in makers)
    return tuple(check for check in checks if check)


def _script(name: str) -> dict[str, bytes]:
    return {file: read_bytes(PROBES / file) for file in (name, "job_record.py")}


def _probe_check(
    check: str, script: str, job: TrainingJob, *, needs_model: bool = False, must_fail: bool = False
) -> SmokeCheck:
    return SmokeCheck(check, job, f"bakehouse/probes/{script}", needs_model=needs_model, must_fail=must_fail)


def _job(subject: Subject, check: str) -> TrainingJob:
    # SageMaker does not allow underscores in job names.
    name = check.replace("_", "-")
    return TrainingJob(subject.digest, name, deadline=SECONDS, image_name=subject.image.name)


def _toolkit_job(subject: Subject, check: str, script: str) -> TrainingJob:
    """Return a job that runs a probe like a user's script: through `train`."""
    # The toolkit prefers the image's SAGEMAKER_PROGRAM.
    environment = {"SAGEMAKER_PROGRAM": script}
    job = replace(_job(subject, check), entry_point=script, environment=environment)
    if subject.startup.has_code:
        return replace(job, baked_code=_script(script))
    return replace(job, source=_script(script))


def _launcher_job(subject: Subject, check: str, script: str, *launcher: str) -> TrainingJob:
    """Return a job in which a launcher runs a probe directly, without the toolkit."""
    command = (*launcher, f"{_CODE}/{script}")
    return replace(_job(subject, check), command=command, source=_script(script))


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


def _user_code(subject: Subject) -> SmokeCheck | None:
    """Return the check that the recipe describes in `smoke`."""
    image, smoke, gpus = subject.image, subject.image.smoke, subject.gpus
    if smoke is None:
        return SmokeCheck(USER_CODE, not_tested="the recipe has no `smoke`") if image.entry_point else None
    check = SmokeCheck(
        USER_CODE, source=f"{CODE_DIRECTORY}/{smoke.entry_point}", records_ranks=False, smoke=smoke
    )
    if image.gpu and gpus < smoke.hosts:
        return replace(check, not_tested=f"it needs {smoke.hosts} GPUs; use `--gpus`" if gpus else _NO_GPU)
    job = replace(
        _job(subject, USER_CODE),
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
    parameters = {name: _json_value(text) for name, text in smoke.hyperparameters}
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


def _json_value(text: str) -> object:
    """Return a hyperparameter as the SDK sends it: JSON, or else text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _train_success(subject: Subject) -> SmokeCheck:
    name, script = "train_success", "train_ok.py"
    if obstacle := subject.startup.obstacle:
        return SmokeCheck(name, not_tested=obstacle)
    job = replace(
        _toolkit_job(subject, name, script),
        hyperparameters={"epochs": 2, "channel": "training"},
        channels={"training": {"numbers.json": b"[1, 2, 3]"}},
    )
    return _probe_check(name, script, job, needs_model=True)


def _train_failure(subject: Subject) -> SmokeCheck:
    name, script = "train_failure", "train_fails.py"
    if obstacle := subject.startup.obstacle:
        return SmokeCheck(name, not_tested=obstacle)
    return _probe_check(name, script, _toolkit_job(subject, name, script), must_fail=True)


def _inapplicable(subject: Subject, name: str, reason: str) -> SmokeCheck | None:
    """Return a check that cannot run for this image; None unless the recipe requires it."""
    return SmokeCheck(name, not_tested=reason) if name in subject.image.required else None


def _mpirun_1x2(subject: Subject) -> SmokeCheck | None:
    name, script = "mpirun_1x2", "mpi_allreduce.py"
    if "mpirun" not in subject.image.launchers:
        return _inapplicable(subject, name, _NO_MPIRUN)
    job = _launcher_job(subject, name, script, *_mpirun(2), "python3", "-m", "mpi4py")
    return _probe_check(name, script, replace(job, processes_per_host=2))


def _mpi_2x2(subject: Subject) -> SmokeCheck | None:
    name, script = "mpi_2x2", "mpi_allreduce.py"
    if "mpirun" not in subject.image.launchers:
        return _inapplicable(subject, name, _NO_MPIRUN)
    if obstacle := subject.startup.obstacle:
        return SmokeCheck(name, not_tested=obstacle)
    job = replace(
        _toolkit_job(subject, name, script),
        groups=homogeneous(2),
        processes_per_host=2,
        hyperparameters={_ENABLED["mpirun"]: True, _PROCESSES: 2},
        deadline=TWO_HOST_SECONDS,
    )
    return _probe_check(name, script, job)


def _torchrun_1x2(subject: Subject) -> SmokeCheck | None:
    name, script = "torchrun_1x2", "torchrun_allreduce.py"
    if "torchrun" not in subject.image.launchers:
        return _inapplicable(subject, name, _NO_TORCHRUN)
    job = _launcher_job(subject, name, script, *_torchrun(2))
    job = replace(job, command=(*job.command, "--transport=gloo"), processes_per_host=2)
    return _probe_check(name, script, job)


def _torchrun_2x2(subject: Subject) -> SmokeCheck | None:
    name, script = "torchrun_2x2", "torchrun_allreduce.py"
    if "torchrun" not in subject.image.launchers:
        return _inapplicable(subject, name, _NO_TORCHRUN)
    if not subject.startup.has_toolkit:
        job = _launcher_job(subject, name, script, *_torchrun(2, hosts=2))
        job = replace(job, command=(*job.command, "--transport=gloo"))
    elif subject.toolkit_starts_torchrun:
        job = _toolkit_job(subject, name, script)
        parameters = {_ENABLED["torchrun"]: True, _PROCESSES: 2, "transport": "gloo"}
        job = replace(job, hyperparameters=parameters, environment={**job.environment, **_LOGGED_ENVIRONMENT})
    else:
        return _inapplicable(subject, name, "only the PyTorch training toolkit starts torchrun")
    return _probe_check(name, script, replace(job, groups=homogeneous(2), processes_per_host=2))


def _nccl(subject: Subject) -> SmokeCheck | None:
    name, script = "nccl_all_reduce", "torchrun_allreduce.py"
    hosts, gpus = subject.hosts, subject.gpus // subject.hosts
    if not subject.image.gpu or "torchrun" not in subject.image.launchers:
        return None
    if not gpus:
        return SmokeCheck(name, not_tested=_NO_GPU)
    return _probe_check(name, script, _nccl_job(subject, name, script, hosts, gpus))


def _nccl_2_hosts(subject: Subject) -> SmokeCheck | None:
    """Return the check of NCCL between two hosts that share this machine's GPUs."""
    name, script, gpus = "nccl_2_hosts", "torchrun_allreduce.py", subject.gpus // 2
    if not subject.image.gpu or "torchrun" not in subject.image.launchers:
        return None
    if subject.hosts > 1:
        return SmokeCheck(name, not_tested="`nccl_all_reduce` connects all hosts of the job")
    if not subject.gpus:
        return SmokeCheck(name, not_tested=_NO_GPU)
    if not gpus:
        return SmokeCheck(name, not_tested="it needs a GPU for each of two hosts; use `--gpus 2`")
    return _probe_check(name, script, _nccl_job(subject, name, script, 2, gpus))


def _nccl_job(subject: Subject, check: str, script: str, hosts: int, gpus: int) -> TrainingJob:
    """Return a job with a rank of torchrun for each GPU."""
    job = _launcher_job(subject, check, script, *_torchrun(gpus, hosts))
    command = (*job.command, "--transport=nccl")
    return replace(job, command=command, processes_per_host=gpus, groups=homogeneous(hosts, gpus))


def _efa_bandwidth(subject: Subject) -> SmokeCheck | None:
    """Return the check of NCCL's all-reduce and broadcast over EFA, on all GPUs of several hosts."""
    script, hosts, gpus = "nccl_bandwidth.py", subject.hosts, subject.gpus // subject.hosts
    image = subject.image
    has_efa = any(part.component == "efa" or "efa" in dict(part.provides) for part in image.all_parts)
    if not image.gpu or "torchrun" not in image.launchers or not has_efa:
        return None
    if hosts == 1:
        return SmokeCheck(EFA_BANDWIDTH, not_tested="it needs two hosts with EFA; use `--on`")
    if not gpus:
        return SmokeCheck(EFA_BANDWIDTH, not_tested=_NO_GPU)
    job = _launcher_job(subject, EFA_BANDWIDTH, script, *_torchrun(gpus, hosts))
    command = (*job.command, f"--minimum={image.efa_bandwidth}")
    job = replace(job, command=command, processes_per_host=gpus, groups=homogeneous(hosts, gpus))
    return replace(_probe_check(EFA_BANDWIDTH, script, job), needs_efa=True)


def _gpu(subject: Subject) -> SmokeCheck | None:
    """Return the check of the framework's kernels on each GPU, and of NCCL across them."""
    name, gpus = "gpu", subject.gpus // subject.hosts
    if not subject.image.gpu:
        return None
    script = next((script for part, script in _GPU_SCRIPTS.items() if part in subject.contents), "")
    if not script:
        return SmokeCheck(name, not_tested=f"no check uses the GPUs of an image without {_GPU_FRAMEWORKS}")
    if not gpus:
        return SmokeCheck(name, not_tested=_NO_GPU)
    job = _launcher_job(subject, name, script, "python3")
    job = replace(job, command=(*job.command, f"--gpus={gpus}"), groups=homogeneous(gpus=gpus))
    return SmokeCheck(name, job, f"bakehouse/probes/{script}", records_ranks=False)


def _mpirun_nccl(subject: Subject) -> SmokeCheck | None:
    """Return the check of NCCL between ranks of mpirun, as Horovod and SMDDP start them."""
    name, script, gpus = "mpirun_nccl", "mpi_nccl_allreduce.py", subject.gpus // subject.hosts
    image = subject.image
    if not image.gpu or "mpirun" not in image.launchers or not subject.contents & _NCCL_USERS:
        return None
    if not gpus:
        return SmokeCheck(name, not_tested=_NO_GPU)
    job = _launcher_job(subject, name, script, *_mpirun(gpus), "python3")
    job = replace(job, processes_per_host=gpus, groups=homogeneous(gpus=gpus), environment=_STORE)
    return _probe_check(name, script, job)
