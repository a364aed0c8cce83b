"""Parts that are not the newest known, and what the newest would take."""

from dataclasses import replace
from pathlib import Path

from bakehouse.catalog.component import Requirement
from bakehouse.catalog.python_lock import Package
from bakehouse.catalog.requirements_file import RequirementsFile, RequirementsFiles
from bakehouse.plan.workspace import open_workspace, select
from bakehouse.resolve import outdated
from bakehouse.resolve.resolver import resolve
from tests.support.trees import Tree


def table(tree: Tree) -> str:
    return outdated.table("small", outdated.find_outdated(tree.resolve(), tree.catalog()))


def test_an_image_with_the_newest_of_everything_says_so(tree: Tree) -> None:
    tree.image('summary: x\nbase: debian\ncomponents: {toolkit: "*"}\n')

    assert table(tree) == "small: every component is the newest known\n"


def test_what_a_newer_release_would_take_is_reported(tree: Tree) -> None:
    tree.image('summary: x\nbase: debian\ncomponents: {torch: "2.8.0", python: "3.12"}\n')

    change = "python 3.12 → 3.11, torch 2.8.0 → 2.9.0"
    assert table(tree).splitlines()[1:] == [
        f"  torch 2.8.0  newest 2.9.0  2.9.0 is possible with {change}  images/small.yaml:3"
    ]


def test_what_holds_a_component_back_is_reported(tree: Tree) -> None:
    tree.component("app", 'summary: App\nreleases: [{version: "1", requires: {torch: "2.8.0"}}]\n')
    tree.image('summary: x\nbase: debian\ncomponents: {app: "*", python: "3.11"}\n')

    why = "2.9.0 does not fit any version of app: app 1 needs torch 2.8.0, not 2.9.0"
    assert [line.split("  ")[1:5] for line in table(tree).splitlines()[1:]] == [
        ["python 3.11", "newest 3.12", " 3.12 fits if the image requests it", ""],
        ["torch 2.8.0", "newest 2.9.0", why, "components/app/component.yaml:2"],
    ]


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


def test_the_lock_of_the_requirements_holds_nothing_back(tmp_path: Path) -> None:
    """`bake lock` makes it again, except for what the requirements themselves limit."""
    workspace = open_workspace()
    [own] = select(workspace, ["pytorch-cpu"]).recipes
    place, file = own.location, tmp_path / "requirements.txt"
    own = replace(
        own,
        components=(Requirement("python", "==3.12.*", place), Requirement("pytorch", "==2.13.0", place)),
        content=replace(own.content, packages=(Package("torch", "2.13.0+cpu", "", "", 0, place),)),
        requirements=RequirementsFiles((RequirementsFile(file, place),)),
    )
    verdicts = []
    for text in ("accelerate", "torch>=2", "torch==2.13.0"):
        file.write_text(f"{text}\n")
        components = outdated.find_outdated(resolve(own, workspace.catalog), workspace.catalog)
        found = {component.choice.name: component.answer[0].text for component in components}
        verdicts.append(found["pytorch"])
        # Nor does an upgrade need a build for GPUs
        assert not any(" of pytorch → cu" in verdict for verdict in found.values())

    change = "2.15.0 is possible with pytorch 2.13.0 → 2.15.0, an updated lock of the requirements"
    assert verdicts[:2] == [change] * 2
    assert verdicts[2].startswith("2.15.0 does not fit the requirements: ")
