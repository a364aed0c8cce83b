"""Parts that are not the newest known, and what the newest would take."""

from bakehouse.resolve import outdated
from tests.support.trees import Tree


def table(tree: Tree) -> str:
    return outdated.table("small", outdated.find_outdated(tree.resolve(), tree.catalog()))


def test_an_image_with_the_newest_of_everything_says_so(tree: Tree) -> None:
    tree.image('summary: x\nbase: debian\ncomponents: {toolkit: "*"}\n')

    assert table(tree) == "small: every component is the newest known\n"


def test_what_a_newer_release_would_take_is_reported(tree: Tree) -> None:
    tree.image('summary: x\nbase: debian\ncomponents: {torch: "2.8.0", python: "3.12"}\n')

    assert (
        table(tree)
        == """\
small
  torch 2.8.0  newest 2.9.0  fits with python 3.12 → 3.11, torch 2.8.0 → 2.9.0  images/small.yaml:3
"""
    )


def test_what_holds_a_component_back_is_reported(tree: Tree) -> None:
    tree.component("app", 'summary: App\nreleases: [{version: "1", requires: {torch: "2.8.0"}}]\n')
    tree.image('summary: x\nbase: debian\ncomponents: {app: "*", python: "3.11"}\n')

    assert (
        table(tree)
        == """\
small
  python 3.11  newest 3.12   fits with python 3.11 → 3.12        images/small.yaml:3
  torch 2.8.0  newest 2.9.0  app 1 needs torch 2.8.0, not 2.9.0  components/app/component.yaml:2
"""
    )


def test_many_images_are_summed_up(tree: Tree) -> None:
    tree.image('summary: x\nbase: debian\ncomponents: {torch: "2.8.0", python: "3.12"}\n')
    tree.image('summary: x\nbase: debian\ncomponents: {torch: "2.8.0", python: "3.11"}\n', "other")

    assert (
        outdated.summary(outdated.count_outdated([tree.resolve(), tree.resolve("other")], tree.catalog()))
        == """\
python  3.12   3.11 in 1
torch   2.9.0  2.8.0 in 2
"""
    )
