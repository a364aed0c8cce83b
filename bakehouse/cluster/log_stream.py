"""Turns what the hosts of a job print into one stream of whole lines, each with its host and rank."""

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from bakehouse.cluster.cluster import OutputHandler
from bakehouse.cluster.job import TrainingJob

# Open MPI 4 and 5, the toolkit's rewriting of the first, and torchrun: see `ranks`.
_TAG = re.compile(
    r"^(?:\[(?:[\w.-]+@)?\d+,(?:mpirank:)?(?P<rank>\d+)(?:,[\w.-]+)?\]<std(?:out|err)>: ?"
    r"|\[default(?P<local>\d+)\]:)"
)
_COLOURS = (36, 33, 32, 35, 34, 31)
_RESET = "\x1b[0m"
_DUMPS = (
    (re.compile("Training Env:"), "Invoking script with the following command:"),
    (re.compile(r"\++ \S*python3? --version"), "++ set +x"),
)
"""Between these lines the toolkit, and version 3's script, print all they know: two hundred lines a host."""


class LogStream:
    """Hands on lines as `algo-1:3 │ text`, coloured by host; safe to be fed by a thread for each host."""

    def __init__(
        self,
        hosts: Mapping[str, int | None],
        write: Callable[[str], None],
        *,
        colour: bool,
        whole: bool = True,
    ) -> None:
        """`hosts` tells what each host's first rank is called in the job: torchrun counts from 0 on each.

        Where nobody knows it, torchrun's tag stays in the line.

        Without `whole`, the toolkit's account of its environment is left out, and empty lines are.
        """
        self._whole = whole
        self._dumping: dict[str, str] = {}
        """What ends the dump that a host is in."""
        self._first = hosts
        self._open = dict.fromkeys(hosts, "")
        self._colours = {
            host: f"\x1b[{_COLOURS[number % len(_COLOURS)]}m" if colour else ""
            for number, host in enumerate(hosts)
        }
        self._width = max(map(len, hosts), default=0) + 3
        self._write = write
        self._lock = threading.Lock()

    def feed(self, host: str, data: bytes) -> None:
        with self._lock:
            *lines, self._open[host] = (self._open[host] + data.decode(errors="replace")).split("\n")
            for line in lines:
                self._line(host, line)

    def end(self) -> None:
        """Hand on what no line's end followed."""
        with self._lock:
            for host, rest in self._open.items():
                if rest:
                    self._line(host, rest)
                self._open[host] = ""

    def _line(self, host: str, line: str) -> None:
        if not self._whole and self._is_left_out(host, line.strip()):
            return
        tag, first = _TAG.match(line), self._first[host]
        if tag and tag["local"] and first is None:
            tag = None
        rank = (tag["rank"] or str((first or 0) + int(tag["local"]))) if tag else ""
        name = f"{host}:{rank}" if rank else host
        text = line[tag.end() :] if tag else line
        colour = self._colours[host]
        self._write(f"{colour}{name.ljust(self._width)}│{_RESET if colour else ''} {text.rstrip()}")

    def _is_left_out(self, host: str, line: str) -> bool:
        for start, end in _DUMPS:
            if start.fullmatch(line):
                self._dumping[host] = end
        if line == self._dumping.get(host):
            del self._dumping[host]
        return not line or host in self._dumping


@contextmanager
def open_log_stream(
    job: TrainingJob, write: Callable[[str], None], *, colour: bool, whole: bool
) -> Iterator[OutputHandler]:
    """A stream of all that a job's hosts print, to the last line that no end followed."""
    first = {host: place * job.processes_per_host for place, host in enumerate(job.rank_hosts)}
    stream = LogStream(dict.fromkeys(job.host_names, 0) | first, write, colour=colour, whole=whole)
    try:
        yield stream.feed
    finally:
        stream.end()
