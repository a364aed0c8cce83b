"""Tar archives for and from the engine."""

import io
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakehouse.engine import tar
from bakehouse.errors import EngineError
from tests.support.errors import raised

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/\x00"), min_size=1, max_size=20).filter(
    lambda name: name not in (".", "..")
)
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(lambda parts: "/opt/" + "/".join(parts))


@given(st.dictionaries(PATHS, st.binary(max_size=50), max_size=5), st.integers(1, 700))
def test_files_come_out_as_they_went_in(files: dict[str, bytes], piece: int) -> None:
    packed = tar.pack(files)
    pieces = [packed[start : start + piece] for start in range(0, len(packed), piece)]

    with tar.unpacked(pieces) as entries:
        out = {f"/opt/{entry.name}": entry.read() for entry in entries}

    assert out == files


def test_only_regular_files_are_given() -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        directory = tarfile.TarInfo("model")
        directory.type = tarfile.DIRTYPE
        link = tarfile.TarInfo("model/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(directory)
        archive.addfile(link)

    with tar.unpacked([buffer.getvalue()]) as entries:
        assert list(entries) == []


def test_a_file_asked_for_has_its_own_name() -> None:
    with tar.unpacked([tar.pack({"/failure": b"text"})]) as entries:
        assert [(entry.name, entry.size) for entry in entries] == [("failure", 4)]


def test_nothing_gives_no_files() -> None:
    with tar.unpacked([]) as entries:
        assert list(entries) == []


def test_an_entry_is_not_written_outside_its_directory(tmp_path: Path) -> None:
    directory = tmp_path / "directory"
    directory.mkdir()
    with tar.unpacked([tar.pack({"/model/../../evil": b"x", "/model/good": b"y"})]) as entries:
        for entry in entries:
            entry.write_below(directory)

    assert [path.name for path in tmp_path.rglob("*")] == ["directory", "good"]


def unpack(directory: Path) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(b"".join(tar.stream(directory)))) as archive:
        return {member.name: member for member in archive}


def test_a_directory_is_streamed_as_training_jobs_get_it_from_s3(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "deep").mkdir(parents=True)
    (data / "deep/big").write_bytes(bytes(range(256)) * 8192)
    (data / "empty").touch(mode=0o600)
    (data / "start.sh").touch(mode=0o700)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/file").write_text("content")
    (data / "linked").symlink_to(tmp_path / "elsewhere")
    (data / "renamed").symlink_to(tmp_path / "elsewhere/file")

    packed = b"".join(tar.stream(data))

    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        files = {
            member.name: file.read()
            for member in archive
            if (file := archive.extractfile(member)) is not None
        }
    assert files == {
        "deep/big": bytes(range(256)) * 8192,
        "empty": b"",
        "start.sh": b"",
        "linked/file": b"content",
        "renamed": b"content",
    }
    members = unpack(data)
    assert {name: oct(member.mode) for name, member in members.items()} == {
        "deep": "0o755",
        "deep/big": "0o644",
        "empty": "0o644",
        "linked": "0o755",
        "linked/file": "0o644",
        "renamed": "0o644",
        "start.sh": "0o755",
    }
    assert {(member.uid, member.gid) for member in members.values()} == {(0, 0)}


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("nowhere", "`{}` is a link to a file that does not exist"),
        ("..", "`{}` is a link to a directory above it"),
    ],
)
def test_a_link_that_cannot_be_copied_is_refused(tmp_path: Path, target: str, message: str) -> None:
    link = tmp_path / "data/link"
    link.parent.mkdir()
    link.symlink_to("." if target == ".." else target)

    [problem] = raised(EngineError, unpack, link.parent).diagnostics
    assert (problem.message, problem.hint) == (message.format(link), "remove the link")


def test_a_file_that_shrinks_while_it_is_copied_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(bytes(3 * 2**20))
    chunks = tar.stream(tmp_path)
    next(chunks)
    path.write_bytes(b"")

    with pytest.raises(EngineError, match=f"^`{path}` was shortened while it was copied$"):
        list(chunks)
