"""Would this fit? What the command line asks for, in an image or on any base."""

from dataclasses import replace

import pytest

from bakehouse.cli import json_report, tables
from bakehouse.errors import ConflictError, UndecidedError, UsageError
from bakehouse.resolve import alternatives, what_if
from tests.support.errors import error_text, refusal
from tests.support.trees import COMPONENTS, Tree

CUDA = """\
summary: CUDA images
stage_order: 0
releases:
  - version: "12.8"
    provides: {cuda: "12.8", glibc: "2.39"}
    base: {image: "cuda:12.8"}
  - version: "12.6"
    provides: {cuda: "12.6", glibc: "2.39"}
    base: {image: "cuda:12.6"}
"""
TORCH = """\
summary: PyTorch
stage_order: 40
gpu: true
releases:
  - {version: "2.9", requires: {cuda: "12.8"}, constraints: {gpu-architecture: ">=7.5", driver: ">=570"}}
  - {version: "2.8", requires: {cuda: "12.6", python: "3.11"}}
  - {version: "2.7", requires: {cuda: "12.6"}}
"""
INSTANCES = """\
summary: Instance types
releases:
  - version: "1"
    variants:
      - {name: ml.p3.2xlarge, provides: {gpu-architecture: "7.0", gpus: "1"}}
      - {name: ml.p4d.24xlarge, provides: {gpu-architecture: "8.0", gpus: "8"}}
"""
POOL = """\
summary: A pool
stage_order: 50
releases:
  - version: "1"
    variants:
      - {name: cu13, requires: {cuda: ">=13"}}
      - {name: cu12, requires: {cuda: "<13"}}
"""
LAYERS = """\
summary: Layers
stage_order: 50
releases:
  - version: "1"
    variants:
      - {name: new, requires: {torch: "2.9"}}
      - {name: newer, requires: {torch: "2.9", cuda: ">=13"}}
"""
PARALLEL = """\
summary: Parallel training
stage_order: 50
releases:
  - version: "2"
    variants:
      - {name: torch2.8, requires: {torch: "2.8"}}
      - {name: torch2.7, requires: {torch: "2.7"}}
      - {name: flow, requires: {flow: "2"}}
"""
OLD = """\
summary: An old base
stage_order: 0
releases:
  - {version: "1", provides: {tool: "1.12", glibc: "2.31"}, base: {image: "old:1"}}
"""
FLOW = 'summary: Flow\nstage_order: 40\nreleases: [{version: "2", requires: {cuda: "11"}}]\n'
FABRIC = """\
summary: A fabric
stage_order: 50
releases:
  - {version: "1.4"}
  - {version: "1.3", conflicts: [{with: {cuda: "*"}, reason: it hangs, source: "https://a", confidence: low}]}
  - {version: "1.2", conflicts: [{with: {cuda: "*"}, reason: it hangs, source: "https://a"}]}
"""
RINGS = """\
summary: Rings
stage_order: 60
releases:
  - version: "1"
    variants:
      - {name: tensorflow, requires: {tensorflow: "*"}}
      - {name: pytorch, requires: {pytorch: "*"}}
"""


def releases(*versions: str) -> str:
    entries = ", ".join(f'{{version: "{version}"}}' for version in versions)
    return f"stage_order: 50\nreleases: [{entries}]\n"


@pytest.fixture
def cuda_tree(tree: Tree) -> Tree:
    tree.component("cuda-image", CUDA)
    tree.component("torch", TORCH)
    tree.component("instance", INSTANCES)
    tree.image('summary: x\nbase: {cuda-image: "12.8"}\ncomponents: {python: "3.12", torch: "*"}\n')
    return tree


def resolved(tree: Tree, *arguments: str) -> str:
    """Return the answer to assumptions without an image."""
    catalog = tree.catalog()
    try:
        fits = what_if.resolve_on_bases(what_if.parse_assumptions(arguments, catalog), catalog)
    except (ConflictError, UndecidedError) as error:
        return error_text(error)
    return "\n".join(
        ", ".join(str(choice.candidate) for choice in resolution.all_choices)
        for resolution in fits.resolutions
    )


