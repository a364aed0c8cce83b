"""Runs a user's training job on one machine: `./bake run`, and the same for programs."""

import contextlib
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from bakehouse import cluster, delivery, job_report
from bakehouse.catalog import Catalog
from bakehouse.cluster import Heard
from bakehouse.engine import Engine
from bakehouse.files import write_whole
from bakehouse.instance_groups import instance_group
from bakehouse.instances import instances
from bakehouse.job_report import JobReport
from bakehouse.jobs import HOMOGENEOUS, ML, Job
from bakehouse.launch_settings import Framework, Training, launch_settings

_PROCESSES = "sagemaker_mpi_num_of_processes_per_host"
"""Of torchrun too, whatever its name says."""
KEPT = {f"{ML}/model": "model", f"{ML}/output": "output", f"{ML}/checkpoints": "checkpoints"}
"""What a job leaves: where on its hosts, and below which folder here."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A job as its user asks for it."""

    job: Job
    """Without code and channels."""
    source: Path | None = None
    """The folder of the training code; None is the code that the image holds."""
    channels: Mapping[str, Path] = field(default_factory=dict)
    efa_types: frozenset[str] = frozenset()


def run(
    engine: Engine, wanted: Wanted, folder: Path, address: str, heard: Heard = lambda host, data: None
) -> JobReport:
    """Run a job to its end; its logs, model, output and report lie below `folder`.

    `address` is one of this machine that the hosts reach. Raises UsageError for code that is too big.
    """
    job = replace(wanted.job, folders={name: str(path.resolve()) for name, path in wanted.channels.items()})
    with contextlib.ExitStack() as stack:
        if wanted.source:
            delivered = stack.enter_context(delivery.in_s3(wanted.source, address))
            environment = {**delivered.environment, **job.environment}
            job = replace(job, submit_directory=delivered.uri, environment=environment)
        kept = {path: folder / name for path, name in KEPT.items()}
        end = cluster.run(engine, job, folder / "logs", heard=heard, kept=kept)
    found = job_report.report(job, end, folder, wanted.efa_types)
    write_whole(folder / "report.json", job_report.as_json(found))
    return found


@dataclass(frozen=True, slots=True)
class Launch:
    """How a job's processes are to be started."""

    distribution: Mapping[str, object]
    framework: Framework = ""
    version: str = ""
    processes: int = 0
    """Ranks on each host; 0 is what the distribution says, else one for each GPU, else one."""


def with_launcher(job: Job, launch: Launch, catalog: Catalog) -> tuple[Job, tuple[str, ...]]:
    """The job with what its `distribution` turns into, and what the SDK does without a word.

    It wins over hyperparameters given by hand, as in the SDK. Raises UsageError with every mistake in it.
    """
    known = instances(catalog)
    is_one = [group.name for group in job.groups] == [HOMOGENEOUS]
    groups = tuple(
        instance_group(known, group.instance_type, group.count, "" if is_one else group.name)
        for group in job.groups
    )
    training = Training(groups, launch.framework, launch.version, job.entry_point)
    settings = launch_settings(launch.distribution, training)
    parameters = {**job.hyperparameters, **settings.hyperparameters}
    if launch.processes and settings.launcher in ("mpi", "torch_distributed"):
        parameters[_PROCESSES] = launch.processes
    told = parameters.get(_PROCESSES)
    processes = told if isinstance(told, int) else launch.processes or max(job.groups[0].gpus, 1)
    changed = replace(job, hyperparameters=parameters, processes=processes, launched_in=settings.groups)
    return changed, settings.warnings


def efa_types(catalog: Catalog) -> frozenset[str]:
    """The instance types that have EFA interfaces."""
    return frozenset(name for name, known in instances(catalog).items() if known.efa_interfaces)


def any_seed() -> int:
    """A number that deals hosts to groups anew each time, short enough to be typed again."""
    return secrets.randbelow(999) + 1


def job_name(image: str, now: float | None = None) -> str:
    """A name as SageMaker takes it, of the image's and the time."""
    letters = "".join(sign if sign.isalnum() else "-" for sign in image.rpartition("/")[2])
    stamp = time.strftime("%Y-%m-%d-%H-%M-%S", time.gmtime(now))
    return f"{letters.strip('-')[:40].rstrip('-')}-{stamp}"
