"""Benchmark of fleet builds: equal contents, and reading of chains and times."""

import pytest

from bakehouse.builder.build import leaders
from bakehouse.plan.model import Image
from bakehouse.plan.workspace import open_workspace, plan_images
from benchmarks import fleet_build
from benchmarks.fleet_build import FLEET, IMAGES, MONOLITHS

DOCKERFILE = """
FROM bakehouse/debian:12 AS base
FROM base AS toolchain
FROM toolchain AS metis
COPY --from=elsewhere /opt /opt
FROM toolchain AS hwloc
FROM base AS changes
RUN --mount=type=bind,from=base,target=/mnt/base --mount=type=bind,from=hwloc,target=/mnt/system \
    python3
FROM base AS image
COPY --link --from=metis /out/ /
COPY --link --from=hwloc /out/ /
"""


@pytest.fixture(scope="module")
def images() -> tuple[Image, ...]:
    return plan_images(open_workspace(FLEET), IMAGES).images


def test_six_images_are_planned(images: tuple[Image, ...]) -> None:
    assert tuple(image.name for image in images) == IMAGES
    assert len(IMAGES) == 6


@pytest.mark.parametrize("name", IMAGES)
def test_a_monolith_installs_what_its_image_holds(images: tuple[Image, ...], name: str) -> None:
    image = next(image for image in images if image.name == name)
    stages = image.stages
    packages = {
        package.name: package.version for stage in stages for package in (*stage.wheels, *stage.sdists)
    }
    wheels = [
        artifact.file
        for stage in stages
        for artifact in stage.artifacts.values()
        if artifact.file.endswith(".whl")
    ]
    packages |= {file.split("-")[0]: file.split("-")[1].replace("%2B", "+") for file in wheels}
    files = [MONOLITHS / "common.txt", MONOLITHS / name / "requirements.txt"]
    lines = [line for file in files if file.exists() for line in file.read_text().splitlines()]
    assert dict(line.split("==") for line in lines) == packages


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