def resolved_image(tree: Tree, *arguments: str) -> str:
    catalog = tree.catalog()
    try:
        resolution = what_if.resolve_assuming(
            tree.recipes()["small"], what_if.parse_assumptions(arguments, catalog), catalog
        )
    except (ConflictError, UndecidedError) as error:
        return error_text(error)
    return ", ".join(str(choice.candidate) for choice in (resolution.base, *resolution.choices))


def mistaken(tree: Tree, *arguments: str) -> str:
    return refusal(UsageError, what_if.parse_assumptions, arguments, tree.catalog())


def test_all_words_that_name_no_component_are_reported(tree: Tree) -> None:
    messages = mistaken(tree, "=1", "=2")
    assert "`=1` names no component" in messages
    assert "`=2` names no component" in messages


def test_a_base_is_found_for_what_is_asked_for(cuda_tree: Tree) -> None:
    assert resolved(cuda_tree, "torch=2.9") == "cuda-image 12.8, torch 2.9"


def test_every_base_that_will_do_is_reported(cuda_tree: Tree) -> None:
    assert resolved(cuda_tree, "python") == "debian 12, python 3.12\ncuda-image 12.8, python 3.12"


def test_a_base_can_be_asked_for_by_its_name(cuda_tree: Tree) -> None:
    assert resolved(cuda_tree, "python", "debian=12") == "debian 12, python 3.12"


def test_what_does_not_fit_is_reported_with_the_candidates_and_what_is_nearest(cuda_tree: Tree) -> None:
    expected = """\
error: no base in the catalogue fits cuda 12.6 and torch 2.9
  --> --assume torch=2.9
  because you requested cuda 12.6   --assume cuda=12.6

candidates for torch:
  torch 2.9  needs cuda 12.8  components/torch/component.yaml:5

closest combinations that fit:
  1 change  cuda 12.6 → 12.8  cuda-image 12.8, torch 2.9
  1 change  torch 2.9 → 2.8   cuda-image 12.6, python 3.11, torch 2.8

hint: run `bake resolve --assume cuda=12.8 --assume torch=2.9` to see the first one in full
"""
    assert resolved(cuda_tree, "cuda=12.6", "torch=2.9") == expected


def test_the_fewest_changes_come_first_and_the_nearest_versions(cuda_tree: Tree) -> None:
    expected = """\
error: no base in the catalogue fits torch >=2.8,<2.9 and python 3.12
  --> --assume torch>=2.8,<2.9
  because you requested python 3.12   --assume python=3.12

candidates for torch:
  torch 2.8  needs python 3.11, not 3.12  components/torch/component.yaml:6

closest combinations that fit:
  1 change  torch >=2.8,<2.9 → 2.9  cuda-image 12.8, python 3.12, torch 2.9
  1 change  python 3.12 → 3.11      cuda-image 12.6, python 3.11, torch 2.8

hint: run `bake resolve --assume torch=2.9 --assume python=3.12` to see the first one in full
"""
    assert resolved(cuda_tree, "torch>=2.8,<2.9", "python=3.12") == expected


def test_what_it_has_to_run_on_is_reported_with_both_places(cuda_tree: Tree) -> None:
    expected = """\
error: no base in the catalogue fits torch 2.9 and ml.p3.2xlarge
  --> --assume torch=2.9
  because the image targets ml.p3.2xlarge      --assume instance=ml.p3.2xlarge
  and ml.p3.2xlarge has gpu-architecture 7.0   components/instance/component.yaml:5:16

candidates for torch:
  torch 2.9         needs gpu-architecture >=7.5, not 7.0  components/torch/component.yaml:5
  2 other releases  are outside the requested range

closest combinations that fit:
  1 change  torch 2.9 → 2.8  cuda-image 12.6, python 3.11, torch 2.8

hint: run `bake resolve --assume torch=2.8 --assume instance=ml.p3.2xlarge` to see the first one in full
"""
    assert resolved(cuda_tree, "torch=2.9", "instance=ml.p3.2xlarge") == expected


