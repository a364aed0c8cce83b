"""The Python API: a project as an object."""

import subprocess
import sys
from pathlib import Path

import pytest

from bakehouse.api import BakehouseError, Project
from bakehouse.catalog.project import HOME
from tests.support.programs import BAKE

RECIPE = 'summary: Own image\nbase: {debian: "12"}\ncomponents: {python: "*"}\n'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text('[tool.bakehouse]\nrecipes = ["recipes"]\n')
    images = tmp_path / "recipes/images"
    images.mkdir(parents=True)
    (images / "own.yaml").write_text(RECIPE)
    return tmp_path


def test_it_resolves_as_the_command_does(root: Path) -> None:
    command = subprocess.run([*BAKE, "resolve", "own"], cwd=root, capture_output=True, text=True, check=True)

    [resolution] = Project(root).resolve("own")

    assert resolution.version_of("python") == "3.11"
    assert "python 3.11" in command.stdout


def test_it_renders_the_images_of_the_project(root: Path) -> None:
    lines: list[str] = []

    Project(root, report=lines.append).render()

    assert (root / "images/own/Dockerfile").is_file()
    assert "wrote images/README.md" in lines


def test_a_directory_below_belongs_to_the_project(root: Path) -> None:
    [resolution] = Project(root / "recipes/images").resolve()

    assert resolution.recipe.name == "own"


def test_mistakes_are_exceptions_with_the_hints_of_the_command_line(root: Path) -> None:
    with pytest.raises(BakehouseError) as caught:
        Project(root).resolve("onw")

    [mistake] = caught.value.diagnostics
    assert (mistake.message, mistake.hint) == ("no image or family matches `onw`", "did you mean `own`?")


def test_an_image_without_a_release_has_no_uri(root: Path) -> None:
    with pytest.raises(BakehouseError, match="`own` has not been released yet"):
        Project(root).uri("own")


def test_it_does_not_import_the_command_line() -> None:
    code = (
        "import sys, bakehouse.api; print([name for name in sys.modules if name.startswith('bakehouse.cli')])"
    )

    result = subprocess.run(
        [sys.executable, "-c", code], cwd=HOME, capture_output=True, text=True, check=True
    )

    assert result.stdout == "[]\n"


def test_the_package_has_types() -> None:
    assert (HOME / "bakehouse/py.typed").is_file()
