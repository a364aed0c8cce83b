"""One recipe that stands for many images, one variant that stands for many."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakehouse.catalog.matrix import substituted
from bakehouse.errors import Location, Problems, RecipeError
from bakehouse.util.yaml_reader import Scalar
from tests.support.trees import Tree

TORCH = """\
summary: PyTorch
stage_order: 40
releases:
  - version: "2.9.0"
    variants:
      - name: cpu-py${python|tag}
        matrix: {python: ["3.11", "3.12"]}
        requires: {python: "${python}"}
"""
MATRIX = """\
summary: For Python ${python}
name: small-py${python|tag}
matrix:
  python: ["3.11", "3.12"]
base: {debian: "12"}
components: {python: "${python}", torch: "*"}
"""


def matrix(tree: Tree, axes: str, name: str = "x-${a}-${b}") -> list[str]:
    tree.image(f"summary: x\nname: {name}\nmatrix:\n{axes}base: debian\n")
    return [*tree.recipes()]


def test_each_gives_a_variant_for_every_value(tree: Tree) -> None:
    tree.component("torch", TORCH)
    [release] = tree.catalog().components["torch"].releases

    assert [(variant.name, variant.spec.requires[0].specifier) for variant in release.variants] == [
        ("cpu-py311", "==3.11.*"),
        ("cpu-py312", "==3.12.*"),
    ]


def test_a_recipe_gives_an_image_for_every_cell(tree: Tree) -> None:
    tree.component("torch", TORCH)
    tree.image(MATRIX)

    assert {name: recipe.summary for name, recipe in tree.recipes().items()} == {
        "small-py311": "For Python 3.11",
        "small-py312": "For Python 3.12",
    }
    assert tree.chosen("small-py312")["torch"] == "2.9.0 (cpu-py312)"


def test_the_images_of_a_matrix_know_their_family(tree: Tree) -> None:
    tree.component("torch", TORCH)
    tree.image(MATRIX, "family")
    recipes = tree.recipes()

    assert recipes["small-py311"].family == recipes["small-py312"].family == "family"


def test_a_value_is_shown_where_it_stands(tree: Tree) -> None:
    tree.component("torch", TORCH)
    tree.image(MATRIX)

    components = {component.name: component for component in tree.recipes()["small-py312"].components}

    assert (components["python"].location.line, components["python"].location.column) == (4, 20)


def test_axes_multiply_and_their_items_may_set_several_variables(tree: Tree) -> None:
    axes = '  a: ["1", "2"]\n  rest: [{b: x, c: "3"}, {b: y, c: "4"}]\n'

    assert matrix(tree, axes, "x-${a}-${b}-${c}") == ["x-1-x-3", "x-1-y-4", "x-2-x-3", "x-2-y-4"]


def test_excluded_cells_are_those_all_of_whose_patterns_match(tree: Tree) -> None:
    axes = '  a: ["1", "2"]\n  b: [x1, x2, y1]\n  exclude: [{a: "1", b: "x*"}]\n'

    assert matrix(tree, axes) == ["x-1-y1", "x-2-x1", "x-2-x2", "x-2-y1"]


def test_included_cells_come_after_what_was_excluded(tree: Tree) -> None:
    axes = '  a: ["1"]\n  b: [x, y]\n  exclude: [{b: x}]\n  include: [{a: "9", b: x}]\n'

    assert matrix(tree, axes) == ["x-1-y", "x-9-x"]


def test_a_recipe_without_a_matrix_keeps_what_looks_like_a_variable(tree: Tree) -> None:
    tree.image('summary: x\nbase: debian\nrun: ["echo ${HOME}"]\n')

    assert [*map(str, tree.recipes()["small"].content.run)] == ["echo ${HOME}"]


def test_two_dollars_keep_a_brace(tree: Tree) -> None:
    tree.image(
        'summary: x\nname: x-${a}\nmatrix: {a: ["1"]}\nbase: debian\nrun: ["echo $${HOME} ${a} $HOME"]\n'
    )

    assert [*map(str, tree.recipes()["x-1"].content.run)] == ["echo ${HOME} 1 $HOME"]


def test_the_filters(tree: Tree) -> None:
    tree.image(
        'summary: x\nname: x-${a|tag}-${a|minor}-${a|minor|tag}\nmatrix: {a: ["12.8.1"]}\nbase: debian\n'
    )

    assert [*tree.recipes()] == ["x-1281-12.8-128"]


@given(st.text(st.characters(exclude_characters="$"), max_size=30))
def test_a_text_without_a_dollar_is_itself(text: str) -> None:
    problems = Problems()
    scalar = Scalar(text, Location(Path("x.yaml"), 1, 1))

    assert substituted(scalar, {"a": scalar}, problems) is scalar
    assert not problems


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ("  a: x\n  b: [y]\n", "axis `a` must be a list of values"),
        ("  a: []\n  b: [y]\n", "axis `a` must be a list of values"),
        ("  a: [x]\n  b: [y]\n  exclude: [{c: x}]\n", "unknown variable `c`"),
        ("  a: [x]\n  b: [y]\n  exclude: [{a: z}]\n", "this item excludes nothing"),
        ("  a: [x]\n  b: [y]\n  exclude: [{a: x}]\n", "the matrix has no combinations left"),
        ("  a: [x]\n  b: [y]\n  include: [{a: z}]\n", "an item of `include` does not set `b`"),
        ("  a: [{a: x, b: y}, {a: z}]\n", "the items of axis `a` set different variables"),
        ("  a: [{a: x, b: y}]\n  b: [z]\n", "two axes set `b`"),
        ("  a: [x, x]\n  b: [y]\n", "two images are called `x-x-y`"),
        ("  a: [[x]]\n  b: [y]\n", "an item of axis `a` must be a mapping of names to values"),
        ("  a: [x]\n", "unknown variable `b`"),
        ("  a: [X]\n  b: [y]\n", "`x-X-y` is not an image name"),
        ("  a: [x]\n  b: [y]\n  include: {a: x}\n", "`include` must be a list"),
        (
            f"  a: [{','.join('1' for _ in range(40))}]\n  b: [{','.join('1' for _ in range(40))}]\n",
            "1,600 combinations",
        ),
    ],
)
def test_mistakes_in_a_matrix_are_reported(tree: Tree, axes: str, message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        matrix(tree, axes)

    assert any(diagnostic.message.startswith(message) for diagnostic in caught.value.diagnostics), (
        caught.value
    )
    assert all(diagnostic.location for diagnostic in caught.value.diagnostics)


def test_a_mistake_in_all_cells_is_reported_once(tree: Tree) -> None:
    tree.image(MATRIX + "colour: red\n")

    with pytest.raises(RecipeError) as caught:
        tree.recipes()

    assert [diagnostic.message for diagnostic in caught.value.diagnostics] == [
        "unknown key `colour` in image `small`"
    ]


@pytest.mark.parametrize("name", ["x-${stack}", "x-${a|tga}"])
def test_a_wrong_variable_is_one_mistake_whose_hint_names_what_exists(tree: Tree, name: str) -> None:
    with pytest.raises(RecipeError) as raised:
        matrix(tree, '  a: ["1", "2"]\n', name)

    [diagnostic] = raised.value.diagnostics
    assert diagnostic.message.startswith(("unknown variable `stack`", "unknown filter `tga`"))
    assert diagnostic.hint in ("use `a`", "use one of `minor`, `tag`")


def test_an_unknown_filter_is_reported(tree: Tree) -> None:
    tree.image(MATRIX.replace("|tag", "|tags"))

    assert tree.mistakes() == (
        "error: unknown filter `tags`\n"
        "  --> images/small.yaml:2:7\n"
        "   |\n"
        " 2 | name: small-py${python|tags}\n"
        "   |       ^^^^^^^^^^^^^^^^^^^^^^\n"
        "\n"
        "hint: did you mean `tag`?\n"
    )


def test_a_matrix_needs_a_name(tree: Tree) -> None:
    tree.image("summary: x\nmatrix: {a: [x]}\nbase: debian\n")

    with pytest.raises(RecipeError, match="a recipe with a matrix needs a `name` for its images"):
        tree.recipes()


def test_a_name_without_a_matrix_is_reported(tree: Tree) -> None:
    tree.image("summary: x\nname: other\nbase: debian\n")

    with pytest.raises(RecipeError, match="only a recipe with a matrix has a `name`"):
        tree.recipes()


def test_two_recipes_with_one_image_are_reported(tree: Tree) -> None:
    tree.image("summary: x\nname: small\nmatrix: {a: [x]}\nbase: debian\n", "other")
    tree.image("summary: x\nbase: debian\n", "small")

    with pytest.raises(RecipeError, match="two images are called `small`"):
        tree.recipes()


def test_variants_of_one_each_need_names_of_their_own(tree: Tree) -> None:
    tree.component("torch", TORCH.replace("cpu-py${python|tag}", "cpu"))

    with pytest.raises(RecipeError, match="two variants of one `matrix` have the same name"):
        tree.catalog()
