"""Images as `list --json` prints them, with values that are kept for the next process."""

from collections.abc import Sequence
from typing import Any

from bakehouse.builder import run_log
from bakehouse.catalog import cache
from bakehouse.catalog.project import HOME
from bakehouse.catalog.recipe import Recipe
from bakehouse.plan.workspace import Workspace

Json = dict[str, Any]
Facts = dict[str, tuple[Json, str | None]]
"""Values that follow from the recipe of each image, and its build key; no key if no versions satisfy it."""


def report(workspace: Workspace, recipes: Sequence[Recipe]) -> list[Json]:
    """Return the images of recipes as JSON values."""
    project = workspace.project
    if workspace.kept and len(recipes) == len(workspace.recipes):
        settings = (workspace.kept.digest, str(project.region))
        below = [
            HOME / "templates",
            *(root / name for root in project.recipe_roots for name in ("apt", "bases")),
        ]
        facts = cache.derived("images", settings, lambda: _facts(workspace, recipes), below)
    else:
        facts = _facts(workspace, recipes)
    runs = run_log.merge_runs(run_log.load_runs(project.images), run_log.load_runs(project.state))
    rows = []
    for recipe in recipes:
        row, key = facts[recipe.name]
        level = run_log.level_of(recipe.name, key, runs).value if key else None
        rows.append({**row, "committed": project.commits(recipe.name), "run": level})
    return rows


def _facts(workspace: Workspace, recipes: Sequence[Recipe]) -> Facts:
    from bakehouse.cli.json_report import warnings
    from bakehouse.pipeline import image_docs
    from bakehouse.plan.workspace import plan_resolutions, raise_failures

    resolutions = [*filter(None, (image_docs.resolved(recipe, workspace) for recipe in recipes))]
    images = plan_resolutions(workspace, resolutions).images
    raise_failures(workspace)
    rows = image_docs.collect_rows(workspace, recipes, resolutions, images)
    keys = {image.name: image.key for image in images}
    return {
        row.recipe.name: (
            {
                "image": row.recipe.name,
                "family": row.recipe.family,
                "status": row.recipe.status,
                "summary": row.recipe.summary,
                "base": row.parts[0] if row.parts else None,
                "components": list(row.parts),
                "versions": row.versions,
                "warnings": warnings(row.resolution) if row.resolution else [],
            },
            str(keys[row.recipe.name]) if row.resolution else None,
        )
        for row in rows
    }
