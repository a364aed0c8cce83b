"""Runs a training job as SageMaker runs it: one container a host, named, configured and started alike.

The hosts `algo-1`, `algo-2`, … share a network of their own; the toolkit in the image starts the ranks.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bakehouse.cluster.job import LIMITED, ML, MOUNTS, NetworkPartition, TrainingJob, input_files
from bakehouse.cluster.ranks import RankEvent, SplitLog, read_events, split_log
from bakehouse.engine.protocol import Container, ContainerExit, ContainerSpec, Engine

STOP_GRACE = 3.0
_KILLED = 137
_TURN = 0.25
"""Seconds between two looks at the hosts."""

OutputHandler = Callable[[str, bytes], None]
"""Gets a host's name and what it printed, as it comes."""


@dataclass(frozen=True, slots=True)
class HostResult:
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
    seconds: float | None = None
    """When it ended, after the start of the job; None where it was ended with the job."""
    full: tuple[str, ...] = ()
    """Which folders could take no more, where the job limits them."""


@dataclass(frozen=True, slots=True)
class InjectedFault:
    """What this run took from the job, for the others to notice."""

    description: str
    """`algo-2 was killed`, `data and dnn were cut off from each other`."""
    at: float
    """When, after the start of the job."""
    killed_host: str = ""
    """The host that is gone with it."""
    witnesses: tuple[str, ...] = ()
    """The hosts that ran then, and could notice."""


@dataclass(frozen=True, slots=True)
class JobResult:
    """How a job ended."""

    hosts: tuple[HostResult, ...]
    events: tuple[RankEvent, ...]
    """What the ranks noted about themselves, in the order of time."""
    logs: Mapping[str, str]
    """What each host printed."""
    rank_logs: Mapping[str, SplitLog]
    """The same, taken apart by ranks."""
    timed_out: bool
    seconds: float
    stopped: bool = False
    """Somebody asked it to stop before it ended by itself."""
    faults: tuple[InjectedFault, ...] = ()

    @property
    def exit_codes(self) -> tuple[int | None, ...]:
        return tuple(end.exit_code for end in self.hosts)


def run(
    engine: Engine,
    job: TrainingJob,
    folder: Path,
    *,
    heard: OutputHandler = lambda host, data: None,
    kept: Mapping[str, Path] | None = None,
) -> JobResult:
    """Run `job` to its end or its deadline; its logs stay in `folder`, nothing stays in the engine.

    `heard` gets what the hosts print. `kept` names folders of the hosts, and folders here below which what
    each host left there is written, by the host's name.
    """
    with ExitStack() as stack:
        network = stack.enter_context(engine.network(job.name))
        hosts = {
            host: stack.enter_context(engine.container(_spec(job, host, network))) for host in job.host_names
        }
        watch = _Watch(hosts, job)
        for host, container in hosts.items():
            container.start(folder / f"{host}.log", partial(heard, host))
            if job.netem:
                container.impair_network(job.netem)
        ended = watch.to_the_end()
        timed_out = len(ended) < len(hosts) and not watch.stopped and not watch.failed
        seconds = watch.elapsed()
        for host in hosts.keys() - ended.keys():
            hosts[host].stop(STOP_GRACE)
        ends = tuple(_host_end(job, host, hosts[host], ended.get(host), watch.ended_at) for host in hosts)
        notes = read_events(
            content
            for container in hosts.values()
            for content in container.read(f"{ML}/output/data/ranks").values()
        )
        for path, target in (kept or {}).items():
            for host, container in hosts.items():
                container.copy(path, target / host)
    logs, split = _keep_logs(job, folder)
    return JobResult(ends, notes, logs, split, timed_out, seconds, watch.stopped, tuple(watch.losses))


def _spec(job: TrainingJob, host: str, network: str) -> ContainerSpec:
    group = job.group_of(host)
    return ContainerSpec(
        image=job.image,
        command=job.command or ("train",),
        keep_entrypoint=not job.command,
        hostname=host,
        network=network,
        environment={"TRAINING_JOB_NAME": job.name, **job.environment},
        files=input_files(job, host),
        mounts=MOUNTS,
        room=dict.fromkeys(LIMITED, job.volume_bytes) if job.volume_bytes else {},
        folders={f"{ML}/input/data/{name}": folder for name, folder in job.channel_directories.items()},
        gpus=job.gpus_of(host),
        cpus=group.cpus,
        memory=job.memory,
        image_name=job.image_name,
    )


