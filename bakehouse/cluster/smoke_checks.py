"""Jobs that show whether an image can train: one for each launcher, and SageMaker's contract of `train`."""

from dataclasses import dataclass, replace

from bakehouse.build.verify import PROBES
from bakehouse.cluster.job import CODE_CHANNEL, ML, TrainingJob, homogeneous
from bakehouse.plan.model import Image
from bakehouse.util.oci import Digest

_CODE = f"{ML}/input/data/{CODE_CHANNEL}"
_TORCHRUN = ("torchrun", "--standalone", "--tee=3", "--log-dir=/tmp/torchrun")
SECONDS, TWO_HOST_SECONDS = 300.0, 420.0
_NO_GPU = "no GPU was given; use `--gpus`"
_PROCESSES = "sagemaker_mpi_num_of_processes_per_host"


@dataclass(frozen=True, slots=True)
class Check:
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
    not_tested: str = ""


def job_checks(image: Image, digest: Digest, gpus: int = 0) -> tuple[Check, ...]:
    """Return the checks of an image, longest first."""
    makers = (
        *(_mpi_2x2, _torchrun_2x2, _train_success, _train_failure),
        *(_torchrun_1x2, _nccl, _gpu, _mpirun_1x2),
    )
    checks = (maker(image, digest, gpus) for maker in makers)
    return tuple(check for check in checks if check)


def _script(name: str) -> dict[str, bytes]:
    return {file: (PROBES / file).read_bytes() for file in (name, "job_record.py")}


def _check(
    check: str, script: str, job: TrainingJob, *, needs_model: bool = False, must_fail: bool = False
) -> Check:
    return Check(check, job, f"bakehouse/probes/{script}", needs_model=needs_model, must_fail=must_fail)


def _job(image: Image, digest: Digest, check: str) -> TrainingJob:
    # SageMaker does not allow underscores in job names.
    return TrainingJob(digest, check.replace("_", "-"), deadline=SECONDS, image_name=image.name)


def _toolkit_job(image: Image, digest: Digest, check: str, script: str) -> TrainingJob:
    """Return a job that runs a probe like a user's script: through `train`."""
    job = replace(_job(image, digest, check), entry_point=script)
    # The toolkit copies code only into an empty /opt/ml/code, and prefers the image's SAGEMAKER_PROGRAM.
    if image.entry_point or image.content.code:
        return replace(job, baked_code=_script(script), environment={"SAGEMAKER_PROGRAM": script})
    return replace(job, source=_script(script))


def _launcher_job(image: Image, digest: Digest, check: str, script: str, *launcher: str) -> TrainingJob:
    """Return a job in which a launcher runs a probe directly, without the toolkit."""
    command = (*launcher, f"{_CODE}/{script}")
    return replace(_job(image, digest, check), command=command, source=_script(script))


def _train_success(image: Image, digest: Digest, gpus: int) -> Check:
    name, script = "train_success", "train_ok.py"
    job = replace(
        _toolkit_job(image, digest, name, script),
        hyperparameters={"epochs": 2, "channel": "training"},
        channels={"training": {"numbers.json": b"[1, 2, 3]"}},
    )
    return _check(name, script, job, needs_model=True)


def _train_failure(image: Image, digest: Digest, gpus: int) -> Check:
    name, script = "train_failure", "train_fails.py"
    return _check(name, script, _toolkit_job(image, digest, name, script), must_fail=True)


def _mpirun_1x2(image: Image, digest: Digest, gpus: int) -> Check:
    name, script = "mpirun_1x2", "mpi_allreduce.py"
    if "mpirun" not in image.launchers:
        return Check(name, not_tested="the image contains no mpirun")
    options = "--allow-run-as-root --host localhost:2 -np 2 --tag-output --bind-to none"
    job = _launcher_job(image, digest, name, script, "mpirun", *options.split(), "python3", "-m", "mpi4py")
    return _check(name, script, replace(job, processes_per_host=2))


def _mpi_2x2(image: Image, digest: Digest, gpus: int) -> Check:
    name, script = "mpi_2x2", "mpi_allreduce.py"
    if "mpirun" not in image.launchers:
        return Check(name, not_tested="the image contains no mpirun")
    job = replace(
        _toolkit_job(image, digest, name, script),
        groups=homogeneous(2),
        processes_per_host=2,
        hyperparameters={"sagemaker_mpi_enabled": True, _PROCESSES: 2},
        deadline=TWO_HOST_SECONDS,
    )
    return _check(name, script, job)


def _torchrun_1x2(image: Image, digest: Digest, gpus: int) -> Check:
    name, script = "torchrun_1x2", "torchrun_allreduce.py"
    if "torchrun" not in image.launchers:
        return Check(name, not_tested="the image contains no torchrun")
    job = _launcher_job(image, digest, name, script, *_TORCHRUN, "--nproc-per-node=2")
    job = replace(job, command=(*job.command, "--transport=gloo"), processes_per_host=2)
    return _check(name, script, job)


def _torchrun_2x2(image: Image, digest: Digest, gpus: int) -> Check | None:
    name, script = "torchrun_2x2", "torchrun_allreduce.py"
    if "torchrun" not in image.launchers:
        return None
    if not (image.training_module or "").startswith("sagemaker_pytorch_container"):
        return Check(name, not_tested="only the PyTorch training toolkit starts torchrun")
    job = _toolkit_job(image, digest, name, script)
    job = replace(
        job,
        groups=homogeneous(2),
        processes_per_host=2,
        hyperparameters={"sagemaker_torch_distributed_enabled": True, _PROCESSES: 2, "transport": "gloo"},
        # The same as torchrun's --tee and --log-dir. The toolkit passes on no options.
        environment={**job.environment, "PET_TEE": "3", "PET_LOG_DIR": "/tmp/torchrun"},
    )
    return _check(name, script, job)


def _nccl(image: Image, digest: Digest, gpus: int) -> Check | None:
    name, script = "nccl_all_reduce", "torchrun_allreduce.py"
    if not image.gpu or "torchrun" not in image.launchers:
        return None
    if not gpus:
        return Check(name, not_tested=_NO_GPU)
    job = _launcher_job(image, digest, name, script, *_TORCHRUN, f"--nproc-per-node={gpus}")
    command = (*job.command, "--transport=nccl")
    job = replace(job, command=command, processes_per_host=gpus, groups=homogeneous(gpus=gpus))
    return _check(name, script, job)


def _gpu(image: Image, digest: Digest, gpus: int) -> Check | None:
    """Return the check of PyTorch's kernels and memory on each GPU, and of NCCL across them."""
    name, script = "gpu", "gpu.py"
    if not image.gpu or "torchrun" not in image.launchers:
        return None
    if not gpus:
        return Check(name, not_tested=_NO_GPU)
    job = replace(_launcher_job(image, digest, name, script, "python3"), groups=homogeneous(gpus=gpus))
    return Check(name, job, f"bakehouse/probes/{script}", records_ranks=False)
