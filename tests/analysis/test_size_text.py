"""The exact output of `sizes`."""

import json
from dataclasses import replace

from bakehouse.analysis import size_text as size_tables
from bakehouse.analysis.sizes import (
    DirectorySize,
    FileKind,
    ImageSize,
    KindSize,
    LayerSize,
    TrimSize,
    parts_of,
)
from tests.support.data import text_of
from tests.support.fleet_sizes import LARGE, OTHER, SMALL

LAYERS = (
    LayerSize(
        "debian",
        "sha256:" + "a8" * 32,
        59_125_661,
        166_410_649,
        6394,
        "RUN /bin/sh -c set -e\nexport A=one B=two C=three",
    ),
    LayerSize("torch", "sha256:" + "b8" * 32, 201_879_078, 1_699_535_721, 1, "COPY /out/ / # buildkit"),
)
SIZE = ImageSize(
    image="small",
    digest="sha256:" + "4f" * 32,
    stored=261_009_000,
    config="sha256:" + "c0" * 32,
    unpacked=1_865_946_370,
    parts=parts_of(LAYERS),
    layers=LAYERS,
    folders=(DirectorySize("/opt/venv", 900_000_000, 20_000), DirectorySize("/usr", 100_000, 1)),
    kinds=(
        KindSize(
            FileKind.HEADERS,
            9_000_000,
            161,
            (("torch", 8_000_000), ("debian", 900_000), ("apt", 50_000), ("sshd", 50_000)),
        ),
    ),
)
REPORT = text_of(__file__, "report")


def test_one_image() -> None:
    assert size_tables.report(SIZE, [("debian", "12"), ("torch", "2.9.0")], 1) == REPORT


def test_several_images() -> None:
    sizes = [SMALL, LARGE, OTHER]

    assert size_tables.table(sizes) == (
        "image: as pushed, unpacked\n"
        "  small   65 bytes  195 bytes  2 layers\n"
        "  large  260 bytes  780 bytes  2 layers\n"
        "  other  270 bytes  810 bytes  3 layers\n"
    )


def test_programs_get_everything_with_lists_cut_to_what_was_asked_for() -> None:
    document = json.loads(size_tables.as_json([SIZE], 1))

    [image] = document["images"]
    assert image["parts"][0] == {
        "name": "torch",
        "layers": 1,
        "stored": 201_879_078,
        "unpacked": 1_699_535_721,
    }
    assert [len(image[name]) for name in ("layers", "folders")] == [2, 1]


def test_what_trimming_took_and_could_take() -> None:
    trims = (
        TrimSize("torch", "libraries", False, 218_000_000, 3, "nothing names them"),
        TrimSize("torch", "headers", True, 0, 0, "compilers read them"),
    )

    report = size_tables.report(replace(SIZE, trims=trims), (), 5)

    assert (
        """\
trim: removed, or removable with `trim`, unpacked
  libraries of torch  218.0 MB  3 files  nothing names them
  headers of torch     removed           compilers read them
"""
        in report
    )
