"""A training job as SageMaker runs it: hosts, instance groups, and the files below /opt/ml."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

ML = "/opt/ml"
CODE_DIRECTORY = f"{ML}/code"
MOUNTS = (f"{ML}/input", f"{ML}/output", f"{ML}/model", f"{ML}/checkpoints")
"""/opt/ml itself is not mounted, because that would hide the image's own /opt/ml/code."""
LIMITED = (f"{ML}/model", f"{ML}/output", f"{ML}/checkpoints")
"""Directories that the job writes to; `volume_bytes` limits them."""
CODE_CHANNEL = "code"
CODE_ARCHIVE = f"{ML}/sourcedir.tar.gz"
"""No channel contains it, as on SageMaker, where the toolkit downloads it from S3."""
INSTANCE_TYPE = "ml.c5.xlarge"
HOMOGENEOUS = "homogeneousCluster"
"""SageMaker's name of the single group in a job without instance groups."""
INTERFACE = "eth0"
_CHANNEL: Mapping[str, Any] = {
    "TrainingInputMode": "File",
    "S3DistributionType": "FullyReplicated",
    "RecordWrapperType": "None",
}


class Encoded(str):
    """A hyperparameter as a request of the API has it: hosts get this text."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Group:
    """Hosts of one instance type."""

    name: str = HOMOGENEOUS
    instance_type: str = INSTANCE_TYPE
    count: int = 1
    cpus: float | None = None
    """Cores of each host; None means all of this machine."""
    gpus: int = 0
    """GPUs of this machine for each host."""


def numbered_gpus(count: int) -> tuple[str, ...]:
    """Return the ids of the first GPUs of this machine."""
    return tuple(map(str, range(count)))


def homogeneous(count: int = 1, gpus: int = 0) -> tuple[Group, ...]:
    """Return the single group of a job without instance groups."""
    return (Group(count=count, gpus=gpus),)


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """A training job on one or more hosts."""

    image: str = ""
    """Digest in the engine's image store; empty if the image is not built yet."""
    name: str = ""
    groups: tuple[Group, ...] = (Group(),)
    gpu_ids: tuple[str, ...] = ()
    """GPUs of this machine for all hosts, as numbers or UUIDs; empty means the first ones."""
    processes_per_host: int = 1
    """Ranks on each host."""
    total_ranks: int | None = None
    """Ranks of the whole job, for launchers that count these instead of ranks per host."""
    launcher_groups: tuple[str, ...] = ()
    """Groups whose hosts run ranks; empty means all."""
    seed: int | None = None
    """Seed of the random assignment of hosts to groups; None assigns them in order."""
    command: tuple[str, ...] = ()
    """Command of the hosts; empty means `train`, which SageMaker runs."""
    source: Mapping[str, bytes] = field(default_factory=dict)
    """Training code in a channel; the toolkit copies it to /opt/ml/code if that is empty."""
    baked_code: Mapping[str, bytes] = field(default_factory=dict)
    """Training code added to the image's own /opt/ml/code."""
    has_toolkit: bool = True
    """Hyperparameters are JSON and configure the SageMaker Training Toolkit. Otherwise they are text."""
    code_archive: bytes = field(default=b"", repr=False)
    """Training code as a gzipped tar archive, which the toolkit extracts to /opt/ml/code if that is empty."""
    entry_point: str = ""
    hyperparameters: Mapping[str, object] = field(default_factory=dict)
    """The user's hyperparameters and those of `distribution`."""
    channels: Mapping[str, Mapping[str, bytes]] = field(default_factory=dict)
    channel_directories: Mapping[str, str] = field(default_factory=dict)
    """More channels: directories of this host. Their copies are mounted read-only."""
    channel_groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Groups whose hosts get a channel; a channel that is missing here is for all."""
    environment: Mapping[str, str] = field(default_factory=dict)
    memory: int | None = None
    """Bytes of memory of each host; None means no limit."""
    deadline: float = 3600.0
    """Seconds until the job is ended."""
    grace: float = 5.0
    """Seconds that the other hosts may run after one has failed."""
    ends_with_mpirun: bool = False
    """End the job when the toolkit's first host has told the others that mpirun succeeded. All sleep then."""
    stop_after: float | None = None
    """Seconds until the job is stopped like StopTrainingJob: SIGTERM, SIGKILL after `stop_grace`."""
    stop_grace: float = 120.0
    kills: Mapping[str, float | str] = field(default_factory=dict)
    """Hosts to kill: seconds after the start, or a text that has to be in the log of any host first."""
    volume_bytes: int | None = None
    """Size of each `LIMITED` directory on a host; None means no limit."""
    image_name: str = ""

    @property
    def is_heterogeneous(self) -> bool:
        """The job has instance groups."""
        return [group.name for group in self.groups] != [HOMOGENEOUS]

    @property
    def size(self) -> int:
        """Number of hosts."""
        return sum(group.count for group in self.groups)

    @property
    def gpus(self) -> int:
        return sum(group.gpus * group.count for group in self.groups)

    @property
    def used_gpus(self) -> tuple[str, ...]:
        """GPUs of all hosts."""
        return tuple(gpu for host in self.host_names for gpu in self.gpus_of(host))

    @property
    def host_names(self) -> tuple[str, ...]:
        return tuple(f"algo-{number}" for number in range(1, self.size + 1))

    @property
    def hosts_by_group(self) -> dict[str, tuple[str, ...]]:
        """Host names of each group. A host name does not reveal its group."""
        names = list(self.host_names)
        if self.seed is not None:
            Random(self.seed).shuffle(names)
        hosts, start = {}, 0
        for group in self.groups:
            hosts[group.name] = tuple(sorted(names[start : start + group.count]))
            start += group.count
        return hosts

    def gpus_of(self, host: str) -> tuple[str, ...]:
        """Return the GPUs of a host. Hosts never share a GPU, because NCCL does not support that."""
        counts = [self.group_of(name).gpus for name in self.host_names]
        index = self.host_names.index(host)
        ids = self.gpu_ids or numbered_gpus(self.gpus)
        return ids[sum(counts[:index]) : sum(counts[: index + 1])]

    def directories_of(self, host: str) -> dict[str, str]:
        """Return the directories that a host gets as channels."""
        group = self.group_of(host).name
        return {
            name: path
            for name, path in self.channel_directories.items()
            if group in self.channel_groups.get(name, (group,))
        }

    def group_of(self, host: str) -> Group:
        hosts = self.hosts_by_group
        return next(group for group in self.groups if host in hosts[group.name])

    @property
    def rank_hosts(self) -> tuple[str, ...]:
        """Hosts that run ranks, in the toolkit's order."""
        hosts = self.hosts_by_group
        return tuple(sorted(host for name in self.launcher_groups or hosts for host in hosts[name]))

    @property
    def ranks(self) -> int:
        return self.total_ranks or len(self.rank_hosts) * self.processes_per_host

    def host_of(self, rank: int) -> str:
        """Return the host of a rank. Launchers fill one host after the other."""
        return self.rank_hosts[min(rank // self.processes_per_host, len(self.rank_hosts) - 1)]


def input_files(job: TrainingJob, host: str) -> dict[str, bytes]:
    """Return the files below /opt/ml before a host starts: configuration, channels and code."""
    hosts, group = job.hosts_by_group, job.group_of(host)
    resources = {
        "current_host": host,
        "current_instance_type": group.instance_type,
        "current_group_name": group.name,
        "hosts": sorted(job.host_names),
        "instance_groups": [
            {
                "instance_group_name": group.name,
                "instance_type": group.instance_type,
                "hosts": list(hosts[group.name]),
            }
            for group in job.groups
        ],
        "network_interface_name": INTERFACE,
    }
    channels = dict(job.channels)
    if job.source:
        channels[CODE_CHANNEL] = job.source
    config = {
        "resourceconfig": resources,
        "hyperparameters": _hyperparameters(job),
        "inputdataconfig": dict.fromkeys((*channels, *job.directories_of(host)), _CHANNEL),
    }
    files = {
        f"{ML}/input/config/{name}.json": json.dumps(content, indent=2, sort_keys=True).encode()
        for name, content in config.items()
    }
    files |= {f"{CODE_DIRECTORY}/{path}": data for path, data in job.baked_code.items()}
    if job.code_archive:
        files[CODE_ARCHIVE] = job.code_archive
    for channel, content in channels.items():
        files |= {f"{ML}/input/data/{channel}/{path}": data for path, data in content.items()}
    return files


def encode_hyperparameters(values: Mapping[str, object]) -> dict[str, str]:
    """Encode hyperparameters as SDK v3 does: strings unchanged, other values as JSON."""
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items()}


def job_name(image: str, now: float | None = None) -> str:
    """Return a valid job name from the image name and the time."""
    name = "".join(character if character.isalnum() else "-" for character in image.rpartition("/")[2])
    now = time.time() if now is None else now
    stamp = time.strftime("%Y-%m-%d-%H-%M-%S", time.gmtime(now))
    return f"{name.strip('-')[:38].rstrip('-')}-{stamp}-{int(now % 1 * 1000):03}"


def _hyperparameters(job: TrainingJob) -> dict[str, str]:
    if not job.has_toolkit:
        return encode_hyperparameters(job.hyperparameters)
    parameters: dict[str, object] = {"sagemaker_program": job.entry_point, "sagemaker_job_name": job.name}
    if job.source:
        parameters["sagemaker_submit_directory"] = f"{ML}/input/data/{CODE_CHANNEL}"
    elif job.code_archive:
        parameters["sagemaker_submit_directory"] = CODE_ARCHIVE
    parameters |= job.hyperparameters
    return {
        name: value if isinstance(value, Encoded) else json.dumps(value) for name, value in parameters.items()
    }
