"""Files written whole or not at all."""

import os
from pathlib import Path

import pytest

from bakehouse.util.files import write_whole


def test_text_and_bytes_are_written_with_their_directories(tmp_path: Path) -> None:
    write_whole(tmp_path / "a" / "b" / "text", "größer\n")
    write_whole(tmp_path / "a" / "bytes", b"\x00\xff")

    assert (tmp_path / "a" / "b" / "text").read_bytes() == "größer\n".encode()
    assert (tmp_path / "a" / "bytes").read_bytes() == b"\x00\xff"


def test_a_file_is_replaced_and_readable_by_all(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old, and longer")
    write_whole(path, "new")

    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o644
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_an_interrupted_write_leaves_the_old_content_and_no_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def interrupted(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_whole(path, "new")

    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
