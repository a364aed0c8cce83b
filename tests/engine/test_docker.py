"""Client of the engine: errors without an engine, and removal of leftovers."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import docker.errors
import pytest

from bakehouse.cli.diagnostics import failure_text
from bakehouse.engine import docker_container
from bakehouse.engine.docker import OWNER_LABEL, DockerEngine, connect
from bakehouse.engine.docker_container import DockerContainer, remove_until_gone
from bakehouse.engine.protocol import CleanupCounts, ContainerExit
from bakehouse.errors import EngineError
from bakehouse.util import tempdir


def test_no_engine_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")

    with pytest.raises(EngineError) as caught:
        connect()

    assert failure_text(caught.value.diagnostics[0]) == dedent("""\
        error: no container engine answers
          action  open unix:///nowhere/docker.sock
          answer  No such file or directory

        hint: run `bake doctor`
        """)


class Api:
    """Fake API of the engine with objects of a running and of a dead run."""

    def __init__(self) -> None:
        machine, _, start = tempdir.run_id().split("-")
        self.owners = {"mine": tempdir.run_id(), "dead": f"{machine}-{os.getpid()}-{int(start) + 1}"}
        self.removed: list[str] = []
        self.client: Any = self
        self.api = self

    def _listed(self, *names: str) -> Sequence[dict[str, Any]]:
        owned = [(name, {OWNER_LABEL: self.owners[name.split()[0]]}) for name in names]
        return [{"Id": name, "Name": name, "Created": 1, "Labels": labels} for name, labels in owned]

    def containers(self, **filters: object) -> Sequence[dict[str, Any]]:
        return self._listed("dead container", "mine container", "dead host")

    def networks(self, **filters: object) -> Sequence[dict[str, Any]]:
        return self._listed("mine network", "dead network")

    def volumes(self, **filters: object) -> dict[str, Any]:
        return {"Volumes": None}

    def remove_container(self, key: str, **options: object) -> None:
        self.removed.append(key)

    def remove_network(self, key: str) -> None:
        self.removed.append(key)

    def remove_volume(self, key: str) -> None:
        self.removed.append(key)


def test_what_a_sweep_removed_is_counted_by_kind() -> None:
    api = Api()

    assert DockerEngine(api.client).sweep() == CleanupCounts(containers=2, networks=1, volumes=0)
    assert api.removed == ["dead container", "dead host", "dead network"]


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
