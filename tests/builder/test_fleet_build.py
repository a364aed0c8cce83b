"""Benchmark of fleet builds: equal contents, and reading of chains and times."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from bakehouse.builder.build import leaders
from bakehouse.plan.model import Image
from bakehouse.plan.workspace import open_workspace, select
from benchmarks import fleet_build
from benchmarks.fleet_build import SIX_IMAGES
from tests.support.data import text_of

DOCKERFILE = text_of(__file__, "dockerfile")


@pytest.fixture(scope="module")
def images() -> tuple[Image, ...]:
    return select(open_workspace(SIX_IMAGES.recipes.parent), SIX_IMAGES.images).plan.images


def test_six_images_are_planned(images: tuple[Image, ...]) -> None:
    assert tuple(image.name for image in images) == SIX_IMAGES.images
    assert len(images) == 6


def test_a_monolith_installs_what_its_image_contains(tmp_path: Path) -> None:
    same = fleet_build.compare_six_images(tmp_path)

    assert len(same) == 12
    assert same[4:6] == [
        "Both sides have the same Python packages in fleet-mpi: 31.",
        "Both sides have the same sources in fleet-mpi: 2.",
    ]


def test_another_version_in_a_monolith_ends_the_benchmark(tmp_path: Path) -> None:
    monoliths = tmp_path / "monoliths"
    shutil.copytree(SIX_IMAGES.monoliths, monoliths)
    common = monoliths / "common.txt"
    common.write_text(common.read_text().replace("numpy==", "numpy==1."))

    with pytest.raises(SystemExit, match="the two sides differ in Python packages in fleet-data-service"):
        fleet_build.compare_six_images(tmp_path, replace(SIX_IMAGES, monoliths=monoliths))


def test_five_images_share_layers_so_that_one_of_them_is_exported_first(images: tuple[Image, ...]) -> None:
    assert leaders(images) == {"fleet-mpi"}
    assert leaders([image for image in images if image.name in ("fleet-mpi", "fleet-pytorch")]) == frozenset()


def test_stages_build_on_those_they_start_from_and_copy_from() -> None:
    assert fleet_build.needed(DOCKERFILE) == {
        "base": set(),
        "toolchain": {"base"},
        "metis": {"toolchain"},
        "hwloc": {"toolchain"},
        "changes": {"base", "hwloc"},
        "image": {"base", "metis", "hwloc"},
    }


def test_the_longest_chain_is_the_slowest_way_through_the_stages() -> None:
    needs = {"base": set[str](), "toolchain": {"base"}, "metis": {"toolchain"}, "python": {"toolchain"}}
    seconds = {"toolchain": 20.0, "metis": 37.5, "python": 2.0}
    assert fleet_build.chain("metis", needs, seconds) == (57.5, ("base", "toolchain", "metis"))


def test_spans_that_overlap_are_counted_once() -> None:
    assert fleet_build.covered([(5.0, 9.0), (1.0, 3.0), (2.0, 4.0), (6.0, 7.0)]) == 7.0
