"""Differences between two resolutions and between two commits."""

import pytest

from bakehouse.errors import UsageError
from bakehouse.resolve import diff
from tests.conftest import COMPONENTS, SHA, Tree

HEAD = "summary: x\nbase: debian\n"


def compared(tree: Tree, first: str, second: str) -> str:
    tree.image(HEAD + first)
    before = tree.resolve()
    tree.image(HEAD + second)
    return diff.compare(before, tree.resolve())


def test_parts_that_came_went_and_changed_are_reported(tree: Tree) -> None:
    text = compared(tree, 'components: {torch: "*", toolkit: "*"}\n', 'components: {torch: "2.8.0"}\n')

    assert (
        text
        == """\
  ~ python 3.11 → 3.12
  ~ torch 2.9.0 (cpu-py311) → 2.8.0
  - toolkit 5.1
"""
    )


def test_what_a_component_provides_is_reported_where_its_version_is_the_same(tree: Tree) -> None:
    text = compared(
        tree,
        'components: {torch: "2.9.0"}\nvariants: {torch: "cpu*"}\n',
        'components: {torch: "2.9.0"}\nvariants: {torch: "cu*"}\n',
    )

    assert (
        text
        == """\
  ~ torch 2.9.0 (cpu-py311) → 2.9.0 (cu128-py311)
      provides cuda none → 12.8
"""
    )


def test_images_that_are_the_same_have_no_differences(tree: Tree) -> None:
    same = 'components: {torch: "*"}\n'

    assert compared(tree, same, same) == ""


def test_python_packages_are_reported_with_their_weight(tree: Tree) -> None:
    six = f"six==1.17 --hash=sha256:{SHA}  # s.whl 9\n"
    for name, size, extra in (("old", 1_000_000, ""), ("new", 3_000_000, six)):
        line = f"numpy=={len(name)}.{size} --hash=sha256:{SHA}  # n.whl {size}\n"
        tree.write(f"components/toolkit/{name}.txt", line + extra)
    tree.component(
        "toolkit",
        """\
summary: T
releases:
  - {version: "2", lock: new.txt}
  - {version: "1", lock: old.txt}
""",
    )
    text = compared(tree, 'components: {toolkit: "1"}\n', 'components: {toolkit: "2"}\n')

    assert (
        text
        == """\
  ~ toolkit 1 → 2  1.0 MB → 3.0 MB of Python packages
  2 Python packages differ; download size: 1.0 MB → 3.0 MB
      numpy 3.1000000 → 3.3000000
      + six 1.17
"""
    )


def test_images_of_two_commits_are_compared_by_name(tree: Tree) -> None:
    before, old = tree.recipes(), tree.catalog()
    tree.component("toolkit", COMPONENTS["toolkit"].replace("5.1", "5.2"))
    tree.image(HEAD + "components: {python: '*'}\n", "other")

    assert (
        diff.history_text(diff.history(before, old, tree.recipes(), tree.catalog(), "*"))
        == """\
small
  ~ toolkit 5.1 → 5.2

+ image other
"""
    )


def test_unknown_images_are_reported(tree: Tree) -> None:
    with pytest.raises(UsageError) as caught:
        diff.history(tree.recipes(), tree.catalog(), tree.recipes(), tree.catalog(), "smal")

    [diagnostic] = caught.value.diagnostics
    assert (diagnostic.message, diagnostic.hint) == (
        "there is no image `smal` at either commit",
        "did you mean `small`?",
    )
