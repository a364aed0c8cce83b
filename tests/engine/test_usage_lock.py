"""Lock between users of the engine and its restart."""

import time
from pathlib import Path

from bakehouse.engine import usage_lock
from bakehouse.engine.daemon_paths import DaemonPaths


def test_who_uses_an_engine_keeps_it_from_being_restarted(tmp_path: Path) -> None:
    paths = DaemonPaths(state=tmp_path)
    with usage_lock.engine_in_use(paths=paths), usage_lock.exclusive_engine(paths) as is_alone:
        assert not is_alone


def test_an_engine_that_is_restarted_is_not_waited_for_past_a_deadline(tmp_path: Path) -> None:
    paths = DaemonPaths(state=tmp_path)
    with usage_lock.exclusive_engine(paths), usage_lock.engine_in_use(time.monotonic() + 0.1, paths):
        pass


def test_where_we_started_no_engine_nothing_is_left(tmp_path: Path) -> None:
    paths = DaemonPaths(state=tmp_path / "nowhere")
    with usage_lock.engine_in_use(paths=paths):
        assert list(tmp_path.iterdir()) == []
