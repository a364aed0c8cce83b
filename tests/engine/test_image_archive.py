"""Images as the engine saves them, read in one pass."""

import io
import json
import tarfile
from collections.abc import Iterator

import pytest

from bakehouse.analysis.layers import LayerContents, LayerFile, readers_into
from bakehouse.engine.image_archive import Reader, compression_of, decompressed, walk, walk_to_config
from bakehouse.errors import EngineError
from tests.support.errors import refusal
from tests.support.layer_archives import Form, Member, compressed, layer, saved

LOWER, UPPER = layer(Member("a", b"1")), layer(Member("b", b"22"), Member("c", b"333"))
MADE_BY = ("Debian bookworm", "COPY /out/ / # buildkit")


def skip(digest: str) -> Reader | None:
    return None


def pieces(archive: bytes, size: int = 1000) -> Iterator[bytes]:
    return (archive[start : start + size] for start in range(0, len(archive), size))


@pytest.mark.parametrize("form", ["gzip", "zstd", "none"])
def test_layers_come_in_their_order_with_what_they_hold(form: Form) -> None:
    contents: dict[str, LayerContents] = {}

    stored = walk(pieces(saved([LOWER, UPPER], MADE_BY, form)), readers_into(contents))

    assert [layer.compression for layer in stored.layers] == [form, form]
    assert [layer.bytes for layer in stored.layers] == [
        len(compressed(layer, form)) for layer in (LOWER, UPPER)
    ]
    assert [contents[layer.digest].files for layer in stored.layers] == [
        (LayerFile("/a", 1),),
        (LayerFile("/b", 2), LayerFile("/c", 3)),
    ]
    assert stored.made_by == MADE_BY


def test_a_layer_that_is_an_empty_archive_is_a_layer() -> None:
    stored = walk([saved([layer()], ["RUN true"], "none")], readers_into({}))

    assert len(stored.layers) == 1


def test_a_layer_that_is_known_is_not_read_again() -> None:
    archive = saved([LOWER, UPPER], MADE_BY)
    first = walk([archive], skip).layers[0].digest
    cached = LayerContents((LayerFile("/known", 7),))
    contents = {first: cached}

    stored = walk([archive], readers_into(contents))

    assert [contents[layer.digest].files[0].path for layer in stored.layers] == ["/known", "/b"]


def test_history_that_does_not_fit_the_layers_tells_nothing() -> None:
    assert walk([saved([LOWER, UPPER], MADE_BY[:1])], skip).made_by == ("", "")


def test_it_is_reported_how_much_has_come() -> None:
    archive = saved([LOWER], MADE_BY[:1])
    counts: list[int] = []

    walk(pieces(archive), skip, counts.append)

    assert counts[0] == 1000
    assert counts[-1] == len(archive)


@pytest.mark.parametrize(
    ("archive", "reason"),
    [
        (saved([LOWER], MADE_BY[:1])[:4000], "it contains no image"),
        (layer(Member("oci-layout", b"{}")), "it contains no image"),
        (b"", "empty file"),
        (saved([b"\x1f\x8bno archive"], MADE_BY[:1], "none"), "Unknown compression method"),
        (
            saved([b"\x28\xb5\x2f\xfd" + bytes([255]) * 600], MADE_BY[:1], "none"),
            "zstd decompress error: Unsupported frame parameter",
        ),
    ],
)
def test_what_is_damaged_is_reported(archive: bytes, reason: str) -> None:
    assert refusal(EngineError, walk, [archive], readers_into({})) == (
        "error: the engine exported an unreadable image\n"
        f"  reason  {reason}\n"
        "\n"
        "hint: run `docker save IMAGE | tar t` to see the engine's archive\n"
    )


def test_the_configuration_of_an_archive_that_lacks_layers() -> None:
    # The engine has them unpacked, so a pull did not download them
    whole, partial = saved([LOWER, UPPER], MADE_BY), io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(whole)) as archive, tarfile.open(fileobj=partial, mode="w") as part:
        for member in archive:
            file = archive.extractfile(member)
            if file is None or compression_of(file.read(512)) is None:
                part.addfile(member, archive.extractfile(member))

    assert walk_to_config([partial.getvalue()]) == walk([whole], skip).config
    with pytest.raises(EngineError):
        walk([partial.getvalue()], skip)


@pytest.mark.parametrize("archive", [b"", layer(Member("oci-layout", b"{}"))])
def test_an_archive_without_a_configuration_is_reported(archive: bytes) -> None:
    with pytest.raises(EngineError, match="the engine exported an unreadable image"):
        walk_to_config([archive])


class Torn(io.BytesIO):
    """A file that can't be read to its end."""

    def read(self, size: int | None = -1) -> bytes:
        if data := super().read(size):
            return data
        message = "unexpected end of data"
        raise tarfile.ReadError(message)


def test_what_keeps_a_layer_of_zstd_from_being_read_is_raised() -> None:
    opening = decompressed(Torn(compressed(bytes(100_000), "zstd")[:-9]), "zstd")
    with pytest.raises(tarfile.ReadError, match="unexpected end of data"), opening as file:
        file.read()


def test_all_frames_of_a_layer_of_zstd_are_read() -> None:
    with decompressed(io.BytesIO(compressed(b"one", "zstd") + compressed(b"two", "zstd")), "zstd") as file:
        assert file.read() == b"onetwo"


def test_equal_layers_may_be_linked() -> None:
    """As Docker 24 saves from its own store."""
    listed = [{"Config": "c0.json", "Layers": ["one/layer.tar", "two/layer.tar", "three/layer.tar"]}]
    archive = layer(
        Member("c0.json", b"{}"),
        Member("one/layer.tar", LOWER),
        Member("two/layer.tar", UPPER),
        Member("three/layer.tar", link="../one/layer.tar"),
        Member("manifest.json", json.dumps(listed).encode()),
    )
    lower, upper, third = walk([archive], readers_into({})).layers
    assert (lower.digest, upper.digest) == ("one/layer.tar", "two/layer.tar")
    assert third == lower


def test_layers_with_one_name_are_distinguished() -> None:
    """As Docker 24 saves from its own store."""
    config = json.dumps(
        {"os": "linux", "history": [{"created_by": created_by} for created_by in MADE_BY]}
    ).encode()
    listed = [{"Config": "c0.json", "Layers": ["one/layer.tar", "two/layer.tar"]}]
    archive = layer(
        Member("c0.json", config),
        Member("one/layer.tar", LOWER),
        Member("two/layer.tar", UPPER),
        Member("manifest.json", json.dumps(listed).encode()),
    )
    contents: dict[str, LayerContents] = {}

    stored = walk([archive], readers_into(contents))

    assert [contents[layer.digest].files for layer in stored.layers] == [
        (LayerFile("/a", 1),),
        (LayerFile("/b", 2), LayerFile("/c", 3)),
    ]
