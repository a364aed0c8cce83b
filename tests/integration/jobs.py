"""Training jobs as users ask for them, run beside each other: they mostly wait."""

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from bakehouse import workflow
from bakehouse.job_report import JobReport
from bakehouse.jobs import Group, Job, homogeneous
from bakehouse.project import HOME
from bakehouse.running import Launch, Wanted, with_launcher
from bakehouse.workspace import Workspace

EXAMPLES = HOME / "examples"
AT_ONCE = 3
DATA_AND_DNN = (Group("data", "ml.c5.18xlarge"), Group("dnn", "ml.p4d.24xlarge"))


@dataclass(frozen=True)
class Case:
    """A job to be run."""

    image: str = "mpi-cpu"
    """Of a recipe, or any that the engine has."""
    source: Path | None = None
    """The folder of the code."""
    entry_point: str = "train.py"
    groups: tuple[Group, ...] = homogeneous()
    distribution: Mapping[str, object] = field(default_factory=dict)
    hyperparameters: Mapping[str, object] = field(default_factory=dict)
    kills: Mapping[str, float] = field(default_factory=dict)
    """Groups whose first host dies, and when."""
    memory: int | None = None
    deadline: float = 400.0
    stop_after: float | None = None
    stop_grace: float = 20.0
    channels: Mapping[str, Path] = field(default_factory=dict)
    framework: tuple[Literal["pytorch", "tensorflow", ""], str] | None = None
    """What the image trains with; None is what its recipe says."""


def run(workspace: Workspace, name: str, case: Case) -> JobReport:
    """Run one job as `./bake run` does."""
    job = Job(
        image="",
        name=f"{name}-{threading.get_native_id()}",
        groups=case.groups,
        seed=5 if len(case.groups) > 1 else None,
        entry_point=case.entry_point,
        hyperparameters=case.hyperparameters,
        memory=case.memory,
        deadline=case.deadline,
        stop_after=case.stop_after,
        stop_grace=case.stop_grace,
        grace=30.0,
    )
    framework = case.framework or workflow.framework_of(workspace, case.image)
    job, _ = with_launcher(job, Launch(case.distribution, *framework), workspace.catalog)
    kills = {job.hosts_by_group[group][0]: at for group, at in case.kills.items()}
    wanted = Wanted(replace(job, kills=kills), case.source, case.channels)
    return workflow.run_job(workspace, case.image, wanted, print, lambda host, data: None)


def run_all(workspace: Workspace, cases: Mapping[str, Case]) -> dict[str, JobReport]:
    """Run jobs beside each other, the longest first as they are listed."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        running = {name: pool.submit(run, workspace, name, case) for name, case in cases.items()}
        return {name: future.result() for name, future in running.items()}


def said(report: JobReport, host: str = "algo-1") -> str:
    """What a host printed."""
    return (report.folder / "logs" / f"{host}.log").read_text()