def test_the_driver_of_the_host_is_reported_with_the_one_that_is_needed(cuda_tree: Tree) -> None:
    expected = """\
error: no base in the catalogue fits torch 2.9 and driver 550.54
  --> --assume torch=2.9
  because the host has driver 550.54   --assume driver=550.54

candidates for torch:
  torch 2.9         needs driver >=570, not 550.54   components/torch/component.yaml:5
  2 other releases  are outside the requested range

closest combinations that fit:
  1 change  torch 2.9 → 2.8  cuda-image 12.6, python 3.11, torch 2.8

hint: run `bake resolve --assume torch=2.8 --assume driver=550.54` to see the first one in full
"""
    assert resolved(cuda_tree, "torch=2.9", "driver=550.54") == expected


def test_assumptions_take_the_place_of_what_an_image_asks_for(cuda_tree: Tree) -> None:
    assert resolved_image(cuda_tree, "python=3.11") == "cuda-image 12.8, python 3.11, torch 2.9"
    assert resolved_image(cuda_tree, "cuda-image=12.6") == "cuda-image 12.6, python 3.12, torch 2.7"


def test_what_does_not_fit_into_an_image_is_reported_with_the_recipes_line(cuda_tree: Tree) -> None:
    expected = """\
error: image `small` does not fit with torch 2.7
  --> --assume torch=2.7
  because the image requests cuda-image 12.8   images/small.yaml:2:20
  and cuda-image 12.8 provides cuda 12.8       components/cuda-image/component.yaml:4:14

candidates for torch:
  torch 2.7         needs cuda 12.6, not 12.8        components/torch/component.yaml:7
  2 other releases  are outside the requested range

closest combinations that fit:
  1 change  cuda-image 12.8 → 12.6  cuda-image 12.6, python 3.12, torch 2.7
"""
    assert resolved_image(cuda_tree, "torch=2.7") == expected


def test_several_images_get_a_line_each(cuda_tree: Tree) -> None:
    catalog, recipe = cuda_tree.catalog(), cuda_tree.recipes()["small"]
    other = replace(recipe, name="other", base=replace(recipe.base, specifier="==12.6"))

    assumptions = what_if.parse_assumptions(["torch=2.9"], catalog)
    small, second = what_if.summarize_images([recipe, other], assumptions, catalog)
    assert (small.image, small.changes) == ("small", "")
    assert small.resolution
    assert small.resolution.version_of("torch") == "2.9"
    assert second == what_if.ImageFit("other", None, "cuda-image 12.6 → 12.8")


def test_a_search_for_a_base_that_ends_first_is_no_answer(
    cuda_tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alternatives, "DECISION_BUDGET", 1)

    expected = """\
error: it is not known whether a base fits torch 2.9
  not decided    debian, cuda-image
  stopped after  1 tried candidates

hint: add a version of `debian` or `cuda-image` with `--assume`
"""
    assert resolved(cuda_tree, "torch=2.9") == expected


def test_a_search_in_an_image_that_ends_first_is_no_answer(
    cuda_tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alternatives, "DECISION_BUDGET", 1)

    expected = """\
error: it is not known whether image `small` fits with torch 2.9
  stopped after  1 tried candidates

hint: add a version of `cuda-image` with `--assume`
"""
    assert resolved_image(cuda_tree, "torch=2.9") == expected


def test_images_without_an_answer_are_not_said_to_fail(
    cuda_tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alternatives, "DECISION_BUDGET", 1)
    catalog, recipe = cuda_tree.catalog(), cuda_tree.recipes()["small"]
    fits = what_if.summarize_images([recipe], what_if.parse_assumptions(["torch=2.9"], catalog), catalog)

    assert fits == (what_if.ImageFit("small", None, is_decided=False),)
    assert tables.image_fits(fits) == "small  not known: the search ended first\n"


def test_bases_without_an_answer_are_named(cuda_tree: Tree) -> None:
    catalog = cuda_tree.catalog()
    assumptions = what_if.parse_assumptions(["torch=2.9"], catalog)
    fits = what_if.fitting(assumptions, catalog)

    text = tables.fit(assumptions, fits.resolutions, {"debian": "the search ended first"})
    assert text.endswith("\nnot known on debian: the search ended first\n")


def test_a_variant_can_be_asked_for(tree: Tree) -> None:
    assert resolved(tree, "torch=2.9", "torch=cu128-*") == "debian 12, python 3.11, torch 2.9.0 (cu128-py311)"


