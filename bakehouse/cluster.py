"""Runs a training job as SageMaker runs it: one container a host, named, configured and started alike.

The hosts `algo-1`, `algo-2`, … share a network of their own; the toolkit in the image starts the ranks.
"""

import json
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bakehouse.engine import Container, ContainerSpec, Ended, Engine
from bakehouse.ranks import Note, SplitLog, read_notes, split_log

ML = "/opt/ml"
CODE_FOLDER = f"{ML}/code"
MOUNTS = (f"{ML}/input", f"{ML}/output", f"{ML}/model", f"{ML}/checkpoints")
"""Not /opt/ml itself: code baked at /opt/ml/code has to stay visible."""
CODE_CHANNEL = "code"
INSTANCE_TYPE = "ml.c5.xlarge"
STOP_GRACE = 3.0


@dataclass(frozen=True, slots=True)
class Job:
    """A training job on one or more hosts."""

    image: str
    """A digest of the engine's store."""
    name: str
    hosts: int = 1
    processes: int = 1
    """Ranks a host."""
    command: tuple[str, ...] = ()
    """What the hosts run in place of the image's own start; empty: `train`, as SageMaker starts it."""
    source: Mapping[str, bytes] = field(default_factory=dict)
    """Training code, in a channel that the toolkit copies to /opt/ml/code when nothing lies there."""
    baked: Mapping[str, bytes] = field(default_factory=dict)
    """Training code put beside what the image holds at /opt/ml/code."""
    entry_point: str = ""
    hyperparameters: Mapping[str, object] = field(default_factory=dict)
    """The user's, and those that `distribution` turns into."""
    channels: Mapping[str, Mapping[str, bytes]] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    gpus: int = 0
    deadline: float = 120.0
    grace: float = 5.0
    """How long the other hosts get to end by themselves once one has failed."""
    image_name: str = ""

    @property
    def ranks(self) -> int:
        return self.hosts * self.processes

    @property
    def host_names(self) -> tuple[str, ...]:
        return tuple(f"algo-{number}" for number in range(1, self.hosts + 1))

    def host_of(self, rank: int) -> str:
        """Where a rank runs: launchers fill one host after the other."""
        return self.host_names[min(rank // self.processes, self.hosts - 1)]


@dataclass(frozen=True, slots=True)
class HostEnd:
    """What became of one host."""

    host: str
    exit_code: int | None
    """None: it was still running at the deadline, or when another host's failure ended the job."""
    out_of_memory: bool = False
    success: bool = False
    failure: str | None = None
    """What /opt/ml/output/failure says, where it was written."""
    model: Mapping[str, int] = field(default_factory=dict)
    """The model's files and their sizes."""


@dataclass(frozen=True, slots=True)
class JobEnd:
    """How a job ended."""

    hosts: tuple[HostEnd, ...]
    notes: tuple[Note, ...]
    """What the ranks noted about themselves, in the order of time."""
    logs: Mapping[str, str]
    """What each host printed."""
    split: Mapping[str, SplitLog]
    """The same, taken apart by ranks."""
    timed_out: bool
    seconds: float

    @property
    def exit_codes(self) -> tuple[int | None, ...]:
        return tuple(end.exit_code for end in self.hosts)


def input_files(job: Job, host: str) -> dict[str, bytes]:
    """All that lies below /opt/ml on one host before it starts: configuration, channels and code."""
    names = sorted(job.host_names)
    resources = {
        "current_host": host,
        "current_instance_type": INSTANCE_TYPE,
        "current_group_name": "homogeneousCluster",
        "hosts": names,
        "instance_groups": [
            {"instance_group_name": "homogeneousCluster", "instance_type": INSTANCE_TYPE, "hosts": names}
        ],
        "network_interface_name": "eth0",
    }
    channels = dict(job.channels)
    parameters: dict[str, object] = {"sagemaker_program": job.entry_point, "sagemaker_job_name": job.name}
    if job.source:
        channels[CODE_CHANNEL] = job.source
        parameters["sagemaker_submit_directory"] = f"{ML}/input/data/{CODE_CHANNEL}"
    parameters |= job.hyperparameters
    config = {
        "resourceconfig": resources,
        "hyperparameters": {name: json.dumps(value) for name, value in parameters.items()},
        "inputdataconfig": dict.fromkeys(channels, _CHANNEL),
    }
    files = {
        f"{ML}/input/config/{name}.json": json.dumps(content, indent=2, sort_keys=True).encode()
        for name, content in config.items()
    }
    files |= {f"{CODE_FOLDER}/{path}": data for path, data in job.baked.items()}
    for channel, content in channels.items():
        files |= {f"{ML}/input/data/{channel}/{path}": data for path, data in content.items()}
    return files


def run(engine: Engine, job: Job, folder: Path) -> JobEnd:
    """Run `job` to its end or its deadline; its logs stay in `folder`, nothing stays in the engine."""
    with ExitStack() as stack:
        network = stack.enter_context(engine.network(job.name))
        hosts = {
            host: stack.enter_context(engine.container(_spec(job, host, network))) for host in job.host_names
        }
        started = time.monotonic()
        for host, container in hosts.items():
            container.start(folder / f"{host}.log")
        ended = _wait(hosts, job)
        timed_out = len(ended) < len(hosts) and not any(end.exit_code for end in ended.values())
        seconds = time.monotonic() - started
        for host in hosts.keys() - ended.keys():
            hosts[host].stop(STOP_GRACE)
        ends = tuple(_host_end(host, container, ended.get(host)) for host, container in hosts.items())
        notes = read_notes(
            content
            for container in hosts.values()
            for content in container.read(f"{ML}/output/data/ranks").values()
        )
    logs, split = _keep_logs(job, folder)
    return JobEnd(ends, notes, logs, split, timed_out, seconds)


_CHANNEL: Mapping[str, Any] = {
    "TrainingInputMode": "File",
    "S3DistributionType": "FullyReplicated",
    "RecordWrapperType": "None",
}


def _spec(job: Job, host: str, network: str) -> ContainerSpec:
    return ContainerSpec(
        image=job.image,
        command=job.command or ("train",),
        keep_entrypoint=not job.command,
        hostname=host,
        network=network,
        environment={"TRAINING_JOB_NAME": job.name, **job.environment},
        files=input_files(job, host),
        mounts=MOUNTS,
        gpus=job.gpus,
        image_name=job.image_name,
    )


def _wait(hosts: Mapping[str, Container], job: Job) -> dict[str, Ended]:
    """Who ended by the deadline; after the first failure the others get `job.grace` seconds."""
    deadline = time.monotonic() + job.deadline
    ended: dict[str, Ended] = {}
    while len(ended) < len(hosts) and (left := deadline - time.monotonic()) > 0:
        for host in hosts.keys() - ended.keys():
            end = hosts[host].wait(min(left, 0.5))
            if end is None:
                continue
            ended[host] = end
            if end.exit_code:
                deadline = min(deadline, time.monotonic() + job.grace)
    return ended


def _host_end(host: str, container: Container, ended: Ended | None) -> HostEnd:
    failure = container.read(f"{ML}/output/failure")
    return HostEnd(
        host,
        ended.exit_code if ended else None,
        bool(ended and ended.out_of_memory),
        bool(container.sizes(f"{ML}/output/success")),
        failure["failure"].decode(errors="replace") if failure else None,
        container.sizes(f"{ML}/model"),
    )


def _keep_logs(job: Job, folder: Path) -> tuple[dict[str, str], dict[str, SplitLog]]:
    """Write a log of its own for each rank, beside the hosts'."""
    logs, split = {}, {}
    for number, host in enumerate(job.host_names):
        logs[host] = (folder / f"{host}.log").read_text(errors="replace")
        split[host] = split_log(logs[host], number * job.processes)
        for rank, text in split[host].ranks.items():
            # mpirun prints on its own host what the ranks of all hosts print.
            (folder / f"{job.host_of(rank)}-rank-{rank}.log").write_text(text)
    return logs, split
