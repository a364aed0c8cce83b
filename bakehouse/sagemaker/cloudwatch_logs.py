"""Output of a SageMaker job's hosts, read from CloudWatch, each event once."""

import math
import re
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field

from bakehouse.cluster.job_runner import OutputHandler
from bakehouse.sagemaker.client import TrainingService
from bakehouse.util.aws import AwsError

_HOST = re.compile(r"/(?P<host>algo-[0-9]+)[-/]")
_MAX_TAIL = 200_000
"""Characters at the end of each host's log, kept to find a cause."""
_BAD_TOKEN = "InvalidParameterException"


@dataclass(slots=True)
class _Stream:
    """Read position and buffer of a log stream."""

    host: str
    token: str = ""
    since: int = 0
    """Start time of the reading; the token belongs to it."""
    time: int = 0
    """Time of the last event."""
    at_time: int = 0
    """Number of events read with that time."""
    skipped: int = 0
    """Number of these events that were read again after a token had expired."""
    buffer: deque[tuple[int, str]] = field(default_factory=deque)
    """Events to pass on, with their times."""

    def is_new(self, time: int) -> bool:
        """Return whether an event of this time was not read before, and count it."""
        if time == self.time and self.skipped < self.at_time:
            self.skipped += 1
            return False
        if time != self.time:
            self.time, self.at_time = time, 0
        self.at_time += 1
        self.skipped = self.at_time
        return True


@dataclass(slots=True)
class _Tail:
    """Last lines of a host."""

    lines: deque[str] = field(default_factory=deque)
    size: int = 0

    def add(self, line: str) -> None:
        self.lines.append(line)
        self.size += len(line)
        while self.size - len(self.lines[0]) >= _MAX_TAIL:
            self.size -= len(self.lines.popleft())


class TrainingLogs:
    """Logs of a job's hosts."""

    def __init__(self, service: TrainingService, job: str, hosts: Collection[str]) -> None:
        self._service = service
        self._job = job
        self._streams: dict[str, _Stream] = {}
        self._tails = {host: _Tail() for host in hosts}

    @property
    def tails(self) -> dict[str, str]:
        """End of each host's output."""
        return {host: "".join(tail.lines)[-_MAX_TAIL:] for host, tail in self._tails.items()}

    def read(self, on_output: OutputHandler) -> bool:
        """Pass on new events, oldest first; return whether there were any.

        Streams are read page by page, so the first lines of a long job do not wait for its last ones. After
        an error, the events read so far are passed on before it is raised.
        """
        unread: set[str] = set()
        for name in self._service.log_streams(self._job):
            match = _HOST.search(name)
            if match and match["host"] in self._tails:
                self._streams.setdefault(name, _Stream(match["host"]))
                unread.add(name)
        has_new = False
        try:
            while unread:
                for name in sorted(unread):
                    if not self._streams[name].buffer and not self._read_page(name):
                        unread.remove(name)
                # The next pages may contain events that are older than later ones in other buffers.
                ends = (max(time for time, _ in self._streams[name].buffer) for name in unread)
                has_new |= self._pass_on(min(ends, default=math.inf), on_output)
        except AwsError:
            self._pass_on(math.inf, on_output)
            raise
        return has_new

    def _pass_on(self, until: float, on_output: OutputHandler) -> bool:
        """Pass on buffered events up to a time; return whether there were any."""
        has_new = False
        while True:
            ready = [
                stream for stream in self._streams.values() if stream.buffer and stream.buffer[0][0] <= until
            ]
            if not ready:
                return has_new
            stream = min(ready, key=lambda stream: stream.buffer[0][0])
            _, text = stream.buffer[0]
            on_output(stream.host, text.encode())
            # Removed last, so that an interrupt loses no line.
            stream.buffer.popleft()
            self._tails[stream.host].add(text)
            has_new = True

    def _read_page(self, name: str) -> bool:
        """Read a stream up to a page with new events; return whether there was one before the end."""
        stream = self._streams[name]
        while True:
            try:
                page = self._service.log_events(name, stream.token, stream.since)
            except AwsError as error:
                if error.code != _BAD_TOKEN or not stream.token:
                    raise
                # Tokens expire after a day.
                stream.token, stream.since, stream.skipped = "", stream.time, 0
                continue
            stream.buffer += [
                (event.time, f"{event.message}\n") for event in page.events if stream.is_new(event.time)
            ]
            is_last = page.token == stream.token
            stream.token = page.token
            if is_last or stream.buffer:
                return bool(stream.buffer)
