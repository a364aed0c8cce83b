"""`clean` of a project whose tags another project moved in the same engine."""

import contextlib
from pathlib import Path

import docker
import pytest

from bakehouse.builder import image_owners
from bakehouse.cli import clean
from bakehouse.engine import tar
from bakehouse.plan.model import Image
from bakehouse.plan.workspace import Workspace, open_workspace, select
from tests.support.programs import remove_images
from tests.support.trees import Tree

pytestmark = pytest.mark.engine


def project(root: Path, name: str, python: str) -> tuple[Workspace, Image]:
    tree = Tree(root)
    tree.write("pyproject.toml", '[tool.bakehouse]\nrecipes = ["mine"]\n')
    recipe = f'summary: x\nbase: {{debian: "12"}}\ncomponents: {{python: "{python}"}}\n'
    tree.write(f"mine/images/{name}.yaml", recipe)
    workspace = open_workspace(tree.root)
    return workspace, select(workspace, [name]).plan.images[0]


def build(workspace: Workspace, image: Image) -> None:
    """Create an image as a build does, without the content."""
    image_owners.record(workspace.project, image.names)
    repository, _, tag = image.reference.partition(":")
    with contextlib.closing(docker.from_env()) as client:
        changes = [f"ENV BUILT={image.key}"]
        client.api.import_image_from_data(tar.pack({}), repository=repository, tag=tag, changes=changes)
        stored = client.images.get(image.reference)
        stored.tag(image.names[1])
    image_owners.record(workspace.project, {image_owners.digest_name(image.reference, str(stored.id))})


@pytest.mark.parametrize("one_user", [True, False])
def test_clean_keeps_the_tag_that_another_project_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unique: str, one_user: bool
) -> None:
    name = f"churn-{unique[:8]}"
    monkeypatch.setenv("BAKEHOUSE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    first, own = project(tmp_path / "first", name, "3.11")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / ("state" if one_user else "other-state")))
    second, other = project(tmp_path / "second", name, "3.12")
    try:
        build(first, own)
        build(second, other)
        lines: list[str] = []
        clean.run(first, lines.append, everything=True)

        reason = f"{second.project.root} built" if one_user else "this project did not build"
        assert [line for line in lines if " image " in line] == [
            f"removed image {own.reference}",
            f"kept image {own.names[1]}, which {reason}",
        ]
        lines.clear()
        clean.run(second, lines.append, everything=True)
        assert [line for line in lines if " image " in line] == [
            f"removed image {tag}" for tag in sorted(other.names)
        ]
    finally:
        remove_images(name)
