"""Training jobs as users request them, run in parallel: they mostly wait."""

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from bakehouse.catalog.project import HOME
from bakehouse.cluster.job import Group, TrainingJob, homogeneous
from bakehouse.cluster.job_report import JobReport
from bakehouse.pipeline.run import run_job
from bakehouse.plan.workspace import Workspace
from bakehouse.sagemaker.local_job import RunRequest

EXAMPLES = HOME / "examples"
AT_ONCE = 3
_SEED = 5
DATA_AND_DNN = (Group("data", "ml.c5.18xlarge"), Group("dnn", "ml.p4d.24xlarge"))


@dataclass(frozen=True)
class Case:
    """A job to be run."""

    image: str = "mpi-cpu"
    """Image of a recipe, or any that the engine has."""
    source: Path | None = None
    """The directory of the code."""
    entry_point: str = "train.py"
    groups: tuple[Group, ...] = homogeneous()
    distribution: Mapping[str, object] = field(default_factory=dict)
    hyperparameters: Mapping[str, object] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    kills: Mapping[str, float | str] = field(default_factory=dict)
    """Hosts that die, or groups whose first host does, and when: seconds, or a text in the log."""
    room: int | None = None
    memory: int | None = None
    deadline: float = 400.0
    stop_after: float | None = None
    stop_grace: float = 20.0
    channels: Mapping[str, Path] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    processes: int | None = None
    sdk: Path | None = None
    fails: str = ""
    """The cause with which the job is known to fail."""
    is_daily: bool = False
    """Run by `./bake test`; `./bake test --release` runs the others."""


def run(workspace: Workspace, name: str, case: Case) -> JobReport:
    """Run one job as `./bake run` does."""
    job = TrainingJob(
        name=f"{name}-{threading.get_native_id()}",
        groups=case.groups,
        seed=_SEED if len(case.groups) > 1 else None,
        entry_point="" if case.command else case.entry_point,
        command=case.command,
        hyperparameters=case.hyperparameters,
        environment=case.environment,
        channel_directories={name: str(path.resolve()) for name, path in case.channels.items()},
        memory=case.memory,
        deadline=case.deadline,
        stop_after=case.stop_after,
        stop_grace=case.stop_grace,
        volume_bytes=case.room,
    )
    job = replace(
        job, kills={(job.hosts_by_group.get(name) or (name,))[0]: at for name, at in case.kills.items()}
    )
    request = RunRequest(job, case.source, case.distribution, case.sdk, case.processes)
    return run_job(workspace, case.image, request)


def run_all(workspace: Workspace, cases: Mapping[str, Case]) -> dict[str, JobReport]:
    """Run jobs in parallel, in the order of the list: the longest come first."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        running = {name: pool.submit(run, workspace, name, case) for name, case in cases.items()}
        return {name: future.result() for name, future in running.items()}


def due(cases: Mapping[str, Case], config: pytest.Config) -> dict[str, Case]:
    """Return the cases of this run."""
    is_release = config.getoption("--release")
    return {name: case for name, case in cases.items() if case.is_daily != is_release}


def each(cases: Mapping[str, Case], *names: str) -> pytest.MarkDecorator:
    """Parametrize a test with the names of cases; all by default."""
    return pytest.mark.parametrize(
        "name",
        [
            pytest.param(name, marks=() if cases[name].is_daily else pytest.mark.release)
            for name in names or cases
        ],
    )


def log_text(report: JobReport, host: str = "algo-1") -> str:
    """Return the log of a host."""
    return (report.folder / "logs" / f"{host}.log").read_text()
