"""Collects what the table and the pages of images report, and keeps them up to date."""

from collections.abc import Iterable
from difflib import unified_diff
from pathlib import Path

from bakehouse.build import run_log
from bakehouse.build.run_log import Level
from bakehouse.catalog.recipe import Recipe
from bakehouse.cli.image_page import ImagePage, page
from bakehouse.cli.image_table import BANNER, ImageRow, table
from bakehouse.errors import Diagnostic, StaleError
from bakehouse.plan.dockerfile import PAGE, RenderedFile
from bakehouse.plan.model import Image
from bakehouse.plan.planner import make_plan
from bakehouse.plan.workspace import Workspace, select_own
from bakehouse.publish import releases
from bakehouse.resolve.resolver import Resolution, Unsatisfiable, resolve
from bakehouse.util.files import is_file, write_whole

_MAX_LINES = 20


def collect_rows(
    workspace: Workspace, recipes: Iterable[Recipe], *, committed: bool = False
) -> tuple[ImageRow, ...]:
    """Return each recipe as it resolves now, with the furthest run of exactly that; `committed` runs only."""
    resolutions = [(recipe, _resolved(recipe, workspace)) for recipe in recipes]
    project = workspace.project
    runs = run_log.load_runs(project.images)
    if not committed:
        runs = run_log.merge_runs(runs, run_log.load_runs(project.state))
    plan = make_plan(
        [resolution for _, resolution in resolutions if resolution],
        workspace.templates,
        project.region,
        workspace.apt_locks,
    )
    levels = {
        image.name: (run_log.level(image, runs), run_log.outdated_run(image, runs)) for image in plan.images
    }
    return tuple(
        ImageRow(recipe, resolution, *levels.get(recipe.name, (Level.RENDERED, None)))
        for recipe, resolution in resolutions
    )


def _resolved(recipe: Recipe, workspace: Workspace) -> Resolution | None:
    try:
        return resolve(recipe, workspace.catalog)
    except Unsatisfiable:
        return None


def pages(workspace: Workspace, images: Iterable[Image]) -> tuple[RenderedFile, ...]:
    """Return the page of each image, with the runs and releases that are recorded below `images/`."""
    directory = workspace.project.images
    runs = run_log.load_runs(directory)
    return tuple(
        RenderedFile(
            f"{image.name}/{PAGE}",
            page(
                ImagePage(
                    image,
                    run_log.level(image, runs),
                    run_log.outdated_run(image, runs),
                    releases.load(directory / image.name / "releases.json"),
                )
            ).encode(),
        )
        for image in images
    )


def record_runs(workspace: Workspace) -> None:
    """Copy the runs of this machine to `images/`, in a project that keeps the table."""
    project = workspace.project
    if _is_kept(_path(workspace)):
        run_log.record_runs(project.images, run_log.load_runs(project.state), project.state / "locks")


def write_table(workspace: Workspace) -> bool:
    """Update the table where the project keeps one; return whether it changed."""
    path = _path(workspace)
    if not _is_kept(path):
        return False
    text = table(collect_rows(workspace, select_own(workspace), committed=True))
    if path.read_text(encoding="utf-8") == text:
        return False
    write_whole(path, text)
    return True


def check_table(workspace: Workspace) -> None:
    """Raise StaleError where the project keeps the table and it is out of date."""
    path = _path(workspace)
    if not _is_kept(path):
        return
    text = table(collect_rows(workspace, select_own(workspace), committed=True))
    lines = path.read_text(encoding="utf-8").splitlines()
    difference = list(unified_diff(lines, text.splitlines(), lineterm="", n=0))[2:]
    if difference:
        hint = "run `bake render` and commit the result"
        message = f"`images/{PAGE}` is out of date"
        raise StaleError(Diagnostic(message, tail=tuple(difference[:_MAX_LINES]), hint=hint))


def _path(workspace: Workspace) -> Path:
    return workspace.project.images / PAGE


def _is_kept(path: Path) -> bool:
    """Return whether a file is the table, or empty to become one, and not another file of the user."""
    if not is_file(path):
        return False
    text = path.read_text(encoding="utf-8", errors="replace")
    return not text.strip() or text.startswith(BANNER)
