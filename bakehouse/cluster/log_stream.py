"""Live output of a job: whole lines from all hosts, each with its host and rank."""

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from bakehouse.cluster.job import TrainingJob
from bakehouse.cluster.job_runner import OutputHandler
from bakehouse.cluster.ranks import MPI_TAG, TORCHRUN_TAG

_COLOURS = (36, 33, 32, 35, 34, 31)
_RESET = "\x1b[0m"
_DUMPS = (
    (re.compile("Training Env:"), "Invoking script with the following command:"),
    (re.compile(r"\++ \S*python3? --version"), "++ set +x"),
)
"""First and last line of the environment that the toolkit and SDK v3's script print, 200 lines per host."""


class LogStream:
    """Writes lines as `algo-1:3 │ text`, coloured by host. Thread-safe."""

    def __init__(
        self,
        first_ranks: Mapping[str, int | None],
        write: Callable[[str], None],
        *,
        colour: bool,
        verbose: bool = True,
    ) -> None:
        """Create a stream for the hosts in `first_ranks`, which gives each host's first rank.

        torchrun numbers ranks from 0 on each host. If the first rank is None, its tag stays in the line.
        Unless `verbose`, empty lines and the toolkit's report of its environment are omitted.
        """
        self._verbose = verbose
        self._dumping: dict[str, str] = {}
        """Last line of the dump that a host is printing."""
        self._first_ranks = first_ranks
        self._incomplete = dict.fromkeys(first_ranks, "")
        self._colours = {
            host: f"\x1b[{_COLOURS[number % len(_COLOURS)]}m" if colour else ""
            for number, host in enumerate(first_ranks)
        }
        self._width = max(map(len, first_ranks), default=0) + 3
        self._write = write
        self._lock = threading.Lock()

    def feed(self, host: str, data: bytes) -> None:
        with self._lock:
            text = self._incomplete[host] + data.decode(errors="replace")
            *lines, self._incomplete[host] = text.split("\n")
            for line in lines:
                self._line(host, line)

    def end(self) -> None:
        """Write incomplete last lines."""
        with self._lock:
            for host, rest in self._incomplete.items():
                if rest:
                    self._line(host, rest)
                self._incomplete[host] = ""

    def _line(self, host: str, line: str) -> None:
        if not self._verbose and self._is_omitted(host, line.strip()):
            return
        first_rank, rank, text = self._first_ranks[host], "", line
        if tag := MPI_TAG.match(line):
            rank, text = tag["rank"], line[tag.end() :]
        elif first_rank is not None and (tag := TORCHRUN_TAG.match(line)):
            rank, text = str(first_rank + int(tag["rank"])), line[tag.end() :]
        name = f"{host}:{rank}" if rank else host
        colour = self._colours[host]
        self._write(f"{colour}{name.ljust(self._width)}│{_RESET if colour else ''} {text.rstrip()}")

    def _is_omitted(self, host: str, line: str) -> bool:
        for start, end in _DUMPS:
            if start.fullmatch(line):
                self._dumping[host] = end
        if line == self._dumping.get(host):
            del self._dumping[host]
        return not line or host in self._dumping


@contextmanager
def open_log_stream(
    job: TrainingJob, write: Callable[[str], None], *, colour: bool, verbose: bool
) -> Iterator[OutputHandler]:
    """Provide an output handler that writes the lines of all hosts."""
    ranks = {host: index * job.processes_per_host for index, host in enumerate(job.rank_hosts)}
    stream = LogStream(dict.fromkeys(job.host_names, 0) | ranks, write, colour=colour, verbose=verbose)
    try:
        yield stream.feed
    finally:
        stream.end()
