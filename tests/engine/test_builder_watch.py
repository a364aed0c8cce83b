"""Watch of a builder that may freeze or end during a build."""

import itertools
import threading

import pytest

from bakehouse.engine.builder_watch import BuilderLost, Watch, watch
from bakehouse.engine.daemon_info import ProgramResult
from bakehouse.errors import Diagnostic
from tests.support.errors import raised

RUNNING = ProgramResult(0, "Name: far\n\nNodes:\nName: far0\nStatus: running\n")
INACTIVE = ProgramResult(0, "Name: far\n\nNodes:\nName: far0\nStatus: inactive\n")
HUNG = ProgramResult(124, "", "docker: no answer within 7 seconds")


def test_a_builder_is_lost_after_two_failures_in_a_row() -> None:
    watched = Watch("far")
    for code in (1, 0, 1):
        watched.note(code, "refused\n")
        watched.require()

    watched.note(1, "refused\n")

    error = raised(BuilderLost, watched.require)
    hint = "run `bake doctor --builder far`; the same command then continues with the finished steps"
    assert error.diagnostics == (
        Diagnostic("builder `far` stopped answering", facts=(("answer", "refused"),), hint=hint),
    )


@pytest.mark.parametrize(
    "reply", [HUNG, INACTIVE, ProgramResult(0, "Name: far\n\nNodes:\nName: far0\nError: no worker\n")]
)
def test_answers_of_a_builder_that_does_not_run(reply: ProgramResult) -> None:
    asked = threading.Semaphore(0)
    replies = itertools.chain([RUNNING], itertools.repeat(reply))

    def run(*command: str, seconds: float = 0.0) -> ProgramResult:
        assert (command, seconds) == (("docker", "buildx", "inspect", "far"), 7.0)
        asked.release()
        return next(replies)

    with watch("far", run, interval=0.01) as watched:
        for _ in range(4):
            asked.acquire(timeout=10)
        with pytest.raises(BuilderLost):
            watched.require()


@pytest.mark.parametrize(
    "reply",
    [
        RUNNING,
        # A builder in a container that the build still has to start
        INACTIVE,
        ProgramResult(0, RUNNING.out.replace("far", "inactive-farm")),
    ],
)
def test_a_builder_that_answers(reply: ProgramResult) -> None:
    asked = threading.Semaphore(0)

    def run(*command: str, seconds: float = 0.0) -> ProgramResult:
        asked.release()
        return reply

    with watch("far", run, interval=0.01) as watched:
        for _ in range(3):
            asked.acquire(timeout=10)
        watched.require()
