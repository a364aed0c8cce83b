"""Paths of engines."""

from dataclasses import fields
from pathlib import Path

from bakehouse.engine.daemon_paths import DaemonPaths


def test_an_engine_below_a_directory_shares_no_file_with_the_machines_engine(tmp_path: Path) -> None:
    paths = DaemonPaths.below(tmp_path)
    own = [getattr(paths, field.name) for field in fields(paths) if field.name not in ("command", "store")]

    assert len(own) == 7
    assert all(path.is_relative_to(tmp_path) for path in (*own, paths.configuration, paths.in_use, paths.log))
    assert paths.endpoint == f"unix://{tmp_path}/docker.sock"