def test_a_variant_of_a_component_that_the_image_lacks_is_added_and_checked(cuda_tree: Tree) -> None:
    cuda_tree.component("pool", POOL)

    assert resolved_image(cuda_tree, "pool=cu12").endswith("torch 2.9, pool 1 (cu12)")
    expected = """\
error: image `small` does not fit with variant cu13 of pool
  --> --assume pool=cu13
  because the image requests cuda-image 12.8   images/small.yaml:2:20
  and cuda-image 12.8 provides cuda 12.8       components/cuda-image/component.yaml:4:14

candidates for pool:
  pool 1 (cu13)  needs cuda >=13, not 12.8  components/pool/component.yaml:6

closest combinations that fit:
  1 change  variant cu13 of pool → cu12  cuda-image 12.8, python 3.12
"""
    assert resolved_image(cuda_tree, "pool=cu13") == expected


def test_a_hint_recommends_a_version_without_a_known_problem(cuda_tree: Tree) -> None:
    cuda_tree.component("pool", FABRIC)
    report = resolved_image(cuda_tree, "pool=1.2")

    assert "hint: run `bake resolve small --assume pool=1.4` to see the first one in full" in report


def test_a_component_for_a_framework_does_not_bring_another_one(cuda_tree: Tree) -> None:
    for name in ("pytorch", "tensorflow"):
        cuda_tree.component(name, f'summary: {name}\nreleases: [{{version: "2"}}]\n')
    cuda_tree.component("rings", RINGS)

    for name in ("pytorch", "tensorflow"):
        report = resolved_image(cuda_tree, f"{name}=*", "rings=*")
        assert report.endswith(f"{name} 2, rings 1 ({name})"), report


def test_a_component_that_fits_no_assumed_version_is_a_reason(cuda_tree: Tree) -> None:
    cuda_tree.component("pool", 'summary: x\nreleases: [{version: "1", constraints: {torch: "<2.8"}}]\n')
    text = 'summary: x\nbase: {cuda-image: "12.6"}\ncomponents: {python: "3.12", pool: "1", torch: "2.7"}\n'
    cuda_tree.image(text)
    report = resolved_image(cuda_tree, "torch=2.9")

    assert "because pool 1 works with torch <2.8 " in report
    assert "torch 2.9         needs cuda 12.8, not 12.6" in report


def test_a_search_that_ends_early_says_so(cuda_tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(what_if, "CALLS", 4)

    assert "no close combination is known to fit (the search stopped after 4 tries)" in resolved(
        cuda_tree, "cuda=12.6", "torch=2.9"
    )


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("toch=2", "error: unknown component `toch`\n  --> --assume toch=2\n\nhint: did you mean `torch`?\n"),
        (
            "instance=ml.p3.2xlrge",
            "error: unknown instance type `ml.p3.2xlrge`\n  --> --assume instance=ml.p3.2xlrge\n\n"
            "hint: did you mean `ml.p3.2xlarge`?\n",
        ),
        (
            "driver=new",
            "error: `new` is not a driver version\n  --> --assume driver=new\n\n"
            "hint: use a version such as `550.163.01`\n",
        ),
        (
            "torch=2,9",
            "error: `2,9` is not a version range\n  --> --assume torch=2,9\n\n"
            'hint: write versions as ">=2.9,<3" or "2.9.1", or "*" for any\n',
        ),
        (
            "=2",
            "error: `=2` names no component\n  --> --assume =2\n\n"
            "hint: write `name=versions`, such as `cuda=12.4`\n",
        ),
    ],
)
def test_an_assumption_that_is_mistyped_is_reported(cuda_tree: Tree, word: str, message: str) -> None:
    assert mistaken(cuda_tree, word) == message


def test_a_variant_that_does_not_exist_is_reported_with_those_that_do(tree: Tree) -> None:
    assert mistaken(tree, "torch=rocm-*") == (
        "error: torch has no variant `rocm-*`\n  --> --assume torch=rocm-*\n\n"
        "hint: use one of `cpu-py311`, `cu128-py311`\n"
    )


