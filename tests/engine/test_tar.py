"""Tar archives for and from the engine."""

import io
import tarfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from bakehouse.engine import tar

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
