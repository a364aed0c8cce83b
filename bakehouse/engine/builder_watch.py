"""Watch of a builder during a build, because buildx waits forever for a frozen builder."""

import contextlib
import threading
import time
from collections.abc import Iterator

from bakehouse.engine.buildx_builders import Program, read_workers
from bakehouse.engine.daemon_info import run_program
from bakehouse.errors import EngineError

INTERVAL_SECONDS = 8.0
ANSWER_SECONDS = 7.0
FAILURES = 2
"""Failed requests in a row until a builder is lost: at most 30 s, then 15 s to stop buildx."""
_NOT_STARTED = {"inactive", "stopped"}
"""States of a builder that the build has not started yet, which includes a pull of BuildKit's image."""


class BuilderLost(EngineError):
    """A builder stopped answering during a build."""


class Watch:
    """Result of the requests to a builder so far."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.answer = ""
        """The last answer of a lost builder; empty while it answers."""
        self._failures = 0

    def note(self, code: int, output: str) -> None:
        """Record the result of a request."""
        self._failures = self._failures + 1 if code else 0
        if self._failures >= FAILURES:
            self.answer = output.strip() or "no answer"

    def require(self) -> None:
        """Raise BuilderLost if the builder no longer answers."""
        if self.answer:
            raise lost(self.name, self.answer)


def lost(name: str, answer: str) -> BuilderLost:
    """Return the error for a builder that stopped answering."""
    hint = f"run `bake doctor --builder {name}`; the same command then continues with the finished steps"
    facts = (("answer", " ".join(answer.split())),)
    return BuilderLost(f"builder `{name}` stopped answering", facts=facts, hint=hint)


@contextlib.contextmanager
def watch(name: str, run: Program = run_program, interval: float = INTERVAL_SECONDS) -> Iterator[Watch]:
    """Check in a thread, at intervals, whether a builder answers, until the context ends."""
    result, ended = Watch(name), threading.Event()

    def ask() -> None:
        expected = {"running", *_NOT_STARTED}
        while not ended.wait(interval):
            started = time.monotonic()
            reply = run("docker", "buildx", "inspect", name, seconds=ANSWER_SECONDS)
            # buildx exits with 0 for a node that it cannot reach.
            states = {worker.status for worker in read_workers(reply.out)}
            is_alive = reply.code == 0 and bool(states) and states <= expected
            if states == {"running"}:
                expected = states
            seconds = time.monotonic() - started
            result.note(0 if is_alive else 1, reply.err or f"no BuildKit answered within {seconds:.0f} s")

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    try:
        yield result
    finally:
        ended.set()
