"""A training job as SageMaker lays it out: its hosts and groups, and what lies below /opt/ml on each."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

ML = "/opt/ml"
CODE_FOLDER = f"{ML}/code"
MOUNTS = (f"{ML}/input", f"{ML}/output", f"{ML}/model", f"{ML}/checkpoints")
"""Not /opt/ml itself: code baked at /opt/ml/code has to stay visible."""
LIMITED = (f"{ML}/model", f"{ML}/output", f"{ML}/checkpoints")
"""What a job fills, in contrast to what it is given."""
CODE_CHANNEL = "code"
INSTANCE_TYPE = "ml.c5.xlarge"
HOMOGENEOUS = "homogeneousCluster"
"""The name that SageMaker gives the one group of a job without groups."""
INTERFACE = "eth0"
_CHANNEL: Mapping[str, Any] = {
    "TrainingInputMode": "File",
    "S3DistributionType": "FullyReplicated",
    "RecordWrapperType": "None",
}


@dataclass(frozen=True, slots=True)
class Group:
    """Hosts of one instance type."""

    name: str = HOMOGENEOUS
    instance_type: str = INSTANCE_TYPE
    count: int = 1
    cpus: float | None = None
    """The cores that each of its hosts may use; None is all that this machine has."""
    gpus: int = 0
    """That each of its hosts has of this machine's."""


def homogeneous(count: int = 1, gpus: int = 0) -> tuple[Group, ...]:
    """The one group of a job without groups."""
    return (Group(count=count, gpus=gpus),)


