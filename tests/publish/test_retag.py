"""Deadlines of release tags and moving tags."""

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from bakehouse.errors import Diagnostic, PublishError
from bakehouse.fetch.retry import RetryPolicy
from bakehouse.publish.push import PushOptions
from bakehouse.publish.retag import move_tag, tag_release
from bakehouse.publish.tags import PublishedImage
from bakehouse.registry.registry import NamedRegistry
from bakehouse.util.file_lock import exclusive
from tests.support.built_images import DIGEST, IMAGE, PASSED
from tests.support.proxy import Proxy, Reply
from tests.support.release_records import a_record


def publication(directory: Path, seconds: float) -> PushOptions:
    retry_policy = RetryPolicy(pause=0.01)
    until = time.monotonic() + seconds
    return PushOptions(date(2026, 11, 20), directory / "locks", until=until, retry_policy=retry_policy)


def test_another_push_does_not_outlast_the_deadline(tmp_path: Path) -> None:
    registry = NamedRegistry("127.0.0.1:9", lambda _: None)
    lines: list[str] = []
    candidate = replace(a_record(), candidate=False)
    with exclusive(tmp_path / "locks" / "push-mpi-cpu.lock"), pytest.raises(PublishError) as caught:
        tag_release(candidate, IMAGE, PASSED, registry, publication(tmp_path, 0.3), lines.append)
    assert caught.value.diagnostics == (
        Diagnostic(
            "the promotion in `127.0.0.1:9/bakehouse/mpi-cpu` was stopped: the deadline passed",
            hint="run `bake promote mpi-cpu` again",
        ),
    )
    assert lines == ["mpi-cpu: waiting for another push of it on this machine"]


@pytest.fixture
def busy() -> Iterator[Proxy]:
    """A registry that asks for a day's pause."""
    with Proxy(9).running() as proxy:
        proxy.answers[:] = [lambda _: Reply(503, {"Retry-After": "86400"}, b"")]
        yield proxy


@pytest.mark.timeout(60)
def test_no_pause_that_a_registry_asks_for_outlasts_the_deadline(tmp_path: Path, busy: Proxy) -> None:
    registry, within = NamedRegistry(busy.host, lambda _: None), publication(tmp_path, 30.0)
    with pytest.raises(PublishError, match=f"`{busy.host}` failed"):
        tag_release(a_record(), IMAGE, PASSED, registry, within, print)
    assert len(busy.requests) == 1


@pytest.mark.timeout(60)
def test_the_alias_is_moved_by_the_deadline(tmp_path: Path, busy: Proxy) -> None:
    registry, within = NamedRegistry(busy.host, lambda _: None), publication(tmp_path, 30.0)
    published = PublishedImage("mpi-cpu", busy.host, "bakehouse/mpi-cpu", ("x",), DIGEST)
    with pytest.raises(PublishError, match="the moving tag `mpi-cpu` could not be set"):
        move_tag(published, registry, within)
    assert len(busy.requests) == 1
