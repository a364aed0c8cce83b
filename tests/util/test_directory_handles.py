"""Paths below a repository: reads follow links within it, and nothing is written or removed through links."""

import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bakehouse.util import files
from bakehouse.util.directory_handles import LinkError, repository_of

OUT = "a link leads out of the repository"


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A repository with a file, next to a directory with a secret."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    top = tmp_path / "top"
    (top / ".git").mkdir(parents=True)
    (top / "a/b").mkdir(parents=True)
    (top / "a/b/file").write_text("text")
    return top


def link(path: Path, target: str | Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)
    return path


@pytest.mark.parametrize("target", ["a/b/file", "./a/../a/b/file", "{top}/a/b/file", "d/file", "a/next"])
def test_links_within_the_repository_are_read(top: Path, target: str) -> None:
    link(top / "d", "a/b")
    link(top / "a/next", "../d/file")

    assert files.read_text(link(top / "x", target.format(top=top))) == "text"
    assert files.names_in(top / "d") == ["file"]


@pytest.mark.parametrize(
    "target",
    [
        "{outside}/secret",
        "../outside/secret",
        "a/b/../../../outside/secret",
        "d/secret",
        "chain",
        "../top2/s",
    ],
)
def test_no_link_out_of_the_repository_is_followed(top: Path, target: str) -> None:
    outside = top.parent / "outside"
    link(top / "d", outside)
    link(top / "chain", "a/chain")
    link(top / "a/chain", "../../outside/secret")
    # Its name begins like that of the repository
    link(top.parent / "top2/s", outside / "secret")

    path = link(top / "x", target.format(outside=outside))
    for read in (files.read_text, files.read_bytes, files.open_file):
        with pytest.raises(LinkError, match=OUT):
            read(path)
    with pytest.raises(LinkError, match=OUT):
        files.names_in(top / "d")
    with pytest.raises(LinkError, match=OUT):
        files.read_text(top / "d/secret")


def test_a_loop_of_links_is_an_error(top: Path) -> None:
    link(top / "x", "y")

    with pytest.raises(LinkError, match="it is part of a loop of links"):
        files.read_text(link(top / "y", "x"))


def test_what_is_not_a_regular_file_is_not_opened(top: Path) -> None:
    os.mkfifo(top / "pipe")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(os.path.relpath(top / "socket"))
    for path in (top / "pipe", top / "socket", link(top / "x", "pipe")):
        with pytest.raises(LinkError, match="it is not a regular file"):
            files.read_text(path)
    listener.close()
    with pytest.raises(LinkError, match="it is not a regular file"):
        files.write_whole(top / "pipe", "text")
    with pytest.raises(IsADirectoryError):
        files.read_text(top / "a")
    with pytest.raises(FileNotFoundError):
        files.read_text(top / "none")


def test_a_path_that_a_file_names_must_be_within_the_repository(top: Path) -> None:
    repository = repository_of(top / "a/requirements.txt")

    assert files.read_text(top / "a/../a/b/file", within=repository) == "text"
    for path in (top / "a/../../outside/secret", top.parent / "outside/secret", Path("/etc/passwd")):
        with pytest.raises(LinkError, match="it is outside the repository"):
            files.read_text(path, within=repository)


def test_a_repository_is_found_by_git_or_else_by_its_project(top: Path, tmp_path: Path) -> None:
    (top / "a/pyproject.toml").touch()
    (tmp_path / "plain/x/y").mkdir(parents=True)
    (tmp_path / "plain/x/pyproject.toml").touch()
    (tmp_path / "outside/.git").mkdir()
    link(top / "d", tmp_path / "outside")

    assert repository_of(top / "a/b/file") == top
    assert repository_of(tmp_path / "plain/x/y/file") == tmp_path / "plain/x"
    assert repository_of(tmp_path / "plain/file") is None
    assert repository_of(top) is None
    # The repository behind a link is not that of the path
    assert repository_of(top / "d/secret") == top


def test_the_cache_of_a_user_is_not_part_of_a_repository_in_the_home_directory(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(top))
    link(top / ".cache", top.parent / "outside")

    assert files.read_text(top / ".cache/secret") == "secret"
    assert repository_of(top / "a/b/file") == top


