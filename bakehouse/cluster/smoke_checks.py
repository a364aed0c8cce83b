"""Which jobs show that an image trains: each launcher it carries, and what SageMaker expects of `train`."""

from dataclasses import dataclass, replace

from bakehouse.build.verify import PROBES
from bakehouse.cluster.job import CODE_CHANNEL, CODE_FOLDER, ML, TrainingJob, homogeneous
from bakehouse.plan.model import Image
from bakehouse.util.oci import Digest

_CODE = f"{ML}/input/data/{CODE_CHANNEL}"
_TORCHRUN = ("torchrun", "--standalone", "--tee=3", "--log-dir=/tmp/torchrun")
SECONDS, TWO_HOST_SECONDS, BAKED_SECONDS = 300.0, 420.0, 600.0
_NO_GPU = "no GPU was given; `--gpus` gives those of this machine"
_PROCESSES = "sagemaker_mpi_num_of_processes_per_host"


@dataclass(frozen=True, slots=True)
class Check:
    """A check that one job answers, or the reason why it can't be made."""

    name: str
    job: TrainingJob | None = None
    source: str = ""
    """The training script, as a person finds it."""
    must_fail: bool = False
    """The job passes by failing as SageMaker wants failures told."""
    needs_model: bool = False
    records_ranks: bool = True
    """The script notes how far each rank came; code baked into the image does not."""
    not_tested: str = ""


def job_checks(image: Image, digest: Digest, gpus: int = 0) -> tuple[Check, ...]:
    """The jobs that show whether `image` trains, those that take longest first."""
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
    # SageMaker takes no underscores in the name of a job.
    return TrainingJob(digest, check.replace("_", "-"), deadline=SECONDS, image_name=image.name)


def _trained(image: Image, digest: Digest, check: str, script: str) -> TrainingJob:
    """A job that runs one of our scripts as SageMaker runs a user's: through `train`."""
    job = replace(_job(image, digest, check), entry_point=script)
    # The toolkit copies code only to an empty /opt/ml/code.
    if image.entry_point or image.content.code:
        return replace(job, baked_code=_script(script))
    return replace(job, source=_script(script))


def _launched(image: Image, digest: Digest, check: str, script: str, *command: str) -> TrainingJob:
    """A job in which a launcher starts one of our scripts directly, without the toolkit."""
    started = (*command, f"{_CODE}/{script}")
    return replace(_job(image, digest, check), command=started, source=_script(script))


def _train_success(image: Image, digest: Digest, gpus: int) -> Check:
    name, script = "train_success", "train_ok.py"
    if image.entry_point:
        job = replace(
            _job(image, digest, name),
            entry_point=image.entry_point,
            deadline=BAKED_SECONDS,
            groups=homogeneous(gpus=gpus),
        )
        return Check(name, job, f"{CODE_FOLDER}/{image.entry_point}", records_ranks=False)
    job = replace(
        _trained(image, digest, name, script),
        hyperparameters={"epochs": 2, "channel": "training"},
        channels={"training": {"numbers.json": b"[1, 2, 3]"}},
    )
    return _check(name, script, job, needs_model=True)


def _train_failure(image: Image, digest: Digest, gpus: int) -> Check:
    name, script = "train_failure", "train_fails.py"
    return _check(name, script, _trained(image, digest, name, script), must_fail=True)


def _mpirun_1x2(image: Image, digest: Digest, gpus: int) -> Check:
    name, script = "mpirun_1x2", "mpi_allreduce.py"
    if "mpirun" not in image.launchers:
        return Check(name, not_tested="the image carries no mpirun")
    options = "--allow-run-as-root --host localhost:2 -np 2 --tag-output --bind-to none"
    job = _launched(image, digest, name, script, "mpirun", *options.split(), "python3", "-m", "mpi4py")
    return _check(name, script, replace(job, processes_per_host=2))


def _mpi_2x2(image: Image, digest: Digest, gpus: int) -> Check:
    name, script = "mpi_2x2", "mpi_allreduce.py"
    if "mpirun" not in image.launchers:
        return Check(name, not_tested="the image carries no mpirun")
    parameters = {"sagemaker_mpi_enabled": True, _PROCESSES: 2}
    job = _trained(image, digest, name, script)
    job = replace(
        job,
        groups=homogeneous(2),
        processes_per_host=2,
        hyperparameters=parameters,
        deadline=TWO_HOST_SECONDS,
    )
    return _check(name, script, job)


def _torchrun_1x2(image: Image, digest: Digest, gpus: int) -> Check:
    name, script = "torchrun_1x2", "torchrun_allreduce.py"
    if "torchrun" not in image.launchers:
        return Check(name, not_tested="the image carries no torchrun")
    job = _launched(image, digest, name, script, *_TORCHRUN, "--nproc-per-node=2")
    return _check(
        name, script, replace(job, command=(*job.command, "--transport=gloo"), processes_per_host=2)
    )


def _torchrun_2x2(image: Image, digest: Digest, gpus: int) -> Check | None:
    name, script = "torchrun_2x2", "torchrun_allreduce.py"
    if "torchrun" not in image.launchers:
        return None
    if not (image.training_module or "").startswith("sagemaker_pytorch_container"):
        return Check(name, not_tested="only the PyTorch training toolkit starts torchrun")
    parameters = {"sagemaker_torch_distributed_enabled": True, _PROCESSES: 2, "transport": "gloo"}
    job = _trained(image, digest, name, script)
    # What torchrun's options --tee and --log-dir would say; the toolkit passes no options on.
    told_apart = {"PET_TEE": "3", "PET_LOG_DIR": "/tmp/torchrun"}
    job = replace(
        job, groups=homogeneous(2), processes_per_host=2, hyperparameters=parameters, environment=told_apart
    )
    return _check(name, script, job)


def _nccl(image: Image, digest: Digest, gpus: int) -> Check | None:
    name, script = "nccl_all_reduce", "torchrun_allreduce.py"
    if not image.gpu or "torchrun" not in image.launchers:
        return None
    if not gpus:
        return Check(name, not_tested=_NO_GPU)
    job = _launched(image, digest, name, script, *_TORCHRUN, f"--nproc-per-node={gpus}")
    command = (*job.command, "--transport=nccl")
    return _check(
        name, script, replace(job, command=command, processes_per_host=gpus, groups=homogeneous(gpus=gpus))
    )


def _gpu(image: Image, digest: Digest, gpus: int) -> Check | None:
    """PyTorch's kernels and memory on every GPU, and NCCL in processes of its own."""
    name, script = "gpu", "gpu.py"
    if not image.gpu or "torchrun" not in image.launchers:
        return None
    if not gpus:
        return Check(name, not_tested=_NO_GPU)
    job = replace(_launched(image, digest, name, script, "python3"), groups=homogeneous(gpus=gpus))
    return Check(name, job, f"bakehouse/probes/{script}", records_ranks=False)
