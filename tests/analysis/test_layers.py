"""Contents of layers, read from their streams."""

import hashlib
import io

from bakehouse.analysis import layers
from bakehouse.analysis.layers import HASHED_BYTES, LayerContents, LayerFile
from tests.support.layer_archives import Member, layer

LARGE = b"x" * (3 << 20)


def read(*members: Member) -> LayerContents:
    return layers.read(io.BytesIO(layer(*members)))


def test_files_have_their_sizes_and_large_ones_their_sha256() -> None:
    contents = read(
        Member("opt/", directory=True), Member("opt/large", LARGE), Member("./opt/small", b"12345")
    )

    large = LayerFile("/opt/large", len(LARGE), hashlib.sha256(LARGE).hexdigest())
    assert contents == LayerContents((large, LayerFile("/opt/small", 5)))
    assert contents.bytes == len(LARGE) + 5


def test_large_files_are_hashed() -> None:
    just, less = b"x" * HASHED_BYTES, b"x" * (HASHED_BYTES - 1)

    assert [bool(file.sha256) for file in read(Member("a", just), Member("b", less)).files] == [True, False]


def test_a_hard_link_is_another_name_without_size() -> None:
    contents = read(Member("bin/a", b"123"), Member("bin/b", hard="bin/a"), Member("bin/c", hard="./bin/b"))

    assert contents.files == (LayerFile("/bin/a", 3, links=("/bin/b", "/bin/c")),)


def test_a_symbolic_link_is_not_a_file() -> None:
    contents = read(Member("lib/libx.so.1", b"123"), Member("lib/libx.so", link="libx.so.1"))

    assert contents == LayerContents((LayerFile("/lib/libx.so.1", 3),), others=("/lib/libx.so",))


def test_removed_and_added_paths_are_separate() -> None:
    contents = read(Member("etc/.wh.motd"), Member("opt/.wh..wh..opq"), Member("opt/new", b"1"))

    assert contents == LayerContents((LayerFile("/opt/new", 1),), removed=("/etc/motd",), emptied=("/opt",))


def test_of_an_entry_that_stands_twice_the_last_one_counts() -> None:
    contents = read(Member("a", b"1"), Member("a", b"22"), Member("b", b"1"), Member("b", link="a"))
    again = read(Member("b", link="a"), Member("b", b"1"))

    assert contents == LayerContents((LayerFile("/a", 2),), others=("/b",))
    assert again == LayerContents((LayerFile("/b", 1),))


def test_the_stream_is_read_to_its_end() -> None:
    stream = io.BytesIO(layer(Member("a", b"1")) + bytes(1 << 16))

    layers.read(stream)

    assert stream.read() == b""
