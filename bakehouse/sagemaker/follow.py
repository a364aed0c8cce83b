"""Follow a training job on SageMaker: its status and its hosts' logs.

The job continues if following ends. Only StopTrainingJob stops it.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from bakehouse.cluster.job_runner import OutputHandler
from bakehouse.errors import Diagnostic
from bakehouse.sagemaker.client import JobDescription, TrainingService
from bakehouse.sagemaker.cloudwatch_logs import TrainingLogs
from bakehouse.util.aws import AwsError, AwsFault
from bakehouse.util.terminal import Reporter

ENDED = ("Completed", "Failed", "Stopped")
_MAX_INTERVAL = 60.0
_LATE = timedelta(minutes=2)
"""CloudWatch may deliver lines this long after the job's end."""
_MAX_LATE_READS = 6
_QUIET_READS = 2
"""Reading ends after this many reads in a row without new lines."""
_TEMPORARY = (AwsFault.BUSY, AwsFault.UNREACHABLE)


@dataclass(frozen=True, slots=True)
class Pace:
    """Interval of the requests to AWS, and time-out of retries."""

    interval: float = 5.0
    timeout: float = 600.0
    """Seconds of failed requests after which following ends."""
    wait: Callable[[float], None] = time.sleep


DEFAULT_PACE = Pace()


@dataclass(frozen=True, slots=True)
class FollowResult:
    """Result of following a job."""

    description: JobDescription | None
    """The ended job; None if following ended before."""
    tails: Mapping[str, str]
    """End of each host's output."""
    problem: Diagnostic | None = None
    """Reason why following ended before the job; None after an interrupt."""
    stopping: bool = False
    """SageMaker was asked to stop the job."""


def follow(
    service: TrainingService,
    job: str,
    hosts: tuple[str, ...],
    report: Reporter,
    on_output: OutputHandler,
    *,
    stop_on_interrupt: bool = False,
    pace: Pace = DEFAULT_PACE,
) -> FollowResult:
    """Report a job's status and output until its end. With `stop_on_interrupt`, the first Ctrl-C stops it."""
    follower = _Follower(service, job, TrainingLogs(service, job, hosts), report, on_output, pace)
    may_stop = stop_on_interrupt
    while True:
        try:
            return FollowResult(follower.until_the_end(), follower.logs.tails)
        except AwsError as error:
            is_stopping = stop_on_interrupt and not may_stop
            return FollowResult(None, follower.logs.tails, error.diagnostic, is_stopping)
        except KeyboardInterrupt:
            if not may_stop:
                return FollowResult(None, follower.logs.tails, stopping=stop_on_interrupt)
        may_stop = False
        if problem := stop(service, job, report):
            return FollowResult(None, follower.logs.tails, problem)


def stop(service: TrainingService, job: str, report: Reporter) -> Diagnostic | None:
    """Ask SageMaker to stop the job; return the problem if that fails."""
    try:
        problem = _request_stop(service, job)
    except KeyboardInterrupt:
        return Diagnostic("interrupted while asking SageMaker to stop the job")
    # Reported afterwards: Ctrl-C may have ended the program that the output is piped to.
    if not problem:
        report(f"{job}: asked SageMaker to stop the job; interrupt again to exit")
    return problem


def _request_stop(service: TrainingService, job: str) -> Diagnostic | None:
    try:
        service.stop(job)
    except AwsError as error:
        # A job that has ended or is stopping can't be stopped. Its end will be reported.
        if error.fault is AwsFault.REJECTED and _is_ending(service, job):
            return None
        return error.diagnostic
    return None


def _is_ending(service: TrainingService, job: str) -> bool:
    try:
        return service.describe(job).status in (*ENDED, "Stopping")
    except AwsError:
        return False


@dataclass(slots=True)
class _Follower:
    """Follows one job, and reports each change once."""

    service: TrainingService
    job: str
    logs: TrainingLogs
    report: Reporter
    on_output: OutputHandler
    pace: Pace
    reported: dict[int, str] = field(default_factory=dict)
    """Reported text of each status change."""
    reads_logs: bool = True
    misses_logs: bool = False

    def until_the_end(self) -> JobDescription:
        """Return the ended job; raise AwsError if it can't be read."""
        while True:
            description = self._describe()
            self._report_status(description)
            self._read_logs()
            if description.status in ENDED:
                self._read_late_logs(description)
                if self.misses_logs:
                    self.report(f"{self.job}: some logs could not be read; follow it again to read them")
                return description
            self.pace.wait(self.pace.interval)

    def _describe(self) -> JobDescription:
        """Return the job's description; retry while AWS is busy or unreachable."""
        waited, pause = 0.0, self.pace.interval
        while True:
            try:
                description = self.service.describe(self.job)
            except AwsError as error:
                if error.fault not in _TEMPORARY or waited >= self.pace.timeout:
                    raise
                if not waited:
                    self.report(f"{self.job}: {error.fault.value}; the job continues, trying again")
                self.pace.wait(pause)
                waited += pause
                pause = min(2 * pause, _MAX_INTERVAL)
            else:
                if waited:
                    self.report(f"{self.job}: AWS answers again")
                return description

    def _report_status(self, description: JobDescription) -> None:
        """Report each status change once, and again if its message changes."""
        for number, text in enumerate(description.changes):
            if self.reported.get(number) != text:
                self.reported[number] = text
                self.report(f"{self.job}: {text}")

    def _read_logs(self) -> bool:
        """Pass on new output; return whether there was any or may be."""
        if not self.reads_logs:
            return False
        try:
            has_new = self.logs.read(self.on_output)
        except AwsError as error:
            match error.fault:
                case AwsFault.BUSY | AwsFault.UNREACHABLE:
                    if not self.misses_logs:
                        self.report(f"{self.job}: {error.fault.value}; its logs will be read later")
                    self.misses_logs = True
                    return True
                case AwsFault.NOT_FOUND:
                    # A log exists only after a host has printed something.
                    return False
                case AwsFault.UNAUTHENTICATED:
                    raise
                case _:
                    self.reads_logs = False
                    reasons = "; ".join(reason.text for reason in error.diagnostic.reasons)
                    message = (
                        f"{error.diagnostic.message} ({reasons})" if reasons else error.diagnostic.message
                    )
                    self.report(f"{self.job}: {message}; only its status is reported")
                    return False
        self.misses_logs = False
        return has_new

    def _read_late_logs(self, description: JobDescription) -> None:
        """Read the lines that arrive after the job's end."""
        is_old = description.ended is not None and datetime.now(UTC) - description.ended > _LATE
        if is_old and not self.misses_logs:
            return
        # The last lines of a failed job contain the reason.
        max_quiet = _MAX_LATE_READS if description.status == "Failed" else _QUIET_READS
        quiet = 0
        for _ in range(_MAX_LATE_READS):
            if quiet == max_quiet or not self.reads_logs:
                return
            self.pace.wait(self.pace.interval)
            quiet = 0 if self._read_logs() else quiet + 1
            if is_old and not self.misses_logs:
                return