BUILDS = """\
summary: PyTorch, one build for each CUDA and Python
stage_order: 40
releases:
  - version: "2.9"
    variants:
      - {name: cu128-py311, gpu: true, provides: {cuda: "12.8"}, requires: {python: "3.11"}}
      - {name: cu128-py312, gpu: true, provides: {cuda: "12.8"}, requires: {python: "3.12"}}
      - {name: cpu-py312, requires: {python: "3.12"}}
"""
COMPAT = """\
summary: Libraries for old drivers
stage_order: 14
gpu: true
releases: [{version: "12.8", requires: {cuda: "12.8"}, facts: {branches: 535 550}}]
"""


@pytest.mark.parametrize(
    ("words", "lacking"),
    [
        (["torch=2.7"], "torch 2.7"),
        (["python=3.13"], "a build of torch 2.9 for python 3.13"),
        (["python=3.13", "torch=2.9"], "a build of torch 2.9 for python 3.13"),
    ],
)
def test_what_the_catalogue_lacks_for_an_image_is_no_refusal(
    tree: Tree, words: list[str], lacking: str
) -> None:
    tree.component("torch", BUILDS)
    tree.component("python", COMPONENTS["python"] + '  - {version: "3.13"}\n')
    tree.image('summary: x\nbase: {debian: "12"}\ncomponents: {python: "3.12", torch: "2.9"}\n')
    catalog, recipes = tree.catalog(), [tree.recipes()["small"]]
    assumptions = what_if.parse_assumptions(words, catalog)

    report = resolved_image(tree, *words)
    assert report.startswith(f"error: it is not known whether image `small` fits with {assumptions}\n")
    assert f"  the catalogue lacks  {lacking}\n" in report
    fits = what_if.summarize_images(recipes, assumptions, catalog)
    assert tables.image_fits(fits) == f"small  not known: the catalogue lacks {lacking}\n"


def test_a_build_that_a_variant_of_the_recipe_excludes_is_not_lacking(tree: Tree) -> None:
    tree.component("torch", BUILDS)
    text = 'summary: x\nbase: {debian: "12"}\ncomponents: {python: "3.12", torch: "2.9"}\n'
    tree.image(f"{text}variants: {{torch: cpu-*}}\n")

    assert resolved_image(tree, "python=3.11").startswith(
        "error: image `small` does not fit with python 3.11\n"
    )


def test_a_driver_without_an_image_selects_builds_for_gpus(tree: Tree) -> None:
    tree.component(
        "torch", BUILDS.replace("cu128-py312, gpu", "cu128-py310, gpu").replace("cpu-py312", "cpu-py313")
    )

    assert resolved(tree, "torch", "driver=570").endswith("torch 2.9 (cu128-py311)")


def test_libraries_for_an_old_driver_are_a_combination_that_fits(cuda_tree: Tree) -> None:
    cuda_tree.component("cuda-compat", COMPAT)
    report = resolved(cuda_tree, "torch=2.9", "driver=550.54")

    assert "  1 change  with cuda-compat 12.8  cuda-image 12.8, torch 2.9\n" in report
    options = "--assume cuda-compat=12.8 --assume torch=2.9 --assume driver=550.54"
    assert report.endswith(f"hint: run `bake resolve {options}` to see the first one in full\n")
    words = options.replace("--assume ", "").split()
    assert resolved(cuda_tree, *words) == "cuda-image 12.8, cuda-compat 12.8, torch 2.9"
    assert "with cuda-compat" not in resolved(cuda_tree, "torch=2.9", "driver=470.1")


@pytest.mark.parametrize(
    ("facts", "text"),
    [("gpu: V100", "V100"), ("gpu: V100, lacks: bf16 and FP8", "V100, without bf16 and FP8")],
)
def test_an_instance_type_is_reported_with_its_gpu(cuda_tree: Tree, facts: str, text: str) -> None:
    cuda_tree.component(
        "instance", INSTANCES.replace("ml.p3.2xlarge,", f"ml.p3.2xlarge, facts: {{{facts}}},")
    )

    report = resolved(cuda_tree, "torch=2.9", "instance=ml.p3.2xlarge")
    assert f"and ml.p3.2xlarge has gpu-architecture 7.0 ({text}) " in report


