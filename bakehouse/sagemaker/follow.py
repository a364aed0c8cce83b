"""Follows a training job on SageMaker, its status and its hosts' logs, until it ends or following does.

The job goes on whatever happens here: only StopTrainingJob ends it before its time.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from bakehouse.cluster.cluster import OutputHandler
from bakehouse.errors import Diagnostic
from bakehouse.sagemaker.client import TrainingService
from bakehouse.sagemaker.cloudwatch_logs import TrainingLogs
from bakehouse.util.aws import AwsError, AwsFault

ENDED = ("Completed", "Failed", "Stopped")
_INTERVAL = 5.0
_LONGEST_INTERVAL = 60.0
_PATIENCE = 600.0
"""Seconds for which nobody answers until following ends."""
_LATE = timedelta(minutes=2)
"""After a job's end its last lines may still be on their way for so long."""
_MOST_LATE_READS = 6
_QUIET_READS = 2
"""So many in a row that bring nothing, and no more lines are waited for."""
_PASSES = (AwsFault.BUSY, AwsFault.UNREACHABLE)


@dataclass(frozen=True, slots=True)
class Pace:
    """How often AWS is asked, and for how long where it does not answer."""

    interval: float = _INTERVAL
    patience: float = _PATIENCE
    wait: Callable[[float], None] = time.sleep


EVERY_FEW_SECONDS = Pace()


@dataclass(frozen=True, slots=True)
class Followed:
    """How far a job was followed."""

    description: Mapping[str, Any] | None
    """What SageMaker says of the job that ended; None where following ended before."""
    texts: Mapping[str, str]
    """The end of what each host printed."""
    trouble: Diagnostic | None = None
    """Why following ended before the job did; None where it was interrupted."""
    stopping: bool = False
    """SageMaker was asked to stop it."""


def follow(
    service: TrainingService,
    job: str,
    hosts: tuple[str, ...],
    say: Callable[[str], None],
    heard: OutputHandler,
    *,
    stop_on_interrupt: bool = False,
    pace: Pace = EVERY_FEW_SECONDS,
) -> Followed:
    """Tell what happens to a job until its end; a first interrupt stops it, if that is what it is for."""
    follower = _Follower(service, job, hosts, say, heard, pace)
    may_stop = stop_on_interrupt
    while True:
        try:
            return Followed(follower.until_the_end(), follower.logs.texts)
        except AwsError as error:
            is_stopping = stop_on_interrupt and not may_stop
            return Followed(None, follower.logs.texts, error.diagnostic, is_stopping)
        except KeyboardInterrupt:
            if not may_stop:
                return Followed(None, follower.logs.texts, stopping=stop_on_interrupt)
        may_stop = False
        if trouble := stop(service, job, say):
            return Followed(None, follower.logs.texts, trouble)


def stop(service: TrainingService, job: str, say: Callable[[str], None]) -> Diagnostic | None:
    """Ask SageMaker to stop the job; why that could not be asked, where it could not."""
    try:
        refused = _refused_stop(service, job)
    except KeyboardInterrupt:
        return Diagnostic("it was interrupted while SageMaker was asked to stop the job")
    # Not before: nobody may be there to hear it, as where Ctrl-C ended what the output is piped to.
    if not refused:
        say(f"{job}: SageMaker is asked to stop it; interrupt again to leave")
    return refused


def _refused_stop(service: TrainingService, job: str) -> Diagnostic | None:
    """Ask for the stop; why the job goes on, where it does."""
    try:
        service.stop(job)
    except AwsError as error:
        # One that has just ended, or is being stopped, can't be stopped: following tells how it ends.
        if error.fault is AwsFault.REJECTED and _is_ending(service, job):
            return None
        return error.diagnostic
    return None


def _is_ending(service: TrainingService, job: str) -> bool:
    try:
        return service.describe(job)["TrainingJobStatus"] in (*ENDED, "Stopping")
    except AwsError:
        return False


