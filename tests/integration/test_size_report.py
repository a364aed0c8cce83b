"""Images of a real engine, weighed."""

import contextlib
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bakehouse.analysis.layers import LayerContents, LayerFile, readers_into
from bakehouse.builder.built_image import BuiltImage
from bakehouse.catalog.project import HOME
from bakehouse.cli import size_report
from bakehouse.engine import docker, usage_lock
from bakehouse.engine.docker import DockerEngine
from bakehouse.errors import BuildError, EngineError, UsageError
from bakehouse.pipeline.build import build, ensure_built
from bakehouse.pipeline.publish import push_images
from bakehouse.plan.model import Image
from bakehouse.plan.workspace import Workspace, open_workspace, select
from bakehouse.publish.options import PublishOptions
from tests.integration.fleet import Fleet
from tests.support.guides import sizes

pytestmark = pytest.mark.engine

GUIDE = {
    match[1]: match[0]
    for match in re.finditer(
        r"(?m)^\| `([\w-]+)` \|.*$",
        (HOME / "docs/how-to/reduce-size.md").read_text().partition("\n## Where the bytes are\n")[2],
    )
}
"""Rows of the guide's table, by image."""


@pytest.fixture
def engine() -> Iterator[DockerEngine]:
    with contextlib.closing(docker.connect()) as connected:
        yield connected


def project(root: Path, name: str, recipe: str) -> None:
    """A project with a recipe of its own."""
    (root / "pyproject.toml").write_text('[tool.bakehouse]\nrecipes = ["own"]\n')
    (root / "own/images").mkdir(parents=True, exist_ok=True)
    (root / f"own/images/{name}.yaml").write_text(recipe)


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_a_small_image_is_read_as_it_is_stored(
    engine: DockerEngine, tmp_path: Path, compression: str
) -> None:
    content, small = os.urandom(300_000), b"12345"
    (tmp_path / "content").write_bytes(content)
    (tmp_path / "small").write_bytes(small)
    (tmp_path / "Dockerfile").write_text(
        "FROM scratch\nCOPY content /opt/data\nCOPY small /opt/data\nCOPY content /opt/again\n"
    )
    reference = f"bakehouse/test-{os.getpid()}:size-{os.urandom(4).hex()}"
    output = (
        f"type=image,name={reference},oci-mediatypes=true,compression={compression},force-compression=true"
    )
    command = [
        "docker",
        "buildx",
        "build",
        "--quiet",
        "--provenance=false",
        "--output",
        output,
        str(tmp_path),
    ]
    with usage_lock.engine_in_use():
        subprocess.run(command, check=True, capture_output=True)
    contents: dict[str, LayerContents] = {}
    try:
        archive = engine.read_image(reference, readers_into(contents))
    finally:
        subprocess.run(["docker", "image", "rm", "--force", reference], check=True, capture_output=True)

    assert [contents[layer.digest].files for layer in archive.layers] == [
        (LayerFile("/opt/data", 300_000),),
        (LayerFile("/opt/data", 5),),
        (LayerFile("/opt/again", 300_000),),
    ]
    assert [created_by.partition(" #")[0] for created_by in archive.made_by] == [
        "COPY content /opt/data",
        "COPY small /opt/data",
        "COPY content /opt/again",
    ]
    assert [layer.compression for layer in archive.layers] == [compression] * 3


def test_a_missing_image_is_reported(engine: DockerEngine) -> None:
    with pytest.raises(EngineError) as caught:
        engine.read_image("bakehouse/missing:1", lambda digest: None)

    assert "could not save `bakehouse/missing:1`" in str(caught.value)


@pytest.fixture(scope="module")
def reports(workspace: Workspace, fleet: Fleet) -> dict[str, dict[str, Any]]:
    """Reports of the images whose sizes the guide shows."""
    selection = select(workspace, [name for name in GUIDE if name in fleet.images])
    return {
        size["image"]: size for size in json.loads(size_report.run(selection, print, json=True))["images"]
    }


