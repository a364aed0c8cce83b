"""Trimming: removable files of components, choices of recipes, and the dropped files."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bakehouse.catalog.component import Trim
from bakehouse.catalog.project import HOME
from bakehouse.catalog.trim import path_pattern, trim_choices
from bakehouse.errors import RecipeError
from tests.support import own_recipes
from tests.support.data import text_of
from tests.support.errors import error_text, raised
from tests.support.trees import IMAGE, Tree

TORCH = text_of(__file__, "torch")
TEMPLATE = "{% block build %}\nFROM toolchain AS torch\nRUN {{ stage.finish }}\n{% endblock %}\n"
GPU = IMAGE.replace("cpu-*", "cu128-*")


@pytest.fixture
def torch(tree: Tree) -> Tree:
    tree.component("torch", TORCH, TEMPLATE)
    return tree


def finished(tree: Tree, recipe: str) -> str:
    tree.image(recipe)
    lines = tree.dockerfile().replace(" \\\n        ", " ").splitlines()
    return next(line for line in lines if line.startswith("RUN finish-layer torch"))


def test_what_a_gpu_may_load_goes_on_no_evidence_from_cpus(torch: Tree) -> None:
    expected = "RUN finish-layer torch opt/torch/include opt/torch/test '!opt/torch/lib/libdevice.a'"
    assert finished(torch, GPU) == finished(torch, GPU + "trim: safe\n") == expected


def test_cpu_components_drop_files_that_no_cpu_needed(torch: Tree) -> None:
    expected = (
        "RUN finish-layer torch opt/torch/include 'opt/torch/lib/libspare*.so' opt/torch/lib/libother.so "
        "opt/torch/test"
    )
    assert finished(torch, IMAGE) == expected


def test_a_recipe_can_go_without_everything(torch: Tree) -> None:
    assert finished(torch, GPU + "trim: all\n") == finished(torch, IMAGE)


def test_a_recipe_can_keep_everything(torch: Tree) -> None:
    assert finished(torch, GPU + "trim: none\n") == "RUN finish-layer torch '!**/*.a' '!**/*.la'"


def test_a_recipe_can_name_the_kinds_that_go(torch: Tree) -> None:
    listed = GPU + "trim: [libraries, static]\n"
    assert finished(torch, listed) == (
        "RUN finish-layer torch 'opt/torch/lib/libspare*.so' opt/torch/lib/libother.so"
    )


def test_trimming_enters_the_key_of_the_stage_and_of_the_image(torch: Tree) -> None:
    torch.image(GPU)
    before = torch.planned_image()
    torch.image(GPU + "trim: all\n")
    after = torch.planned_image()

    stages = [{stage.name: stage.key for stage in image.stages} for image in (before, after)]
    assert before.key != after.key
    assert stages[0]["torch"] != stages[1]["torch"]
    assert stages[0]["toolkit"] == stages[1]["toolkit"]


def test_a_variant_can_take_back_what_the_component_says(torch: Tree) -> None:
    torch.component(
        "torch", TORCH.replace("gpu: true}", "gpu: true, trim: {headers: {files: []}}}"), TEMPLATE
    )
    assert finished(torch, GPU) == "RUN finish-layer torch opt/torch/test '!opt/torch/lib/libdevice.a'"


def test_gpu_components_keep_libraries_and_cuda_headers_by_default() -> None:
    specs = [
        variant.spec
        for component in own_recipes.catalog().components.values()
        for release in component.releases
        for variant in release.variants
        if variant.spec.gpu
    ]
    taken = [
        choice.trim
        for spec in specs
        for choice in trim_choices(spec.trims.values(), None, gpu=True)
        if choice.is_taken
    ]
    assert {trim.kind for trim in taken} <= {"headers", "documentation", "tools", "conflicting"}
    assert not [path for trim in taken for path in trim.files if ".so" in path]


@pytest.mark.parametrize(
    ("pattern", "path", "is_meant"),
    [
        ("opt/*/include", "/opt/torch/include/torch/a.h", True),
        ("opt/*/include", "/opt/a/b/include/a.h", False),
        ("opt/lib*.so*", "/opt/libspare.so.1", True),
        ("opt/lib*.so*", "/opt/lib/spare.so.1", False),
        ("bin/*[Tt]est*", "/bin/a_Test_b", True),
        ("bin/*[Tt]est*", "/bin/a_best", False),
        ("**/*.a", "/opt/lib/libdevice.a", True),
        ("**/*.a", "/libdevice.a", True),
        ("**/*.a", "/opt/lib/libdevice.ab", False),
        ("a.b", "/axb", False),
    ],
)
def test_a_pattern_means_the_paths_that_the_build_drops(pattern: str, path: str, is_meant: bool) -> None:
    assert bool(path_pattern(pattern).fullmatch(path)) == is_meant


@pytest.mark.parametrize(
    ("arguments", "left"),
    [
        (["opt/include"], ["opt/lib/libtorch.so"]),
        (["opt/include", "!opt/lib/libdev*.a"], ["opt/lib/libdevice.a", "opt/lib/libtorch.so"]),
        (
            ["!**/*.a", "!**/*.la"],
            ["opt/include/a.h", "opt/lib/libdevice.a", "opt/lib/libmuch.a", "opt/lib/libtorch.so"],
        ),
    ],
)
def test_a_layer_has_what_is_not_dropped_and_the_static_libraries_that_are_kept(
    tmp_path: Path, arguments: list[str], left: list[str]
) -> None:
    out = tmp_path / "out"
    for name in ("include/a.h", "lib/libdevice.a", "lib/libmuch.a", "lib/libtorch.so"):
        path = out / "opt" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    program = tmp_path / "finish"
    text = (HOME / "templates/bin/finish-layer").read_text(encoding="utf-8")
    program.write_text(text.replace('Path("/out")', f"Path({str(out)!r})"))

    subprocess.run(
        [sys.executable, program, "torch", *arguments],
        check=True,
        env={**os.environ, "SOURCE_DATE_EPOCH": "1"},
    )

    paths = sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())
    assert paths == [*left, "usr/share/bakehouse/torch"]


@pytest.mark.parametrize("kinds", [None, (), ("headers",)])
def test_files_that_wheels_disagree_about_are_always_omitted(kinds: tuple[str, ...] | None) -> None:
    assert trim_choices([Trim("conflicting", ("a",))], kinds, gpu=True)[0].is_taken


def test_evidence_is_from_cpus_by_default() -> None:
    assert not trim_choices([Trim("headers", ("a",))], None, gpu=True)[0].is_taken


def test_one_kind_is_a_list_too(tree: Tree) -> None:
    tree.image(IMAGE + "trim: headers\n")
    error = raised(RecipeError, tree.recipes)
    assert "error: `headers` is not a valid `trim`\n" in error_text(error)
    assert "hint: write a list: `trim: [headers]`\n" in error_text(error)
