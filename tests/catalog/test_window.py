"""Windows of a matrix: the newest versions of a component whose combinations resolve."""

from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bakehouse.catalog.component import Component
from bakehouse.catalog.matrix import cells
from bakehouse.catalog.window import Cell, Windows
from bakehouse.errors import Problems, RecipeError
from bakehouse.util.yaml_fields import Fields
from bakehouse.util.yaml_reader import parse
from tests.support.trees import Tree

BASE = """\
summary: A base
stage_order: 0
releases:
  - {version: "12", base: {bootstrap: bookworm, packages: [python3]}}
"""
TORCH = """\
summary: PyTorch
stage_order: 10
releases:
  - {version: "2.10.0", requires: {cuda: "13"}}
  - {version: "2.9.1", requires: {cuda: "<13"}}
  - {version: "2.9.0", requires: {cuda: "<13"}}
  - {version: "2.8.0", requires: {cuda: "<12"}}
"""
CUDA = """\
summary: CUDA
stage_order: 5
releases:
  - {version: "13.0"}
  - {version: "12.8"}
  - {version: "12.6"}
  - {version: "11.8"}
"""
IMAGE = """\
summary: x
name: x-${{torch}}-${{cuda}}
matrix:
{axes}
base: debian
components: {{torch: "${{torch}}", cuda: "${{cuda}}"}}
"""
EACH_CUDA = "  torch: {newest: 9}\n  cuda: {newest: 1, in: torch}"

PAIRS = list(product([f"2.{minor}.0" for minor in range(5)], [f"1{major}.0" for major in range(4)]))


@pytest.fixture
def window(tree: Tree) -> Tree:
    tree.component("debian", BASE)
    tree.component("torch", TORCH)
    tree.component("cuda", CUDA)
    return tree


def images(tree: Tree, axes: str) -> list[str]:
    tree.image(IMAGE.format(axes=axes))
    return [name.removeprefix("x-") for name in tree.recipes()]


def test_a_window_has_the_newest_version_of_each_series_that_resolves(window: Tree) -> None:
    axes = '  torch: {newest: 2}\n  cuda: ["12.8", "11.8"]'

    assert images(window, axes) == ["2.9.1-12.8", "2.9.1-11.8", "2.8.0-11.8"]


def test_a_window_in_an_axis_counts_for_each_of_its_values(window: Tree) -> None:
    assert images(window, EACH_CUDA) == ["2.10.0-13.0", "2.9.1-12.8", "2.8.0-11.8"]


def test_a_new_version_moves_the_window(window: Tree) -> None:
    axes = '  torch: {newest: 1}\n  cuda: ["13.0"]'
    before = images(window, axes)
    window.component("torch", f'{TORCH}  - {{version: "2.11.0"}}\n')

    assert (before, images(window, axes)) == (["2.10.0-13.0"], ["2.11.0-13.0"])


def test_a_newer_version_that_does_not_resolve_leaves_the_window_and_says_why(window: Tree) -> None:
    images(window, '  torch: {newest: 1}\n  cuda: ["12.8"]')

    [recipe] = window.recipes().values()
    assert recipe.left_out == ("torch 2.10.0: torch 2.10.0 needs cuda 13, not 12.8",)


def test_an_exclusion_may_wait_for_a_version(window: Tree) -> None:
    axes = '  torch: {newest: 1}\n  cuda: ["13.0"]\n  exclude: [{torch: "3.*"}]'

    assert images(window, axes) == ["2.10.0-13.0"]


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ("  torch: {newest: 0}\n  cuda: [x]", "`newest` must be at least 1"),
        ("  torch: {newest: some}\n  cuda: [x]", "`newest` must be a whole number"),
        ("  torch: {newest: 1, in: cud}\n  cuda: [x]", "`in` must name another axis"),
        ("  torch: {newest: 1, in: torch}\n  cuda: [x]", "`in` must name another axis"),
        ("  torch: {newest: 1}\n  cudas: {newest: 1}", "unknown component `cudas`"),
        ("  torch: {newest: 1, of: x}\n  cuda: [x]", "unknown key `of` in the window of `torch`"),
        ("  torch: {newest: 1}\n  cuda: ['10.0']", "no combination in the window of `torch` resolves"),
    ],
)
def test_mistakes_in_a_window_are_reported(window: Tree, axes: str, message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        images(window, axes)

    assert message in [diagnostic.message for diagnostic in caught.value.diagnostics]


def test_a_component_with_mistakes_is_the_reason(window: Tree) -> None:
    window.component("torch", TORCH.replace("summary", "summery"))
    window.image(IMAGE.format(axes=EACH_CUDA))

    assert "unknown component" not in window.mistakes()


def selected(
    components: dict[str, Component], axes: str, resolving: set[tuple[str, str]]
) -> list[tuple[str, str]]:
    """Return the pairs in a window if exactly some pairs resolve."""

    def refusal(cell: Cell) -> str:
        return "" if (cell["torch"].text, cell["cuda"].text) in resolving else "no"

    problems = Problems()
    windows = Windows(components, lambda name: (), refusal)
    fields = Fields(parse(axes.encode(), Path("matrix.yaml")), "`matrix`", problems)
    return [(cell["torch"].text, cell["cuda"].text) for cell in cells(fields, windows)]


@pytest.fixture(scope="module")
def components(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Component]:
    tree = Tree(tmp_path_factory.mktemp("window"))
    for number, name in enumerate(("torch", "cuda")):
        versions = "".join(
            f'  - {{version: "{version}"}}\n' for version in sorted({pair[number] for pair in PAIRS})
        )
        tree.component(name, f"summary: x\nstage_order: {number + 1}\nreleases:\n{versions}")
    return dict(tree.catalog().components)


@settings(deadline=None)
@given(st.sets(st.sampled_from(PAIRS)), st.integers(1, 4))
def test_a_window_is_the_newest_that_resolve_and_grows_with_their_number(
    components: dict[str, Component], resolving: set[tuple[str, str]], newest: int
) -> None:
    every = sorted({cuda for _, cuda in PAIRS})
    of_torch = [
        selected(components, f"torch: {{newest: {number}}}\ncuda: {every}", resolving)
        for number in (newest, newest + 1)
    ]
    of_cuda = [
        selected(components, f"torch: {{newest: 9}}\ncuda: {{newest: {number}, in: torch}}", resolving)
        for number in (newest, newest + 1)
    ]
    torches = sorted({torch for torch, _ in resolving}, reverse=True)[:newest]
    cudas = {
        (torch, cuda)
        for torch, _ in PAIRS
        for cuda in sorted((cuda for other, cuda in resolving if other == torch), reverse=True)[:newest]
    }

    assert set(of_torch[0]) == {pair for pair in resolving if pair[0] in torches}
    assert set(of_cuda[0]) == cudas
    assert set(of_torch[0]) <= set(of_torch[1])
    assert set(of_cuda[0]) <= set(of_cuda[1])
