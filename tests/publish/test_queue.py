"""Pushes that run at once: what waits for what, and what an interrupt does."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from bakehouse.errors import Diagnostic, PublishError
from bakehouse.publish import queue as push_queue
from bakehouse.publish.queue import PushQueue, QueuedPush
from bakehouse.util.oci import Digest

SHARED, OWN, OTHER = (Digest(f"sha256:{name}") for name in ("shared", "own", "other"))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push_queue, "_CHECK_SECONDS", 0.01)


class Waiting:
    """A push of some layers in another thread, which ends when it is let."""

    def __init__(self, queue: PushQueue, *layers: Digest) -> None:
        self.began, self.may_end = threading.Event(), threading.Event()
        self._threads = ThreadPoolExecutor(1)
        self.ended: Future[None] = self._threads.submit(self._push, queue, layers)

    def _push(self, queue: PushQueue, layers: tuple[Digest, ...]) -> None:
        with queue.turn(layers):
            self.began.set()
            self.may_end.wait(10)

    def end(self) -> None:
        self.may_end.set()
        self.ended.result(10)
        self._threads.shutdown()


def test_a_layer_that_is_on_its_way_is_waited_for() -> None:
    queue = PushQueue()
    first = Waiting(queue, SHARED, OWN)
    assert first.began.wait(10)
    second = Waiting(queue, SHARED)
    assert not second.began.wait(0.1)
    first.end()
    assert second.began.wait(10)
    second.end()


def test_pushes_that_share_nothing_run_at_once() -> None:
    queue = PushQueue()
    pushes = [Waiting(queue, OWN), Waiting(queue, OTHER)]
    assert all(push.began.wait(10) for push in pushes)
    for push in pushes:
        push.end()


def test_no_more_run_at_once_than_make_sense() -> None:
    queue = PushQueue(at_once=1)
    first = Waiting(queue, OWN)
    assert first.began.wait(10)
    second = Waiting(queue, OTHER)
    assert not second.began.wait(0.1)
    first.end()
    assert second.began.wait(10)
    second.end()


def test_a_push_that_does_not_move_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push_queue, "_SLOW", 0.2)
    queue = PushQueue(at_once=1)
    stalled = Waiting(queue, SHARED)
    assert stalled.began.wait(10)
    second = Waiting(queue, SHARED)
    assert second.began.wait(10)
    second.end()
    stalled.end()


def test_one_that_fails_keeps_no_other_from_being_tried() -> None:
    error = PublishError(Diagnostic("no"))

    def fail() -> str:
        raise error

    assert PushQueue().each([lambda: "a", fail, lambda: "c"]) == ["a", error, "c"]


def test_one_push_alone_runs_in_the_thread_that_is_interrupted() -> None:
    assert PushQueue().each([threading.current_thread]) == [threading.main_thread()]


def test_an_interrupt_stops_what_is_on_its_way_and_lets_nothing_begin() -> None:
    queue = PushQueue(at_once=1)
    sending = threading.Event()
    stopped: list[str] = []

    def push() -> None:
        with queue.turn([SHARED]) as turn:
            sending.set()
            until_stopped(turn, stopped)

    def interrupt() -> None:
        assert sending.wait(10)
        raise KeyboardInterrupt

    works: list[Callable[[], None]] = [interrupt, push, push]
    with pytest.raises(KeyboardInterrupt):
        queue.each(works)
    assert stopped == ["stopped"]


def test_an_interrupt_does_not_wait_for_pushes_that_wait_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push_queue, "_TIME_TO_STOP", 0.1)
    waiting, never = threading.Event(), threading.Event()

    def wait() -> None:
        waiting.set()
        never.wait(60)

    def interrupt() -> None:
        assert waiting.wait(10)
        raise KeyboardInterrupt

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        PushQueue().each([interrupt, wait])
    assert time.monotonic() - began < 30
    never.set()


def until_stopped(turn: QueuedPush, stopped: list[str]) -> None:
    try:
        for _ in range(1000):
            turn.moved(time.monotonic())
            time.sleep(0.01)
    except KeyboardInterrupt:
        stopped.append("stopped")
        raise


def test_unexpected_exceptions_are_raised() -> None:
    def broken() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        PushQueue().each([broken, lambda: None])
