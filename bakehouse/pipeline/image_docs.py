"""Collects what the table and the pages of images report, and keeps them up to date."""

from collections.abc import Iterable
from difflib import unified_diff
from pathlib import Path

from bakehouse.catalog.project import ProjectSettings
from bakehouse.catalog.recipe import Recipe
from bakehouse.errors import StaleError
from bakehouse.evidence import page_rows, step_layers
from bakehouse.evidence.image_state import ImageState, known_layers, state_of
from bakehouse.evidence.page_rows import PageRows, page_checks
from bakehouse.evidence.step_layers import RowsByKey
from bakehouse.ledger import image_uris, releases
from bakehouse.ledger.releases import ReleaseRecord
from bakehouse.pipeline.image_page import ImagePage, page
from bakehouse.pipeline.image_table import BANNER, ImageRow, Tests, table
from bakehouse.plan.dockerfile import PAGE, RenderedFile
from bakehouse.plan.model import Image
from bakehouse.plan.workspace import Workspace, plan_resolutions, select_own
from bakehouse.resolve.resolver import Resolution, Unsatisfiable, resolve
from bakehouse.util.files import is_file, read_text, write_whole
from bakehouse.util.oci import is_loopback
from bakehouse.util.terminal import Reporter

_MAX_LINES = 20


def collect_rows(
    workspace: Workspace,
    recipes: Iterable[Recipe],
    resolutions: Iterable[Resolution] = (),
    images: Iterable[Image] = (),
    *,
    committed: bool = False,
) -> tuple[ImageRow, ...]:
    """Return a row for each recipe, with its current versions and the state of its layers.

    `resolutions` and `images` are what the command has resolved and planned already. With `committed`, only
    committed results count.
    """
    project = workspace.project
    layers, checks = known_layers(project, committed=committed), page_rows.read(project)
    given = {resolution.recipe.name: resolution for resolution in resolutions}
    planned = {image.name: image for image in images}
    by_recipe = [(recipe, given.get(recipe.name) or resolved(recipe, workspace)) for recipe in recipes]
    rest = [resolution for recipe, resolution in by_recipe if resolution and recipe.name not in planned]
    planned |= {image.name: image for image in plan_resolutions(workspace, rest).images}
    return tuple(
        ImageRow(
            recipe,
            resolution,
            state_of(planned[recipe.name], layers) if resolution else ImageState(0),
            planned[recipe.name].known if resolution else None,
            _tests(project, planned[recipe.name], layers, checks, committed) if resolution else Tests(),
            project.commits(recipe.name),
        )
        for recipe, resolution in by_recipe
    )


def _tests(
    project: ProjectSettings, image: Image, layers: RowsByKey, checks: PageRows, committed: bool
) -> Tests:
    state = page_checks(project, image, layers, checks, committed=committed)
    setups = {check.setup for check in state.checks if check.date}
    gpus = any(setup.gpus for setup in setups)
    place = "on other machines" if any(setup.is_remote for setup in setups) else "in local containers"
    text = f"{state.summary}, {place}" if state.summary else ""
    return Tests(text, image.gpu and not gpus)


def resolved(recipe: Recipe, workspace: Workspace) -> Resolution | None:
    """Return the versions of a recipe; None if none satisfy it."""
    try:
        return resolve(recipe, workspace.catalog)
    except Unsatisfiable:
        return None


def pages(workspace: Workspace, images: Iterable[Image]) -> tuple[RenderedFile, ...]:
    """Return the page of each image, with the results and releases that are recorded below `images/`.

    Releases in a registry of this machine are left out, because readers of the page cannot pull them.
    """
    project = workspace.project
    layers, checks = known_layers(project, committed=True), page_rows.read(project)
    return tuple(
        RenderedFile(
            f"{image.name}/{PAGE}",
            page(
                ImagePage(
                    image,
                    state_of(image, layers),
                    _shared_release(project, image.name),
                    page_checks(project, image, layers, checks, committed=True),
                )
            ).encode(),
        )
        for image in images
    )


def _shared_release(project: ProjectSettings, image: str) -> ReleaseRecord | None:
    records = releases.load(project.images / image / "releases.json")
    return image_uris.current(project, [record for record in records if not is_loopback(record.registry)])


def update_pages(workspace: Workspace, images: Iterable[Image]) -> None:
    """Update the rendered pages of images that were published."""
    for file in pages(workspace, images):
        path = workspace.project.images / file.path
        if is_file(path):
            write_whole(path, file.content.decode())


def write_results(workspace: Workspace, images: Iterable[Image], report: Reporter) -> None:
    """Copy layers of steps and results of checks to `images/`, in a project that keeps the table."""
    project, images = workspace.project, tuple(images)
    if not _is_kept(_path(workspace)):
        return
    rows = step_layers.asked(step_layers.read(project.images) | step_layers.read(project.state), images)
    texts = {
        step_layers.FILE: step_layers.text_of(rows) if rows else "",
        page_rows.FILE: page_rows.text(project, images, step_layers.by_key(rows)),
    }
    for name, text in texts.items():
        path = project.images / name
        if (text or is_file(path)) and not (is_file(path) and read_text(path) == text):
            write_whole(path, text)
            report(f"wrote images/{name}")
    attributes = project.images / ".gitattributes"
    lines = read_text(attributes, errors="replace") if is_file(attributes) else ""
    unions = (f"{name} merge=union\n" for name, text in texts.items() if text)
    if missing := [line for line in unions if line not in lines]:
        write_whole(attributes, "".join([lines, *missing]))


def write_table(
    workspace: Workspace, resolutions: Iterable[Resolution] = (), images: Iterable[Image] = ()
) -> bool:
    """Update the table where the project keeps one; return whether it changed."""
    old, new = _texts(workspace, resolutions, images)
    if old == new:
        return False
    write_whole(_path(workspace), new)
    return True


def check_table(
    workspace: Workspace, resolutions: Iterable[Resolution] = (), images: Iterable[Image] = ()
) -> None:
    """Raise StaleError where the project keeps the table and it is out of date."""
    check_text(PAGE, *_texts(workspace, resolutions, images))


def check_text(name: str, old: str, new: str) -> None:
    """Raise StaleError with a diff if a file of all images is out of date."""
    difference = list(unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=0))[2:]
    if difference:
        raise StaleError(
            f"`images/{name}` is out of date",
            tail=tuple(difference[:_MAX_LINES]),
            hint="run `bake render` and commit the result",
        )


def _texts(
    workspace: Workspace, resolutions: Iterable[Resolution], images: Iterable[Image]
) -> tuple[str, str]:
    """Return the table as it is and as it should be; both empty if the project keeps none."""
    path = _path(workspace)
    if not _is_kept(path):
        return "", ""
    rows = collect_rows(workspace, select_own(workspace).recipes, resolutions, images, committed=True)
    return read_text(path), table(rows)


def _path(workspace: Workspace) -> Path:
    return workspace.project.images / PAGE


def _is_kept(path: Path) -> bool:
    """Return whether a file is the table or an empty file that becomes it, not another file of the user."""
    if not is_file(path):
        return False
    text = read_text(path, errors="replace")
    return not text.strip() or text.startswith(BANNER)
