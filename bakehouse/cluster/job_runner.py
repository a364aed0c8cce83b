"""Run a training job as SageMaker does: one container per host, on a network of its own.

The hosts are named `algo-1`, `algo-2`, …. The SageMaker Training Toolkit in the image starts the ranks.
"""

import contextlib
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bakehouse.cluster.job import LIMITED, ML, MOUNTS, TrainingJob, input_files
from bakehouse.cluster.ranks import RankEvent, SplitLog, read_events, split_log
from bakehouse.engine.protocol import Container, ContainerExit, ContainerSpec, Engine
from bakehouse.util.files import open_file, read_text, write_whole

STOP_GRACE = 3.0
_KILLED = 137
_POLL_SECONDS = 0.25

OutputHandler = Callable[[str, bytes], None]
"""Receives a host's name and a piece of its output."""


@dataclass(frozen=True, slots=True)
class HostResult:
    """Result of one host."""

    host: str
    exit_code: int | None
    """None if the host still ran at the deadline or when another host's failure ended the job."""
    out_of_memory: bool = False
    success: bool = False
    failure: str | None = None
    """Content of /opt/ml/output/failure, if it exists."""
    model: Mapping[str, int] = field(default_factory=dict)
    """Files of the model with their sizes."""
    seconds: float | None = None
    """Seconds from the job's start to the host's end; None if the host was ended with the job."""
    full: tuple[str, ...] = ()
    """Full directories, if the job limits their size."""


@dataclass(frozen=True, slots=True)
class InjectedFault:
    """A fault that the job asked for, and the hosts that could notice it."""

    description: str
    """For example `algo-2 was killed`."""
    at: float
    """Seconds after the job's start."""
    killed_host: str = ""
    witnesses: tuple[str, ...] = ()
    """Hosts that were running."""


@dataclass(frozen=True, slots=True)
class JobResult:
    """Result of a job."""

    hosts: tuple[HostResult, ...]
    events: tuple[RankEvent, ...]
    """Events that the ranks recorded, oldest first."""
    logs: Mapping[str, str]
    """Output of each host."""
    rank_logs: Mapping[str, SplitLog]
    """Output of each host, split by rank."""
    timed_out: bool
    seconds: float
    stopped: bool = False
    """The job was stopped before it ended by itself."""
    faults: tuple[InjectedFault, ...] = ()
    mpirun_ended: bool = False
    """The job ended with mpirun, so its hosts have no exit codes."""

    @property
    def exit_codes(self) -> tuple[int | None, ...]:
        return tuple(host.exit_code for host in self.hosts)


def run(
    engine: Engine,
    job: TrainingJob,
    logs: Path,
    *,
    on_output: OutputHandler = lambda host, data: None,
    collect: Mapping[str, Path] | None = None,
) -> JobResult:
    """Run `job` to its end or deadline. Logs are written to `logs`; nothing remains in the engine.

    `collect` maps directories of the hosts to local directories. The files of each host are copied there,
    into a subdirectory with the host's name.
    """
    with ExitStack() as stack:
        network = stack.enter_context(engine.network(job.name))
        volumes = {
            name: stack.enter_context(engine.volume(job.image, Path(directory)))
            for name, directory in job.channel_directories.items()
        }
        hosts = {
            host: stack.enter_context(engine.container(host_spec(job, host, network, volumes)))
            for host in job.host_names
        }
        monitor = _Monitor(hosts, job, logs)
        for host, container in hosts.items():
            container.start(logs / f"{host}.log", partial(on_output, host))
        exits = monitor.wait()
        is_ended = monitor.stopped or monitor.failed or monitor.mpirun_ended
        timed_out = len(exits) < len(hosts) and not is_ended
        seconds = monitor.elapsed()
        for host in hosts.keys() - exits.keys():
            hosts[host].stop(0 if monitor.mpirun_ended else STOP_GRACE)
        results = tuple(
            _host_result(job, host, hosts[host], exits.get(host), monitor.ended_at) for host in hosts
        )
        events = read_events(
            content
            for container in hosts.values()
            for content in container.read(f"{ML}/output/data/ranks").values()
        )
        for path, target in (collect or {}).items():
            for host, container in hosts.items():
                container.copy(path, target / host)
    host_logs, rank_logs = split_logs(job, logs)
    return JobResult(
        *(results, events, host_logs, rank_logs, timed_out, seconds),
        *(monitor.stopped, tuple(monitor.faults), monitor.mpirun_ended),
    )


def host_spec(job: TrainingJob, host: str, network: str, volumes: Mapping[str, str]) -> ContainerSpec:
    """Return the container of a host as SageMaker starts it; `volumes` are those of channel directories."""
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
        volumes={f"{ML}/input/data/{name}": volumes[name] for name in job.directories_of(host)},
        gpus=job.gpus_of(host),
        cpus=group.cpus,
        memory=job.memory,
        image_name=job.image_name,
    )