@dataclass(frozen=True, slots=True)
class NetworkPartition:
    """Two groups, or hosts, between which no packet passes from a time on."""

    first: str
    second: str
    at: float


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """A training job on one or more hosts."""

    image: str
    """A digest of the engine's store."""
    name: str
    groups: tuple[Group, ...] = (Group(),)
    processes_per_host: int = 1
    """Ranks a host."""
    total_ranks: int | None = None
    """Ranks of the whole job, where a launcher counts those, and not each host's."""
    launcher_groups: tuple[str, ...] = ()
    """The groups on whose hosts the launcher starts ranks; none means all."""
    seed: int | None = None
    """Deals hosts to groups at random, as SageMaker does; None deals them in order."""
    command: tuple[str, ...] = ()
    """What the hosts run in place of the image's own start; empty: `train`, as SageMaker starts it."""
    source: Mapping[str, bytes] = field(default_factory=dict)
    """Training code, in a channel that the toolkit copies to /opt/ml/code when nothing lies there."""
    baked_code: Mapping[str, bytes] = field(default_factory=dict)
    """Training code put beside what the image holds at /opt/ml/code."""
    has_toolkit: bool = True
    """Whether hyperparameters tell a toolkit what to start, each as JSON; else they are texts of the user."""
    submit_directory: str = ""
    """Where the toolkit fetches the training code from instead: an archive's address in S3."""
    entry_point: str = ""
    hyperparameters: Mapping[str, object] = field(default_factory=dict)
    """The user's, and those that `distribution` turns into."""
    channels: Mapping[str, Mapping[str, bytes]] = field(default_factory=dict)
    channel_directories: Mapping[str, str] = field(default_factory=dict)
    """Further channels: folders of this machine, which the hosts can read."""
    environment: Mapping[str, str] = field(default_factory=dict)
    memory: int | None = None
    """Bytes that each host may use; None is all that this machine has."""
    deadline: float = 120.0
    grace: float = 5.0
    """How long the other hosts get to end by themselves once one has failed."""
    stop_after: float | None = None
    """When the job is stopped, as StopTrainingJob does: SIGTERM, and SIGKILL after `stop_grace`."""
    stop_grace: float = 120.0
    kills: Mapping[str, float] = field(default_factory=dict)
    """Hosts that die, and when."""
    partitions: tuple[NetworkPartition, ...] = ()
    netem: str = ""
    """Delay and loss on the network of every host, as `tc … netem` is told."""
    volume_bytes: int | None = None
    """Bytes that each of `LIMITED` holds at most on a host; None is what this machine's disk does."""
    image_name: str = ""

    @property
    def size(self) -> int:
        """The number of hosts."""
        return sum(group.count for group in self.groups)

    @property
    def gpus(self) -> int:
        return sum(group.gpus * group.count for group in self.groups)

    @property
    def host_names(self) -> tuple[str, ...]:
        return tuple(f"algo-{number}" for number in range(1, self.size + 1))

    @property
    def hosts_by_group(self) -> dict[str, tuple[str, ...]]:
        """Which hosts each group has: a name says nothing about its group."""
        names = list(self.host_names)
        if self.seed is not None:
            Random(self.seed).shuffle(names)
        dealt, start = {}, 0
        for group in self.groups:
            dealt[group.name] = tuple(sorted(names[start : start + group.count]))
            start += group.count
        return dealt

    def gpus_of(self, host: str) -> tuple[int, ...]:
        """Which of this machine's GPUs a host has: each is one host's alone, since NCCL refuses to share."""
        counts = [self.group_of(name).gpus for name in self.host_names]
        place = self.host_names.index(host)
        return tuple(range(sum(counts[:place]), sum(counts[: place + 1])))

    def hosts_of(self, name: str) -> tuple[str, ...]:
        """The hosts of a group, or the host of that name."""
        return self.hosts_by_group.get(name) or tuple(host for host in self.host_names if host == name)

    def group_of(self, host: str) -> Group:
        dealt = self.hosts_by_group
        return next(group for group in self.groups if host in dealt[group.name])

    @property
    def rank_hosts(self) -> tuple[str, ...]:
        """The hosts that the launcher starts ranks on, in the toolkit's order."""
        dealt = self.hosts_by_group
        return tuple(sorted(host for name in self.launcher_groups or dealt for host in dealt[name]))

    @property
    def ranks(self) -> int:
        return self.total_ranks or len(self.rank_hosts) * self.processes_per_host

    def host_of(self, rank: int) -> str:
        """Where a rank runs: launchers fill one host after the other."""
        return self.rank_hosts[min(rank // self.processes_per_host, len(self.rank_hosts) - 1)]


def input_files(job: TrainingJob, host: str) -> dict[str, bytes]:
    """All that lies below /opt/ml on one host before it starts: configuration, channels and code."""
    dealt, group = job.hosts_by_group, job.group_of(host)
    resources = {
        "current_host": host,
        "current_instance_type": group.instance_type,
        "current_group_name": group.name,
        "hosts": sorted(job.host_names),
        "instance_groups": [
            {
                "instance_group_name": one.name,
                "instance_type": one.instance_type,
                "hosts": list(dealt[one.name]),
            }
            for one in job.groups
        ],
        "network_interface_name": INTERFACE,
    }
    channels = dict(job.channels)
    if job.source:
        channels[CODE_CHANNEL] = job.source
    config = {
        "resourceconfig": resources,
        "hyperparameters": _hyperparameters(job),
        "inputdataconfig": dict.fromkeys((*channels, *job.channel_directories), _CHANNEL),
    }
    files = {
        f"{ML}/input/config/{name}.json": json.dumps(content, indent=2, sort_keys=True).encode()
        for name, content in config.items()
    }
    files |= {f"{CODE_FOLDER}/{path}": data for path, data in job.baked_code.items()}
    for channel, content in channels.items():
        files |= {f"{ML}/input/data/{channel}/{path}": data for path, data in content.items()}
    return files


def as_texts(values: Mapping[str, object]) -> dict[str, str]:
    """Hyperparameters as version 3 of the SDK sends them: texts as they stand, anything else as JSON."""
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items()}


def job_name(image: str, now: float | None = None) -> str:
    """A name as SageMaker takes it, of the image's and the time."""
    letters = "".join(sign if sign.isalnum() else "-" for sign in image.rpartition("/")[2])
    now = time.time() if now is None else now
    stamp = time.strftime("%Y-%m-%d-%H-%M-%S", time.gmtime(now))
    return f"{letters.strip('-')[:38].rstrip('-')}-{stamp}-{int(now % 1 * 1000):03}"


def _hyperparameters(job: TrainingJob) -> dict[str, str]:
    if not job.has_toolkit:
        return as_texts(job.hyperparameters)
    parameters: dict[str, object] = {"sagemaker_program": job.entry_point, "sagemaker_job_name": job.name}
    if job.source:
        parameters["sagemaker_submit_directory"] = f"{ML}/input/data/{CODE_CHANNEL}"
    elif job.submit_directory:
        parameters["sagemaker_submit_directory"] = job.submit_directory
    parameters |= job.hyperparameters
    return {name: json.dumps(value) for name, value in parameters.items()}
