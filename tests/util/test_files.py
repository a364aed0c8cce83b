"""Files written whole or not at all."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bakehouse.catalog.project import HOME
from bakehouse.util import files
from bakehouse.util.files import display_path, expand_home, write_whole
from tests.support.errors import raised


def test_text_and_bytes_are_written_with_their_directories(tmp_path: Path) -> None:
    write_whole(tmp_path / "a" / "b" / "text", "größer\n")
    write_whole(tmp_path / "a" / "bytes", b"\x00\xff")

    assert (tmp_path / "a" / "b" / "text").read_bytes() == "größer\n".encode()
    assert (tmp_path / "a" / "bytes").read_bytes() == b"\x00\xff"


def test_only_the_home_directory_of_a_known_user_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")

    assert expand_home("~/cache") == Path("/home/ann/cache")
    assert expand_home("~-cache") == Path("~-cache")


def test_messages_show_short_paths_of_the_project_and_of_the_installed_catalogue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The directory of an environment is often in the project.
    package = tmp_path / ".venv/lib/python3.11/site-packages/bakehouse"
    monkeypatch.setattr(files, "_PACKAGE", package)
    monkeypatch.setattr(files, "_DATA", package / "data")
    monkeypatch.chdir(tmp_path)

    component = package / "data/recipes/components/nccl/component.yaml"
    assert display_path(component) == "bakehouse/data/recipes/components/nccl/component.yaml"
    assert display_path(tmp_path / "mine/images/../own.yaml") == "mine/own.yaml"
    assert display_path(Path("/srv/data.csv")) == "/srv/data.csv"


def test_a_file_is_replaced_and_readable_by_all(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old, and longer")
    write_whole(path, "new")

    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o644
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_whole(pipe, "new")
        assert os.read(reader, 10) == b"new"
    finally:
        os.close(reader)
    assert pipe.is_fifo()


def test_a_directory_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    error = raised(NotADirectoryError, write_whole, tmp_path / "file" / "page", "new")
    assert error.filename == str(tmp_path / "file")

    assert raised(PermissionError, write_whole, Path("/proc/none/page"), "new").filename == "/proc/none"


_KILLED = """\
import os, signal, sys
from pathlib import Path
from bakehouse.util.files import write_whole
os.fsync = lambda handle: os.kill(os.getpid(), signal.SIGKILL)
write_whole(Path(sys.argv[1]), "new")
"""


def test_the_rest_of_a_killed_write_is_removed_by_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "file[1]"
    path.write_text("old")
    environment = {**os.environ, "PYTHONPATH": str(HOME)}
    subprocess.run([sys.executable, "-c", _KILLED, str(path)], env=environment, check=False)
    (tmp_path / ".file[1].other").write_text("not ours")
    assert (path.read_text(), len([*tmp_path.iterdir()])) == ("old", 3)

    write_whole(path, "new")

    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".file[1].other", "file[1]"]


def test_an_error_that_names_no_file_gets_the_name_of_the_written_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as caught:
        write_whole(tmp_path / "file", "new")

    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(tmp_path / "file"))
    assert [*tmp_path.iterdir()] == []


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