def test_a_need_that_is_not_met_because_of_an_instance_type_names_its_gpu(cuda_tree: Tree) -> None:
    cuda_tree.component("layers", LAYERS)

    report = resolved(cuda_tree, "layers", "instance=ml.p3.2xlarge")
    assert "  and ml.p3.2xlarge has gpu-architecture 7.0 " in report
    assert (
        "  layers 1 (new)    needs torch 2.9, but torch 2.9 needs gpu-architecture >=7.5, not 7.0" in report
    )


def test_two_assumptions_that_exclude_each_other_are_reported_without_a_base(cuda_tree: Tree) -> None:
    cuda_tree.component("parallel", PARALLEL)
    cuda_tree.component("flow", FLOW)

    report = resolved(cuda_tree, "parallel", "torch=2.9", "cuda=12.8")
    expected = """\
error: no base in the catalogue fits any parallel, torch 2.9 and cuda 12.8
  --> --assume parallel
  because you requested torch 2.9   --assume torch=2.9

candidates for parallel:
  parallel 2 (torch2.8)  needs torch 2.8, not 2.9  components/parallel/component.yaml:6
  parallel 2 (torch2.7)  needs torch 2.7, not 2.9  components/parallel/component.yaml:7
  parallel 2 (flow)      needs flow 2              components/parallel/component.yaml:8"""
    assert report[: report.index("\n\nclosest")] == expected


def test_builds_that_need_the_same_as_the_others_are_no_reason(cuda_tree: Tree) -> None:
    """The build without an opinion about CUDA may fit, so CUDA is not why nothing fits."""
    cuda_tree.component("layers", LAYERS)
    report = resolved(cuda_tree, "layers", "cuda=12.6", "instance=ml.p3.2xlarge")
    assert "  layers 1 (new)    needs torch 2.9, but " in report
    assert "the image targets ml.p3.2xlarge" in report


def test_the_newest_release_of_the_nearest_series_is_offered(cuda_tree: Tree) -> None:
    cuda_tree.component("mpi", f"summary: MPI\n{releases('5.0.1', '4.1.8', '4.1.1', '4.0.1')}")

    assert "  1 change  mpi 3 → 4.1.8  debian 12, mpi 4.1.8\n" in resolved(cuda_tree, "mpi=3")


def test_the_newest_release_of_the_nearest_minor_version_is_offered(cuda_tree: Tree) -> None:
    cuda_tree.component("mpi", f"summary: MPI\n{releases('4.2.0', '4.1.8', '4.1.1', '4.0.1')}")

    assert "  1 change  mpi 4.0.3 → 4.0.1  debian 12, mpi 4.0.1\n" in resolved(cuda_tree, "mpi=4.0.3")


def test_a_release_of_another_series_is_not_offered_for_another_base(cuda_tree: Tree) -> None:
    """The base with the smaller change is enough if two bases need a change of the same pin."""
    cuda_tree.component("old", OLD)
    cuda_tree.component("tool", f"summary: A tool\n{releases('2.5', '2.4')}")

    assert resolved(cuda_tree, "tool=2.9").count("  1 change  tool") == 1
    assert "  1 change  tool 2.9 → 2.5  debian 12, tool 2.5\n" in resolved(cuda_tree, "tool=2.9")


@pytest.mark.parametrize("confidence", ["low", "medium"])
def test_a_problem_with_a_component_that_is_not_named_is_a_warning(cuda_tree: Tree, confidence: str) -> None:
    text = FABRIC.replace("confidence: low", f"confidence: {confidence}").replace("cuda:", "torch:")
    cuda_tree.component("fabric", text)
    catalog = cuda_tree.catalog()
    for word, warned in (("fabric=1.3", True), ("fabric=1.4", False), ("python", False)):
        assumptions = what_if.parse_assumptions([word], catalog)
        fits = what_if.fitting(assumptions, catalog)
        warning = (
            "warning: fabric 1.3, once torch is added: it hangs\n"
            "  source: https://a   components/fabric/component.yaml:5\n"
        )
        assert tables.fit(assumptions, fits.resolutions).endswith(warning) == warned
        found = [fit["warnings"] for fit in json_report.fit(assumptions, fits.resolutions)["fits"]]
        assert any(found) == warned
