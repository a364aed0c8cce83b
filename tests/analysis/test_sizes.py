"""Sizes of an image by component, directory and kind."""

import io
from collections.abc import Sequence
from pathlib import Path

import pytest

from bakehouse.analysis import layers, sizes
from bakehouse.analysis.layers import LayerContents, LayerFile
from bakehouse.analysis.sizes import (
    DirectorySize,
    FileKind,
    ImageSize,
    KindSize,
    PartSize,
    TrimSize,
    kind_of,
    trims_of,
)
from bakehouse.builder.pack import PackedImage
from bakehouse.catalog.component import Trim
from bakehouse.catalog.trim import TrimChoice
from bakehouse.registry.layer_cache import CompressedLayer
from bakehouse.registry.manifest import parse
from bakehouse.util.oci import Digest
from tests.support.layer_archives import Member, layer


def size(*brought: tuple[str, Sequence[Member]]) -> ImageSize:
    """The sizes of an image whose layers have 10, 20, … bytes in a registry."""
    contents = [layers.read(io.BytesIO(layer(*members))) for _, members in brought]
    packed = tuple(
        CompressedLayer(Digest(f"d{number}"), Digest(str(number)), 10 * (number + 1), Path())
        for number in range(len(brought))
    )
    image = PackedImage(parse(b"{}"), b"{}", packed)
    owners = [owner for owner, _ in brought]
    return sizes.size_of("small", image, owners, ["COPY"] * len(brought), contents)


def test_layers_of_one_component_are_summed_up() -> None:
    image_size = size(
        ("debian", [Member("a", b"1")]), ("sshd", [Member("b", b"22")]), ("sshd", [Member("c", b"1")])
    )

    assert image_size.parts == (PartSize("sshd", 2, 50, 3), PartSize("debian", 1, 10, 1))
    assert [(layer.owner, layer.stored, layer.unpacked, layer.files) for layer in image_size.layers] == [
        ("debian", 10, 1, 1),
        ("sshd", 20, 2, 1),
        ("sshd", 30, 1, 1),
    ]
    assert image_size.unpacked == 4


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/usr/lib/x86_64-linux-gnu/libc.a", FileKind.STATIC),
        ("/opt/venv/lib/python3.11/site-packages/torch/include/ATen/ATen.h", FileKind.HEADERS),
        ("/usr/include/c++/12/vector", FileKind.HEADERS),
        ("/opt/venv/lib/python3.11/site-packages/scipy/linalg/tests/test_basic.py", FileKind.TESTS),
        ("/opt/venv/lib/python3.11/site-packages/scipy/tests/__pycache__/a.pyc", FileKind.TESTS),
        ("/usr/lib/python3.11/test/support/__init__.py", FileKind.TESTS),
        ("/opt/venv/lib/python3.11/site-packages/numpy/__pycache__/a.pyc", FileKind.BYTE_CODE),
        ("/usr/lib/debug/.build-id/aa/bb", FileKind.SYMBOLS),
        ("/opt/tests/run.sh", None),
        ("/opt/venv/lib/python3.11/site-packages/numpy/testing/overrides.py", None),
        ("/opt/venv/lib/python3.11/site-packages/test.py", None),
        ("/usr/bin/sha256sum", None),
    ],
)
def test_a_file_is_of_the_kind_that_its_path_tells(path: str, kind: FileKind | None) -> None:
    assert kind_of(path) is kind


def test_kinds_are_summed_up_with_whose_they_are() -> None:
    image_size = size(
        ("apt", [Member("usr/lib/libc.a", b"123"), Member("usr/lib/libm.a", b"1")]),
        ("torch", [Member("torch/lib/libx.a", b"12345")]),
    )

    assert image_size.kinds == (KindSize(FileKind.STATIC, 9, 3, (("torch", 5), ("apt", 4))),)


def test_a_directory_that_is_nearly_all_one_directory_below_is_reported_by_that_one() -> None:
    files = [Member("opt/venv/lib/torch/a", b"x" * 95), Member("opt/venv/lib/numpy/b", b"x" * 4)]

    image_size = size(("torch", [*files, Member("usr/c", b"x")]))

    assert image_size.folders == (
        DirectorySize("/opt/venv/lib/torch", 95, 1),
        DirectorySize("/opt/venv/lib/numpy", 4, 1),
        DirectorySize("/usr", 1, 1),
    )


def test_what_could_still_go_is_weighed_in_its_own_layers_only() -> None:
    spare = Trim("libraries", ("opt/lib/libspare.so*",), "nothing names it")
    gone = Trim("headers", ("opt/include",), "compilers read them", "never-loaded")
    choices = [("torch", TrimChoice(gone, is_taken=True)), ("torch", TrimChoice(spare, is_taken=False))]
    torch = LayerContents((LayerFile("/opt/lib/libspare.so.1", 70), LayerFile("/opt/lib/libtorch.so", 5)))
    other = LayerContents((LayerFile("/opt/lib/libspare.so", 900),))

    trims = trims_of(choices, [("base", other), ("torch", torch)])

    assert trims == (
        TrimSize("torch", "libraries", False, 70, 1, "nothing names it"),
        TrimSize("torch", "headers", True, 0, 0, "compilers read them"),
    )
