"""The mistakes in `mistakes` that are about the real catalogue: a command and a recipe in, the answer out.

Such a directory has a `command.txt` with the arguments of `bake`; its `mine.yaml` is the image of a user.
Lines of the catalogue's files are not held: the catalogue grows.
"""

import re
import shutil
from functools import cache
from pathlib import Path

import pytest

from bakehouse.catalog import project
from bakehouse.catalog.catalog import Catalog, load_catalog
from bakehouse.catalog.project import HOME
from bakehouse.catalog.recipe import Recipe, load_recipes, read_recipes
from bakehouse.cli import main
from bakehouse.errors import Problems, RecipeError
from bakehouse.plan import workspace
from bakehouse.plan.workspace import Workspace, conflict_text, read_templates

MISTAKES = Path(__file__).parents[1] / "mistakes"
SLUGS = sorted(path.parent.name for path in MISTAKES.glob("*/command.txt"))
PROJECT = '[tool.bakehouse]\nrecipes = ["recipes"]\n'
PLACE = re.compile(r"(recipes/components/[a-z0-9-]+/[a-z./-]+):[0-9]+(:[0-9]+)?")


@cache
def catalogue() -> tuple[Catalog, dict[str, Recipe]]:
    problems = Problems()
    catalog = load_catalog([HOME / "recipes"], problems)
    recipes = load_recipes([HOME / "recipes"], catalog, problems, refusal_of=conflict_text)
    problems.raise_as(RecipeError)
    return catalog, recipes


def opened(start: Path | None = None) -> Workspace:
    """The project of the current directory over the real catalogue, which is read once for all tests."""
    settings, problems = project.find(Path.cwd()), Problems()
    catalog, recipes = catalogue()
    mine = read_recipes(settings.recipe_roots[1:], catalog, project=settings.root)
    for broken in mine.broken:
        problems.extend(broken.mistakes)
    problems.raise_as(RecipeError)
    by_name = {**recipes, **mine.by_name}
    return Workspace(settings, catalog, by_name, read_templates(HOME / "templates"))


@pytest.mark.parametrize("slug", SLUGS)
def test_a_mistake_gets_its_answer(
    slug: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    directory = MISTAKES / slug
    images = tmp_path / "recipes" / "images"
    images.mkdir(parents=True)
    for path in (*directory.glob("*.yaml"), *directory.glob("*.lock")):
        shutil.copy(path, images)
    settings_file = directory / "project.toml"
    (tmp_path / "pyproject.toml").write_text(
        settings_file.read_text() if settings_file.is_file() else PROJECT
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("GITHUB_ACTIONS", "")
    monkeypatch.setattr(workspace, "open_workspace", opened)
    code = main.run((directory / "command.txt").read_text().split())
    errors = capsys.readouterr().err.replace(f"{HOME}/", "")
    errors = PLACE.sub(r"\1:…", errors)
    text = f"{errors}\nexit code {code}\n"
    expected = directory / "expected.txt"
    if request.config.getoption("--update-snapshots"):
        expected.write_text(text, encoding="utf-8")

    assert text == expected.read_text(encoding="utf-8")


def test_there_are_many() -> None:
    assert len(SLUGS) >= 40