class _Watch:
    """Waits for the hosts, and does to them in time what the job says happens."""

    def __init__(self, hosts: Mapping[str, Container], job: TrainingJob) -> None:
        self._hosts = hosts
        self._job = job
        self._started = time.monotonic()
        self._deadline = job.deadline
        self._alive = dict(job.kills)
        self._whole = list(job.partitions)
        self.losses: list[InjectedFault] = []
        self.ended_at: dict[str, float] = {}
        self.stopped = False
        self.failed = False

    def elapsed(self) -> float:
        return time.monotonic() - self._started

    def to_the_end(self) -> dict[str, ContainerExit]:
        """Who ended by the deadline; after the first failure the others get the job's grace."""
        ended: dict[str, ContainerExit] = {}
        while len(ended) < len(self._hosts) and self._deadline > self.elapsed():
            self._disturb(ended)
            for host in sorted(self._hosts.keys() - ended.keys()):
                end = self._hosts[host].wait(_TURN)
                if end:
                    ended[host] = end
                    self._note_end(host, end)
        return ended

    def _note_end(self, host: str, end: ContainerExit) -> None:
        now = self.elapsed()
        self.ended_at[host] = now
        # How the others take the loss of a host that was killed here is what its killing is for.
        was_killed = end.exit_code == _KILLED and any(loss.killed_host == host for loss in self.losses)
        if end.exit_code and not was_killed:
            self.failed = True
            if not self.stopped:
                self._deadline = min(self._deadline, now + self._job.grace)

    def _disturb(self, ended: Mapping[str, ContainerExit]) -> None:
        if self.failed:
            # What ends the job has happened already.
            return
        now = self.elapsed()
        for host in [host for host, at in self._alive.items() if at <= now]:
            del self._alive[host]
            if host not in ended:
                self._hosts[host].signal("SIGKILL")
                self._note_loss(f"{host} was killed", ended, killed=host)
        for cut in [cut for cut in self._whole if cut.at <= now]:
            self._whole.remove(cut)
            self._cut(cut)
            self._note_loss(f"{cut.first} and {cut.second} were cut off from each other", ended)
        if self._job.stop_after is not None and now >= self._job.stop_after and not self.stopped:
            self.stopped = True
            self._deadline = min(self._deadline, now + self._job.stop_grace)
            for host in self._hosts.keys() - ended.keys():
                self._hosts[host].signal("SIGTERM")

    def _cut(self, cut: NetworkPartition) -> None:
        sides = [[self._hosts[host] for host in self._job.hosts_of(name)] for name in (cut.first, cut.second)]
        addresses = [[address for host in side if (address := host.address())] for side in sides]
        for side, others in zip(sides, reversed(addresses), strict=True):
            for host in side:
                host.refuse(others)

    def _note_loss(self, what: str, ended: Mapping[str, ContainerExit], killed: str = "") -> None:
        dead = {*ended, *(loss.killed_host for loss in self.losses), killed}
        witnesses = tuple(sorted(self._hosts.keys() - dead))
        self.losses.append(InjectedFault(what, self.elapsed(), killed, witnesses))


def _host_end(
    job: TrainingJob,
    host: str,
    container: Container,
    ended: ContainerExit | None,
    ended_at: Mapping[str, float],
) -> HostResult:
    failure = container.read(f"{ML}/output/failure")
    # A rank may have had too little memory on a host that was ended with the job.
    stopped = ended or container.wait(STOP_GRACE)
    return HostResult(
        host,
        ended.exit_code if ended else None,
        bool(stopped and stopped.out_of_memory),
        bool(container.sizes(f"{ML}/output/success")),
        failure["failure"].decode(errors="replace") if failure else None,
        container.sizes(f"{ML}/model"),
        ended_at.get(host),
        tuple(path for path in LIMITED if job.volume_bytes and container.is_full(path)),
    )


def _keep_logs(job: TrainingJob, folder: Path) -> tuple[dict[str, str], dict[str, SplitLog]]:
    """Write a log of its own for each rank, beside the hosts'."""
    logs, split = {}, {}
    for host in job.host_names:
        place = job.rank_hosts.index(host) if host in job.rank_hosts else 0
        logs[host] = (folder / f"{host}.log").read_text(errors="replace")
        split[host] = split_log(logs[host], place * job.processes_per_host)
        for rank, text in split[host].ranks.items():
            # mpirun prints on its own host what the ranks of all hosts print.
            (folder / f"{job.host_of(rank)}-rank-{rank}.log").write_text(text)
    return logs, split