WRITES: dict[str, Callable[[Path], object]] = {
    "write_whole": lambda path: files.write_whole(path, "new"),
    "set_mode": lambda path: files.set_mode(path, 0o777),
    "remove_file": files.remove_file,
    "remove_tree": files.remove_tree,
    "remove_directory": files.remove_directory,
    "make_directory": files.make_directory,
    "open_handle": lambda path: files.open_handle(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
}


def marked(directory: Path) -> list[tuple[str, int, int, bytes]]:
    """Return the names, modes, times and contents below a directory."""
    return [
        (str(path), path.stat().st_mode, path.stat().st_mtime_ns, b"" if path.is_dir() else path.read_bytes())
        for path in sorted([directory, *directory.rglob("*")])
    ]


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("place", ["d", "a/d"])
@pytest.mark.parametrize("below", ["secret", "empty", "empty/x", "new", "new/x"])
def test_nothing_is_changed_through_a_link_to_a_directory(
    top: Path, name: str, place: str, below: str
) -> None:
    outside = top.parent / "outside"
    (outside / "empty").mkdir()
    link(top / place, outside)
    before = marked(outside)

    with pytest.raises(LinkError, match=f"nothing is written through a link: `{place}`"):
        WRITES[name](top / place / below)
    assert marked(outside) == before


@pytest.mark.parametrize("name", ["write_whole", "set_mode", "open_handle", "make_directory", "remove_tree"])
@pytest.mark.parametrize("target", ["outside/secret", "outside", "outside/new"])
def test_nothing_is_changed_through_a_link_itself(top: Path, name: str, target: str) -> None:
    path = link(top / "x", top.parent / target)
    before = marked(top.parent / "outside")
    try:
        WRITES[name](path)
    except OSError:
        assert path.is_symlink()
    assert marked(top.parent / "outside") == before


def test_a_removed_link_leaves_its_target(top: Path) -> None:
    files.remove_file(link(top / "x", top.parent / "outside/secret"))

    assert not (top / "x").is_symlink()
    assert (top.parent / "outside/secret").read_text() == "secret"


def test_a_directory_that_becomes_a_link_meanwhile_is_not_followed(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file enters the directory that was opened, which has another name now."""
    real = os.replace

    def swap(*names: str, src_dir_fd: int, dst_dir_fd: int) -> None:
        (top / "a").rename(top / "old")
        link(top / "a", top.parent / "outside")
        monkeypatch.setattr(os, "replace", real)
        real(*names, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    monkeypatch.setattr(os, "replace", swap)
    files.write_whole(top / "a/new", "new")

    assert (top / "old/new").read_text() == "new"
    assert [path.name for path in (top.parent / "outside").iterdir()] == ["secret"]


_NAMES = st.sampled_from(["a", "b", "c", "..", ".", "", "{outside}", "{top}"])


@settings(max_examples=150, deadline=None)
@given(
    links=st.lists(st.tuples(_NAMES, st.lists(_NAMES, min_size=1, max_size=4)), max_size=5), data=st.data()
)
def test_a_file_that_is_read_is_in_the_repository(
    links: list[tuple[str, list[str]]], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """For any links, `open_file` reads what the kernel would read, if that is in the repository."""
    base = tmp_path_factory.mktemp("links")
    top, outside = base / "top", base / "outside"
    for directory in (top / "a/a", top / "b", outside / "a"):
        directory.mkdir(parents=True)
        (directory / "b").write_text(str(directory))
    (top / ".git").mkdir()
    for place, target in links:
        path = top / "a" / place if place not in ("", ".", "..") and "{" not in place else top / "c"
        if not os.path.lexists(path):
            path.symlink_to("/".join(target).format(outside=outside, top=top) or ".")
    path = top / "/".join(data.draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=4)))
    try:
        expected = path.read_bytes()
    except OSError:
        expected = None
    try:
        content = files.read_bytes(path)
    except OSError:
        content = None
    real = Path(os.path.realpath(path))

    if content is None and expected is not None:
        # Another way into the repository, such as by `..` and its name, is refused too
        assert not real.is_relative_to(top) or any("{outside}" in t or ".." in t for _, t in links)
    else:
        assert content == expected
        assert content is None or real.is_relative_to(top)
    shutil.rmtree(base)
