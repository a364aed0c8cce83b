"""The links between hosts of the heterogeneous examples, each host in a process on loopback."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bakehouse.catalog.project import HOME
from tests.support.data import text_of

EXAMPLES = HOME / "examples/heterogeneous"
# `environment` is a stub of the toolkit's module: only images contain the toolkit.
HOST = text_of(__file__, "host")
LOST_SECONDS = 2.0


class Hosts:
    """A data host and a training host."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.port = server.getsockname()[1]
        self.data = self._start("localhost")
        self.training = self._start("trainer")
        assert self.training.stdout
        assert self.training.stdout.readline() == "connected ['localhost'] True\n"

    def _start(self, name: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", HOST, name, str(self.port), str(LOST_SECONDS)],
            cwd=EXAMPLES,
            env={**os.environ, "PYTHONPATH": str(EXAMPLES), "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def stop(self) -> None:
        for process in (self.data, self.training):
            process.kill()
            process.communicate()


def end(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Return the exit code of a host and the rest of its output."""
    assert process.stdout
    return process.wait(30), process.stdout.read()


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    hosts = Hosts()
    yield hosts
    hosts.stop()


def test_the_data_host_ends_with_the_training(hosts: Hosts) -> None:
    # Longer than silence may last
    time.sleep(LOST_SECONDS + 1)
    assert hosts.training.stdin
    hosts.training.stdin.write("\n")
    hosts.training.stdin.flush()

    assert end(hosts.training) == (0, "")
    assert end(hosts.data) == (0, "serves\nlocalhost: training is over\n")


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP])
def test_a_training_host_names_a_data_host_that_is_lost(hosts: Hosts, fault: signal.Signals) -> None:
    hosts.data.send_signal(fault)

    assert end(hosts.training) == (1, "data host localhost was lost\n")


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP])
def test_a_data_host_ends_when_the_training_host_is_lost(hosts: Hosts, fault: signal.Signals) -> None:
    hosts.training.send_signal(fault)

    assert end(hosts.data) == (1, "serves\nlocalhost: training was lost\n")


def test_a_training_that_fails_is_not_over_for_the_data_host(hosts: Hosts) -> None:
    hosts.training.send_signal(signal.SIGINT)

    assert end(hosts.data) == (1, "serves\nlocalhost: training was lost\n")


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_is_short_enough_to_copy(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 150