class _Follower:
    """Remembers what was told of a job."""

    def __init__(
        self,
        service: TrainingService,
        job: str,
        hosts: tuple[str, ...],
        say: Callable[[str], None],
        heard: OutputHandler,
        pace: Pace,
    ) -> None:
        self.logs = TrainingLogs(service, job, hosts)
        self._service = service
        self._job = job
        self._say = say
        self._heard = heard
        self._pace = pace
        self._told: dict[int, str] = {}
        """What was told of each change of the status."""
        self._reads_logs = True
        self._lacks_logs = False

    def until_the_end(self) -> Mapping[str, Any]:
        """What SageMaker says of the job once it has ended; raises AwsError where nobody can say."""
        while True:
            described = self._described()
            self._tell(described)
            self._listen()
            if described["TrainingJobStatus"] in ENDED:
                self._hear_the_rest(described)
                if self._lacks_logs:
                    self._say(f"{self._job}: not all of its logs could be read; follow it again for the rest")
                return described
            self._pace.wait(self._pace.interval)

    def _described(self) -> Mapping[str, Any]:
        """The job as it is; asked again for a while where AWS is busy, or can't be reached."""
        waited, pause = 0.0, self._pace.interval
        while True:
            try:
                described = self._service.describe(self._job)
            except AwsError as error:
                if error.fault not in _PASSES or waited >= self._pace.patience:
                    raise
                if not waited:
                    self._say(f"{self._job}: {error.fault.value}; the job goes on, and is asked about again")
                self._pace.wait(pause)
                waited += pause
                pause = min(2 * pause, _LONGEST_INTERVAL)
            else:
                if waited:
                    self._say(f"{self._job}: AWS answers again")
                return described

    def _tell(self, described: Mapping[str, Any]) -> None:
        """Every change of the status once, and again where its message is another."""
        for number, change in enumerate(described.get("SecondaryStatusTransitions", ())):
            message = change.get("StatusMessage", "")
            words = f"{change['Status']}: {message}" if message else str(change["Status"])
            if self._told.get(number) != words:
                self._told[number] = words
                self._say(f"{self._job}: {words}")

    def _listen(self) -> bool:
        """Hand on what the hosts printed; whether there was anything, or may be."""
        if not self._reads_logs:
            return False
        try:
            is_more = self.logs.hear(self._heard)
        except AwsError as error:
            match error.fault:
                case AwsFault.BUSY | AwsFault.UNREACHABLE:
                    if not self._lacks_logs:
                        self._say(f"{self._job}: {error.fault.value} where its logs are; they follow later")
                    self._lacks_logs = True
                    return True
                case AwsFault.NOT_FOUND:
                    # There is no log before a host has printed something.
                    return False
                case AwsFault.UNAUTHENTICATED:
                    raise
                case _:
                    self._reads_logs = False
                    why = "; ".join(one.text for one in error.diagnostic.reasons)
                    told = f"{error.diagnostic.message} ({why})" if why else error.diagnostic.message
                    self._say(f"{self._job}: {told}; its status is followed all the same")
                    return False
        self._lacks_logs = False
        return is_more

    def _hear_the_rest(self, described: Mapping[str, Any]) -> None:
        """What the hosts printed last: it arrives after the job has ended."""
        end = described.get("TrainingEndTime")
        is_old = isinstance(end, datetime) and datetime.now(UTC) - end > _LATE
        if is_old and not self._lacks_logs:
            return
        # The last lines of one that failed tell why.
        most_quiet = _MOST_LATE_READS if described["TrainingJobStatus"] == "Failed" else _QUIET_READS
        quiet = 0
        for _ in range(_MOST_LATE_READS):
            if quiet == most_quiet or not self._reads_logs:
                return
            self._pace.wait(self._pace.interval)
            quiet = 0 if self._listen() else quiet + 1
            if is_old and not self._lacks_logs:
                return
