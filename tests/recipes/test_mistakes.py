"""One directory for each mistake a user can make: files in, the whole output and the exit code out.

A directory extends the small catalogue of `conftest`; `pytest --update-snapshots` rewrites the output.
"""

import io
import os
import shutil
from pathlib import Path

import pytest

from bakehouse.catalog import project
from bakehouse.catalog.catalog import load_catalog
from bakehouse.catalog.recipe import Recipe, load_recipes
from bakehouse.cli.diagnostics import write_failure
from bakehouse.errors import BakehouseError, ConflictError, Problems, RecipeError
from bakehouse.plan import dockerfile
from bakehouse.plan.dockerfile import RenderedFile
from bakehouse.plan.planner import make_plan
from bakehouse.resolve import conflict_report
from bakehouse.resolve.resolver import Unsatisfiable, resolve
from tests.support.mistakes import MISTAKES
from tests.support.trees import COMPONENTS, IMAGE, TEMPLATE, Tree, templates

SLUGS = sorted(path.name for path in MISTAKES.iterdir() if not (path / "command.txt").exists())
"""Mistakes with a command use the real catalogue: see `test_catalogue_mistakes`."""
CONTROL_FILES = ("expected.txt", "environment.txt", "project.toml", "remove.txt", "special.txt")
MADE = {
    "hundred-thousand-brackets": b"[" * 100_000,
    "file-too-large": b"summary: " + b"x" * 1_000_000,
    "too-many-values": b"summary: x\nrun:\n" + b"- x\n" * 10_000,
    "text-too-long": b"summary: " + b"x" * 16_001,
}


@pytest.mark.parametrize("slug", SLUGS)
def test_a_mistake_gets_its_answer(slug: str, empty: Tree, request: pytest.FixtureRequest) -> None:
    prepare(slug, empty)
    expected = MISTAKES / slug / "expected.txt"
    output = pipeline(empty.root, environment(slug), removals(slug))
    if request.config.getoption("--update-snapshots"):
        expected.write_text(output, encoding="utf-8")

    assert output == expected.read_text(encoding="utf-8")


def prepare(slug: str, tree: Tree) -> None:
    """The small catalogue with the mistake in it."""
    for name, text in COMPONENTS.items():
        tree.write(f"recipes/components/{name}/component.yaml", text)
        if name != "debian":
            tree.write(f"recipes/components/{name}/install.j2", TEMPLATE.format(name=name))
    small = tree.root / "recipes/images/small.yaml"
    if not (MISTAKES / slug / "recipes/images/small.yaml").is_dir():
        tree.write("recipes/images/small.yaml", MADE.get(slug, IMAGE.encode()))
    shutil.copytree(MISTAKES / slug, tree.root, dirs_exist_ok=True, ignore=lambda *_: CONTROL_FILES)
    # Under its own name it would be read by the tools that check this repository.
    if (mistaken := MISTAKES / slug / "project.toml").is_file():
        shutil.copy(mistaken, tree.root / "pyproject.toml")
    make_special_files(MISTAKES / slug / "special.txt", tree.root)
    assert small.exists()


def make_special_files(listing: Path, root: Path) -> None:
    """Make links and pipes, which Git or `copytree` do not keep."""
    lines = listing.read_text().splitlines() if listing.is_file() else []
    for line in lines:
        kind, name, target = f"{line} ".split(" ", 2)
        path = root / name.encode().decode("unicode_escape")
        if kind == "link":
            path.symlink_to(target.strip())
        elif kind == "pipe":
            os.mkfifo(path)
        else:
            path.write_text("")


def environment(slug: str) -> dict[str, str]:
    path = MISTAKES / slug / "environment.txt"
    lines = path.read_text().splitlines() if path.is_file() else []
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


def removals(slug: str) -> list[str]:
    path = MISTAKES / slug / "remove.txt"
    return path.read_text().splitlines() if path.is_file() else []


def pipeline(root: Path, variables: dict[str, str], removed: list[str]) -> str:
    """Return the output of `bake render --check`."""
    try:
        if (root / "pyproject.toml").is_file():
            project.find(root, variables)
        files, recipes = rendered(root)
        for file in files:
            path = root / "images" / file.path
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(file.content)
                path.chmod(0o755 if file.is_executable else 0o644)
        for name in removed:
            (root / name).unlink()
        dockerfile.check_files(files, root / "images", recipes)
    except BakehouseError as error:
        stream = io.StringIO()
        write_failure(error, stream, {})
        return f"{stream.getvalue()}\nexit code {error.exit_code}\n"
    return "no mistake was found\n"


def rendered(root: Path) -> tuple[tuple[RenderedFile, ...], dict[str, Recipe]]:
    problems = Problems()
    catalog = load_catalog([root / "recipes"], problems)
    recipes = load_recipes([root / "recipes"], catalog, problems)
    problems.raise_as(RecipeError)
    resolutions = []
    for recipe in recipes.values():
        try:
            resolutions.append(resolve(recipe, catalog))
        except Unsatisfiable as nothing:
            error = conflict_report.conflict_error(nothing.conflict, catalog)
            problems.extend(error.diagnostics)
    problems.raise_as(ConflictError)
    return dockerfile.render(make_plan(resolutions, templates()), templates()), recipes
