"""Pushes that run at once: what waits for what, and what an interrupt does."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from bakehouse.errors import PublishError
from bakehouse.publish import queue as push_queue
from bakehouse.publish.queue import PushQueue, QueuedUpload
from bakehouse.util.oci import Digest

SHARED, OWN, OTHER = (Digest(f"sha256:{name}") for name in ("shared", "own", "other"))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push_queue, "_CHECK_SECONDS", 0.01)


HOST = "registry.example.com"


class Waiting:
    """An upload of a blob in another thread, which ends when it is let."""

    def __init__(self, queue: PushQueue, blob: Digest, host: str = HOST) -> None:
        self.began, self.may_end = threading.Event(), threading.Event()
        self._threads = ThreadPoolExecutor(1)
        self.ended: Future[None] = self._threads.submit(self._push, queue, host, blob)

    def _push(self, queue: PushQueue, host: str, blob: Digest) -> None:
        with queue.turn(host, "team/image", blob):
            self.began.set()
            self.may_end.wait(10)

    def end(self) -> None:
        self.may_end.set()
        self.ended.result(10)
        self._threads.shutdown()


def test_a_layer_that_is_on_its_way_is_waited_for() -> None:
    queue = PushQueue()
    first = Waiting(queue, SHARED)
    assert first.began.wait(10)
    second = Waiting(queue, SHARED)
    assert not second.began.wait(0.1)
    first.end()
    assert second.began.wait(10)
    second.end()


def test_a_blob_that_was_uploaded_is_known_to_others() -> None:
    queue = PushQueue()
    assert queue.repository_of(HOST, SHARED) == ""
    upload = Waiting(queue, SHARED)
    assert upload.began.wait(10)
    upload.end()
    assert queue.repository_of(HOST, SHARED) == "team/image"
    assert queue.repository_of("another.example.com", SHARED) == ""


def test_registries_do_not_wait_for_each_other() -> None:
    queue = PushQueue()
    uploads = [Waiting(queue, SHARED), Waiting(queue, SHARED, "another.example.com")]
    assert all(upload.began.wait(10) for upload in uploads)
    for upload in uploads:
        upload.end()


def test_the_first_failure_of_uploads_is_raised_after_all_ended() -> None:
    ended: list[str] = []

    def fail() -> str:
        raise ConnectionError

    def work() -> str:
        time.sleep(0.05)
        ended.append("work")
        return "work"

    with pytest.raises(ConnectionError):
        PushQueue().uploads([fail, work])
    assert ended == ["work"]
    assert PushQueue().uploads([work, work]) == ["work", "work"]


def test_pushes_that_share_nothing_run_at_once() -> None:
    queue = PushQueue()
    pushes = [Waiting(queue, OWN), Waiting(queue, OTHER)]
    assert all(push.began.wait(10) for push in pushes)
    for push in pushes:
        push.end()


def test_no_more_run_at_once_than_make_sense() -> None:
    queue = PushQueue(max_concurrent=1)
    first = Waiting(queue, OWN)
    assert first.began.wait(10)
    second = Waiting(queue, OTHER)
    assert not second.began.wait(0.1)
    first.end()
    assert second.began.wait(10)
    second.end()


def test_a_push_that_does_not_move_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push_queue, "_SLOW_SECONDS", 0.2)
    queue = PushQueue(max_concurrent=1)
    stalled = Waiting(queue, SHARED)
    assert stalled.began.wait(10)
    second = Waiting(queue, SHARED)
    assert second.began.wait(10)
    second.end()
    stalled.end()


def test_one_that_fails_keeps_no_other_from_being_tried() -> None:
    error = PublishError("no")

    def fail() -> str:
        raise error

    assert PushQueue().each([lambda: "a", fail, lambda: "c"]) == ["a", error, "c"]


def test_one_push_alone_runs_in_the_thread_that_is_interrupted() -> None:
    assert PushQueue().each([threading.current_thread]) == [threading.main_thread()]


def test_an_interrupt_stops_what_is_on_its_way_and_lets_nothing_begin() -> None:
    queue = PushQueue(max_concurrent=1)
    sending = threading.Event()
    stopped: list[str] = []

    def push() -> None:
        with queue.turn(HOST, "team/image", SHARED) as turn:
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
    monkeypatch.setattr(push_queue, "_STOP_SECONDS", 0.1)
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


def until_stopped(turn: QueuedUpload, stopped: list[str]) -> None:
    try:
        for _ in range(1000):
            turn.moved()
            time.sleep(0.01)
    except KeyboardInterrupt:
        stopped.append("stopped")
        raise


def test_unexpected_exceptions_are_raised() -> None:
    def broken() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        PushQueue().each([broken, lambda: None])
