"""Containers of the docker SDK: starts that fail, and removal."""

import threading
from dataclasses import dataclass
from pathlib import Path

import docker.errors
import pytest
import requests

from bakehouse.engine import docker_container
from bakehouse.engine.docker_container import DockerContainer, remove_until_gone
from bakehouse.engine.protocol import ContainerExit
from bakehouse.errors import EngineError


class Removal:
    """Object whose removal the engine rejects a number of times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, status: int, explanation: str, times: int) -> None:
        self.refusal = docker.errors.APIError("refused", FakeResponse(status), explanation)  # type: ignore[arg-type]
        self.left, self.queries, self.clock = times, 0, 0.0
        monkeypatch.setattr("bakehouse.engine.docker_container.time.sleep", self.pass_)
        monkeypatch.setattr("bakehouse.engine.docker_container.time.monotonic", lambda: self.clock)

    def pass_(self, seconds: float) -> None:
        self.clock += seconds

    def __call__(self) -> None:
        self.queries += 1
        if self.left:
            self.left -= 1
            raise self.refusal
        message = "there is none"
        raise docker.errors.NotFound(message)


@dataclass
class FakeResponse:
    status_code: int


REMOVED_BY_ANOTHER = 409, "removal of container 12 is already in progress"


def test_what_another_removes_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    removal = Removal(monkeypatch, *REMOVED_BY_ANOTHER, 100)
    remove_until_gone(removal)
    assert removal.queries == 101


def test_what_another_does_not_get_removed_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    removal = Removal(monkeypatch, *REMOVED_BY_ANOTHER, 1_000_000)
    with pytest.raises(docker.errors.APIError):
        remove_until_gone(removal)
    assert removal.clock == pytest.approx(docker_container.API_SECONDS, abs=1)


@pytest.mark.parametrize("refusal", [(409, "volume is in use"), (500, "already in progress")])
def test_a_removal_that_fails_is_tried_five_times(
    monkeypatch: pytest.MonkeyPatch, refusal: tuple[int, str]
) -> None:
    removal = Removal(monkeypatch, *refusal, 1_000_000)
    with pytest.raises(docker.errors.APIError):
        remove_until_gone(removal)
    assert removal.queries == 5


class WithoutProgram:
    """Fake container whose command does not exist in its image."""

    def __init__(self, explanation: str) -> None:
        self.explanation = explanation

    def start(self) -> None:
        message = "400 Client Error"
        raise docker.errors.APIError(message, explanation=self.explanation)


def test_a_program_that_the_image_lacks_is_an_exit(tmp_path: Path) -> None:
    explanation = 'unable to start: exec: "train": executable file not found in $PATH: unknown'
    container = DockerContainer(WithoutProgram(explanation))  # type: ignore[arg-type]
    output: list[bytes] = []

    container.start(tmp_path / "logs/algo-1.log", output.append)

    line = 'exec: "train": executable file not found in $PATH\n'
    assert (tmp_path / "logs/algo-1.log").read_text() == line
    assert output == [line.encode()]
    assert container.wait(1) == ContainerExit(127)


def test_another_reason_against_a_start_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(EngineError):
        DockerContainer(WithoutProgram("no space left")).start(tmp_path / "log")  # type: ignore[arg-type]


class Running:
    """Fake container that runs until its event is set, and counts the requests that wait for it."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error, self.ended, self.requests = error, threading.Event(), 0
        self.attrs = {"State": {"OOMKilled": True}}

    def wait(self, timeout: float | None) -> dict[str, int]:
        assert timeout is None
        self.requests += 1
        self.ended.wait(10)
        if self.error:
            raise self.error
        return {"StatusCode": 9}

    def reload(self) -> None:
        """Change nothing."""


def test_one_request_waits_for_a_container() -> None:
    running = Running()
    container = DockerContainer(running)  # type: ignore[arg-type]
    assert [container.wait(0.01) for _ in range(5)] == [None] * 5
    running.ended.set()
    assert [container.wait(5) for _ in range(2)] == [ContainerExit(9, out_of_memory=True)] * 2
    assert running.requests == 1


def test_a_container_that_is_removed_was_killed() -> None:
    running = Running(docker.errors.NotFound("no such container"))
    running.ended.set()
    assert DockerContainer(running).wait(5) == ContainerExit(137)  # type: ignore[arg-type]


def test_a_lost_connection_ends_the_wait() -> None:
    running = Running(requests.exceptions.ConnectionError("connection lost"))
    running.ended.set()
    with pytest.raises(EngineError):
        DockerContainer(running).wait(5)  # type: ignore[arg-type]
