"""Contents of layers, read from their streams."""

import io

from bakehouse.analysis import layers
from bakehouse.analysis.layers import LayerContents, LayerFile
from tests.support.layer_archives import Member, layer

LARGE = b"x" * (3 << 20)


def read(*members: Member) -> LayerContents:
    return layers.read(io.BytesIO(layer(*members)))


def test_regular_files_have_their_sizes() -> None:
    contents = read(
        *(Member("opt/", directory=True), Member("opt/large", LARGE), Member("./opt/small", b"12345")),
        *(Member("opt/hard", hard="opt/large"), Member("opt/link", link="large"), Member("etc/.wh.motd")),
    )

    assert contents == LayerContents((LayerFile("/opt/large", len(LARGE)), LayerFile("/opt/small", 5)))
    assert contents.bytes == len(LARGE) + 5


def test_of_an_entry_that_stands_twice_the_last_one_counts() -> None:
    contents = read(Member("a", b"1"), Member("a", b"22"), Member("b", b"1"), Member("b", link="a"))
    again = read(Member("b", link="a"), Member("b", b"1"))

    assert contents == LayerContents((LayerFile("/a", 2),))
    assert again == LayerContents((LayerFile("/b", 1),))


def test_the_stream_is_read_to_its_end() -> None:
    stream = io.BytesIO(layer(Member("a", b"1")) + bytes(1 << 16))

    layers.read(stream)

    assert stream.read() == b""