def test_the_guide_shows_the_sizes_of_the_images(reports: dict[str, dict[str, Any]]) -> None:
    assert {"mpi-cpu", "pytorch-cpu", "tensorflow-cpu"} <= reports.keys()
    for name, report in reports.items():
        assert sizes(GUIDE[name]) == pytest.approx([report["stored"], report["unpacked"]], rel=0.03), name


def test_every_byte_of_a_built_image_has_an_owner(
    engine: DockerEngine, reports: dict[str, dict[str, Any]], mpi_cpu: tuple[Image, BuiltImage]
) -> None:
    _, built = mpi_cpu
    size = reports["mpi-cpu"]
    parts = {part["name"]: part for part in size["parts"]}
    assert set(parts) == {
        *("debian", "packages", "python", "sshd", "open-mpi", "mpi4py", "sagemaker-training"),
        "constraints",
    }
    assert all(part["layers"] for part in parts.values())
    assert size["config"] == built.digest
    assert sum(layer["unpacked"] for layer in size["layers"]) == size["unpacked"]
    assert size["unpacked"] > 300_000_000
    assert size["stored"] < size["unpacked"] / 2
    # Whose a linked layer is, its own list of files tells as well.
    contents: dict[str, LayerContents] = {}
    saved = engine.read_image(built.stored, readers_into(contents))
    for layer, row in zip(saved.layers, size["layers"], strict=True):
        listed = [
            file.path.rpartition("/")[2].partition("~")[0]
            for file in contents[layer.digest].files
            if file.path.startswith("/usr/share/bakehouse/")
        ]
        assert listed in ([], [row["owner"]])
        assert listed or row["owner"] in ("debian", "packages", "constraints")


def test_a_build_over_its_budget_fails_and_one_within_it_does_not(
    tmp_path: Path, mpi_cpu: tuple[Image, BuiltImage]
) -> None:
    recipe = (HOME / "recipes/images/mpi-cpu.yaml").read_text()
    project(tmp_path, "mpi-cpu", f"{recipe}budget: {{sagemaker-training: 50 MB, image: 1 GB}}\n")
    assert select(open_workspace(tmp_path), ["mpi-cpu"]).plan.images[0].key == mpi_cpu[0].key

    with pytest.raises(BuildError) as caught:
        build(select(open_workspace(tmp_path), ["mpi-cpu"]), print)

    assert [diagnostic.message for diagnostic in caught.value.diagnostics] == [
        "`sagemaker-training` of image `mpi-cpu` exceeds its size budget"
    ]
    project(tmp_path, "mpi-cpu", f"{recipe}budget: {{sagemaker-training: 500 MB, image: 1 GB}}\n")
    [built] = build(select(open_workspace(tmp_path), ["mpi-cpu"]), print)
    assert built.digest == mpi_cpu[1].digest


def test_an_image_over_its_budget_is_not_pushed(tmp_path: Path, mpi_cpu: tuple[Image, BuiltImage]) -> None:
    recipe = (HOME / "recipes/images/mpi-cpu.yaml").read_text()
    project(tmp_path, "mpi-cpu", f"{recipe}budget: {{image: 50 MB}}\n")
    own = open_workspace(tmp_path)
    built = ensure_built(select(own, ["mpi-cpu"]), print)

    with pytest.raises(BuildError) as caught:
        push_images(own, built, print, PublishOptions())

    assert [diagnostic.message for diagnostic in caught.value.diagnostics] == [
        "image `mpi-cpu` exceeds its size budget"
    ]


def test_an_image_that_was_not_built_is_named_with_the_command(tmp_path: Path) -> None:
    project(tmp_path, "not-built", (HOME / "recipes/images/mpi-cpu.yaml").read_text())

    with pytest.raises(UsageError) as caught:
        size_report.run(select(open_workspace(tmp_path), ["not-built"]), print)

    [diagnostic] = caught.value.diagnostics
    assert diagnostic.message == "image `not-built` is missing: it was not built from its current recipe"
    assert diagnostic.hint == "run `bake build not-built`"
