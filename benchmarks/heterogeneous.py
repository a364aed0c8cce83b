"""Speed of the heterogeneous examples, relative to the bound that CPU quotas set. Needs an idle machine.

python benchmarks/heterogeneous.py [--framework tensorflow] [--training 0.25] [--data 0.75] [--data-hosts 1]

Each example runs on the training host alone, again with almost no preparation, and with a data group. CPU
quotas create the bottleneck. If a batch needs P core-seconds of preparation and T of training, a step takes
(P + T) / cores on a single training host. With a data group, a step takes the maximum of P / cores of the
data group and T / cores of the training host.

python benchmarks/heterogeneous.py --ranks 4 [--training 0.2] [--data 1.0]

The PyTorch example runs with one rank, and with several on a training host with as many times the cores.
"""

import argparse
import json
import os
import statistics
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bakehouse.catalog.project import HOME
from bakehouse.cluster.job import Group, TrainingJob
from bakehouse.cluster.job_report import JobReport, Status, text
from bakehouse.pipeline.run import run_job
from bakehouse.plan.workspace import Workspace, open_workspace
from bakehouse.sagemaker.local_job import RunRequest

SOURCE = HOME / "examples" / "heterogeneous"
IMAGES = {"tensorflow": "tensorflow-cpu", "pytorch": "pytorch-data-service-cpu"}
GOAL = 0.9
SIZES: Mapping[str, Mapping[str, object]] = {
    "tensorflow": {"batch": 4, "size": 32, "rounds": 400},
    "pytorch": {"batch": 16, "rounds": 60},
}
"""Preparing a batch must take longer than training on it."""
WARMUP = 20
"""Steps until the batches that were prepared during the training host's start are used up."""


@dataclass(frozen=True)
class Measured:
    """Speed that an example reports."""

    milliseconds: float
    """Time of a step."""
    samples_per_second: float
    samples_per_second_and_vcpu: float
    loader_vcpus: float
    """CPUs that prepare data, or shares of them."""
    data_hosts: int
    loss: float
    replicas: int = 0
    """Devices that train; 0 if the script does not report it."""
    examples: int = 0
    """Different examples that all ranks used; 0 if the script does not report it."""
    most_uses: int = 0


def run(
    workspace: Workspace, framework: str, groups: tuple[Group, ...], steps: int, **changed: object
) -> Measured:
    """Run one job; exit if it does not complete."""
    job = TrainingJob(
        groups=groups,
        entry_point=f"train_{framework}.py",
        hyperparameters={"steps": steps, "warmup": WARMUP, **SIZES[framework], **changed},
        deadline=900.0,
    )
    report = run_job(workspace, IMAGES[framework], RunRequest(job, source_dir=SOURCE))
    if report.status is not Status.COMPLETED:
        sys.exit(text(report))
    return result_of(report)


def result_of(report: JobReport) -> Measured:
    """Return what the training host of a job reports."""
    [path] = (report.folder / "model").glob("*/result.json")
    document = json.loads(path.read_text())
    return Measured(
        **{field.name: document[field.name] for field in fields(Measured) if field.name in document}
    )


def measured(workspace: Workspace, framework: str, options: argparse.Namespace) -> float:
    """Print the rows of a framework, and return the gained part of the theoretical gain."""
    training = Group("training", "ml.p4d.24xlarge", cpus=options.training)
    data = Group("data", "ml.c5.18xlarge", options.data_hosts, cpus=options.data)
    rows: dict[str, list[Measured]] = {"alone": [], "nothing to prepare": [], "data group": []}
    for _ in range(options.times):
        rows["alone"].append(run(workspace, framework, (training,), options.steps))
        rows["nothing to prepare"].append(run(workspace, framework, (training,), options.steps * 2, rounds=0))
        rows["data group"].append(run(workspace, framework, (training, data), options.steps * 2))
    alone, bare, split = (statistics.median(job.milliseconds for job in row) for row in rows.values())
    for name, row in rows.items():
        times = ", ".join(f"{job.milliseconds:.1f}" for job in row)
        speeds = ", ".join(f"{job.samples_per_second_and_vcpu:.1f}" for job in row)
        print(f"{framework}, {name}: {times} ms a step; {speeds} samples per second and vCPU of the loader")
    prepare = (alone - bare) * options.training
    allowed = max(prepare / (options.data * options.data_hosts), bare)
    part = float(allowed / split)
    quotas = f"| {framework} | {options.training:g} | {options.data_hosts} x {options.data:g} "
    steps = f"| {alone:.0f} ms | {split:.0f} ms | {alone / split:.2f} | {alone / allowed:.2f} | {part:.2f} |"
    print(quotas + steps, flush=True)
    return part


def measured_ranks(workspace: Workspace, options: argparse.Namespace) -> float:
    """Print the speed of one rank and of several, and return the gained part of the linear gain."""
    speeds = []
    data = Group("data", "ml.c5.18xlarge", options.data_hosts, cpus=options.data)
    for ranks in (1, options.ranks):
        training = Group("training", "ml.p4d.24xlarge", cpus=options.training * ranks)
        jobs = [
            run(workspace, "pytorch", (training, data), options.steps, ranks=ranks, rounds=1)
            for _ in range(options.times)
        ]
        speeds.append(statistics.median(job.samples_per_second for job in jobs))
        print(f"{ranks} ranks, {options.training * ranks:g} cores: {speeds[-1]:.1f} samples/s", flush=True)
    gain = speeds[1] / speeds[0]
    print(f"gain {gain:.2f} of {options.ranks}")
    return float(gain / options.ranks)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--framework", action="append", choices=list(IMAGES))
    parser.add_argument(
        "--training", type=float, default=0.25, help="cores of the training host, or per rank"
    )
    parser.add_argument("--data", type=float, default=0.75, help="cores of each data host")
    parser.add_argument("--data-hosts", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=1, help="compare this number of ranks with one")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--times", type=int, default=3)
    options = parser.parse_args()
    workspace = open_workspace(HOME)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before the first job")
    if options.ranks > 1:
        parts = [measured_ranks(workspace, options)]
    else:
        print("| framework | cores: training | data | step alone | with data group | gain | allowed | part |")
        print("|---|---|---|---|---|---|---|---|", flush=True)
        parts = [measured(workspace, framework, options) for framework in options.framework or IMAGES]
    if min(parts) < GOAL:
        sys.exit(f"less than {GOAL} of what the quotas allow: is the machine quiet?")


if __name__ == "__main__":
    main()
