"""The root file system of an image, made of layers by hand."""

import io
import tarfile
from functools import partial
from pathlib import Path

from bakehouse.analysis.root_file_system import root_archive
from tests.support.layer_archives import Member, layer


def unpacked(directory: Path, *layers: bytes) -> dict[str, str]:
    """Unpack the archive of layers, lowest first; return the content of files and the targets of links."""
    chunks = root_archive([partial(io.BytesIO, content) for content in layers])
    with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as archive:
        archive.extractall(directory, filter="tar")
    return {
        str(path.relative_to(directory)): str(path.readlink()) if path.is_symlink() else path.read_text()
        for path in sorted(directory.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def test_the_highest_layer_wins(tmp_path: Path) -> None:
    first = layer(Member("a", b"1"), Member("b", b"1"), Member("c", link="a"))
    second = layer(Member("./b", b"2"), Member("c", b"2"))

    assert unpacked(tmp_path, first, second) == {"a": "1", "b": "2", "c": "2"}


def test_a_removed_file_is_missing_and_one_of_a_higher_layer_is_not(tmp_path: Path) -> None:
    first = layer(Member("d/a", b"1"), Member("d/b", b"1"))
    second = layer(Member("d/.wh.a"), Member("d/.wh.b"))
    third = layer(Member("d/b", b"3"))

    assert unpacked(tmp_path, first, second, third) == {"d/b": "3"}


def test_the_files_of_a_removed_directory_are_missing(tmp_path: Path) -> None:
    first = layer(Member("d", directory=True), Member("d/e/a", b"1"), Member("dd", b"1"))

    assert unpacked(tmp_path, first, layer(Member(".wh.d"))) == {"dd": "1"}
    assert not (tmp_path / "d").exists()


def test_an_emptied_directory_has_only_the_files_of_its_layer_and_those_above(tmp_path: Path) -> None:
    first = layer(Member("d/a", b"1"), Member("d/b", b"1"))
    second = layer(Member("d/b", b"2"), Member("d/.wh..wh..opq"))

    assert unpacked(tmp_path, first, second, layer(Member("d/c", b"3"))) == {"d/b": "2", "d/c": "3"}


def test_a_directory_that_was_a_file_for_a_while_is_empty(tmp_path: Path) -> None:
    first, second = layer(Member("d/a", b"1")), layer(Member("d", b"2"))

    assert unpacked(tmp_path, first, second, layer(Member("d", directory=True))) == {}
    assert (tmp_path / "d").is_dir()


def test_a_file_hides_those_of_the_directories_that_it_replaced(tmp_path: Path) -> None:
    first, second = layer(Member("d/a", b"1")), layer(Member("d", directory=True), Member("d/b", b"2"))

    assert unpacked(tmp_path, first, second, layer(Member("d", b"3"))) == {"d": "3"}


def test_a_link_instead_of_a_directory_hides_its_files(tmp_path: Path) -> None:
    first = layer(Member("lib/a", b"1"), Member("usr/lib/b", b"1"))

    assert unpacked(tmp_path, first, layer(Member("lib", link="usr/lib"))) == {
        "lib": "usr/lib",
        "usr/lib/b": "1",
    }


def test_hard_links_keep_the_content_of_a_removed_name(tmp_path: Path) -> None:
    first = layer(Member("a", b"1"), Member("b", hard="a"), Member("c", hard="./a"))

    assert unpacked(tmp_path, first, layer(Member(".wh.a"))) == {"b": "1", "c": "1"}
    assert (tmp_path / "b").samefile(tmp_path / "c")


def test_a_hard_link_keeps_the_content_of_a_replaced_name(tmp_path: Path) -> None:
    first = layer(Member("a", b"1"), Member("b", hard="a"))

    assert unpacked(tmp_path, first, layer(Member("a", b"2"))) == {"a": "2", "b": "1"}


def test_modes_owners_and_times_are_kept() -> None:
    name = "usr/lib/" + 150 * "x"
    first = layer(Member(name, b"1", mode=0o4755, mtime=7, uid=33))

    chunks = root_archive([partial(io.BytesIO, first)])
    with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as archive:
        [member] = archive.getmembers()
    assert (member.name, member.mode, member.mtime, member.uid) == (name, 0o4755, 7, 33)