class _Monitor:
    """Waits for the hosts and injects the job's faults at their times."""

    def __init__(self, hosts: Mapping[str, Container], job: TrainingJob, logs: Path) -> None:
        self._hosts = hosts
        self._job = job
        self._logs = logs
        self._started = time.monotonic()
        self._deadline = job.deadline
        self._pending_kills = dict(job.kills)
        self._searched: dict[tuple[str, str], int] = {}
        """Position up to which the log of a host does not contain the text of a kill."""
        self.faults: list[InjectedFault] = []
        self.ended_at: dict[str, float] = {}
        self.stopped = False
        self.failed = False
        self.mpirun_ended = False

    def elapsed(self) -> float:
        return time.monotonic() - self._started

    def wait(self) -> dict[str, ContainerExit]:
        """Return the exits until the deadline. After the first failure, the others get the job's grace."""
        exits: dict[str, ContainerExit] = {}
        while len(exits) < len(self._hosts) and self._deadline > self.elapsed() and not self.mpirun_ended:
            self._inject_faults(exits)
            for host in sorted(self._hosts.keys() - exits.keys()):
                end = self._hosts[host].wait(_POLL_SECONDS)
                if end:
                    exits[host] = end
                    self._record_exit(host, end)
            if self._job.ends_with_mpirun and not exits:
                first, *others = self._job.rank_hosts
                # The toolkit's first host writes this file on the others after mpirun, unless mpirun failed.
                self.mpirun_ended = all(self._hosts[host].sizes(f"/tmp/done.{first}") for host in others)
        return exits

    def _record_exit(self, host: str, end: ContainerExit) -> None:
        now = self.elapsed()
        self.ended_at[host] = now
        # The others have to notice the loss of a killed host by themselves, so it does not end the job.
        was_killed = end.exit_code == _KILLED and any(fault.killed_host == host for fault in self.faults)
        if end.exit_code and not was_killed:
            self.failed = True
            if not self.stopped:
                self._deadline = min(self._deadline, now + self._job.grace)

    def _inject_faults(self, exits: Mapping[str, ContainerExit]) -> None:
        if self.failed:
            # The job is ending already.
            return
        now = self.elapsed()
        for host in [host for host, moment in self._pending_kills.items() if self._has_come(moment, now)]:
            del self._pending_kills[host]
            if host not in exits:
                self._hosts[host].signal("SIGKILL")
                self._record_fault(f"{host} was killed", exits, killed=host)
        if self._job.stop_after is not None and now >= self._job.stop_after and not self.stopped:
            self.stopped = True
            self._deadline = min(self._deadline, now + self._job.stop_grace)
            for host in self._hosts.keys() - exits.keys():
                self._hosts[host].signal("SIGTERM")

    def _has_come(self, moment: float | str, now: float) -> bool:
        if isinstance(moment, float | int):
            return moment <= now
        text = moment.encode()
        for host in self._hosts:
            with contextlib.suppress(FileNotFoundError), open_file(self._logs / f"{host}.log") as log:
                log.seek(self._searched.get((moment, host), 0))
                if text in log.read():
                    return True
                # The end of what was read may be the beginning of the text.
                self._searched[moment, host] = max(0, log.tell() - len(text) + 1)
        return False

    def _record_fault(self, description: str, exits: Mapping[str, ContainerExit], killed: str = "") -> None:
        dead = {*exits, *(fault.killed_host for fault in self.faults), killed}
        witnesses = tuple(sorted(self._hosts.keys() - dead))
        self.faults.append(InjectedFault(description, self.elapsed(), killed, witnesses))


def _host_result(
    job: TrainingJob,
    host: str,
    container: Container,
    end: ContainerExit | None,
    ended_at: Mapping[str, float],
) -> HostResult:
    failure = container.read(f"{ML}/output/failure")
    # A rank may have run out of memory on a host that was ended with the job.
    last_end = end or container.wait(STOP_GRACE)
    return HostResult(
        host,
        end.exit_code if end else None,
        bool(last_end and last_end.out_of_memory),
        bool(container.sizes(f"{ML}/output/success")),
        failure["failure"].decode(errors="replace") if failure else None,
        container.sizes(f"{ML}/model"),
        ended_at.get(host),
        tuple(path for path in LIMITED if job.volume_bytes and container.is_full(path)),
    )


def split_logs(job: TrainingJob, directory: Path) -> tuple[dict[str, str], dict[str, SplitLog]]:
    """Split each host's log by rank and write a file for each rank."""
    logs, rank_logs = {}, {}
    for host in job.host_names:
        index = job.rank_hosts.index(host) if host in job.rank_hosts else 0
        logs[host] = read_text(directory / f"{host}.log", errors="replace")
        rank_logs[host] = split_log(logs[host], index * job.processes_per_host)
        for rank, text in rank_logs[host].ranks.items():
            # mpirun prints the output of all hosts' ranks on its own host.
            write_whole(directory / f"{job.host_of(rank)}-rank-{rank}.log", text)
    return logs, rank_logs
