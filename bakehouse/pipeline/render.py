"""Rendered files of images, with their pages, the table of images and the file of keys."""

from collections.abc import Sequence

from bakehouse.ledger.store import follow_renames, require_renames_followed
from bakehouse.pipeline import image_docs
from bakehouse.plan import image_keys
from bakehouse.plan.dockerfile import RenderedFile
from bakehouse.plan.workspace import Selection, check_rendered, orphans, render_images, select_own
from bakehouse.util.files import is_file, read_text, remove_file, write_whole
from bakehouse.util.format import format_count
from bakehouse.util.terminal import Reporter


def write(selection: Selection, report: Reporter) -> tuple[RenderedFile, ...]:
    """Write the changed files of images, and return all of them."""
    workspace, plan, keyed = selection.workspace, selection.plan, _keyed(selection)
    _report_none(selection, report)
    follow_renames(workspace.project, selection.recipes, report)
    if _is_whole(selection):
        image_docs.write_results(workspace, keyed.plan.images, report)
    pages = image_docs.pages(workspace, plan.images)
    rendered = render_images(workspace, plan, report, _orphans(selection), pages)
    _write_keys(keyed, report)
    if _is_whole(selection) and image_docs.write_table(workspace, keyed.resolutions, keyed.plan.images):
        report("wrote images/README.md")
    return rendered


def summary(selection: Selection, rendered: Sequence[RenderedFile]) -> str:
    """Return the number of rendered files as a line. Copies of files of the recipes are not counted."""
    files = sum(not file.is_copy for file in rendered)
    return f"{files} files of {format_count(len(selection.plan.images), 'image')}\n"


def check(selection: Selection, report: Reporter) -> str:
    """Raise StaleError unless the files of images are up to date; return their number as a line."""
    workspace, plan, keyed = selection.workspace, selection.plan, _keyed(selection)
    _report_none(selection, report)
    require_renames_followed(workspace.project, selection.recipes)
    files = check_rendered(workspace, plan, _orphans(selection), image_docs.pages(workspace, plan.images))
    image_docs.check_text(image_keys.FILE, *_keys(keyed))
    if _is_whole(selection):
        image_docs.check_table(workspace, keyed.resolutions, keyed.plan.images)
    keys = f", and the keys of {len(keyed.plan.images)}," if workspace.project.commit else ""
    return f"{files} files of {format_count(len(plan.images), 'image')}{keys} are up to date\n"


def _keyed(selection: Selection) -> Selection:
    """Return the images whose keys are kept: the selected ones, or all if only some are committed."""
    is_part = selection.workspace.project.commit and not selection.patterns
    return select_own(selection.workspace) if is_part else selection


def _keys(keyed: Selection) -> tuple[str, str]:
    """Return the file of keys as it is and as it should be; both empty if the project keeps none."""
    workspace = keyed.workspace
    path = workspace.project.images / image_keys.FILE
    old = read_text(path, errors="replace") if is_file(path) else ""
    kept = image_keys.read(path.parent)
    if not workspace.project.commit:
        return (old if image_keys.is_ours(old) else ""), ""
    own = {recipe.name for recipe in select_own(workspace).recipes}
    own.update(*(broken.names for broken in workspace.broken))
    images = (image for image in keyed.plan.images if image.name in own)
    return old, image_keys.text(images, kept, own)


def _write_keys(keyed: Selection, report: Reporter) -> None:
    old, new = _keys(keyed)
    if old == new:
        return
    path = keyed.workspace.project.images / image_keys.FILE
    if new:
        write_whole(path, new)
    else:
        remove_file(path)
    report(f"{'wrote' if new else 'removed'} images/{image_keys.FILE}")


def _report_none(selection: Selection, report: Reporter) -> None:
    if not selection.plan.images:
        report("no images are rendered here: `bake render IMAGE` renders one of Bakehouse's images")


def _orphans(selection: Selection) -> Sequence[str]:
    """Return the directories of removed images; none if images were named."""
    return () if selection.patterns else orphans(selection.workspace)


def _is_whole(selection: Selection) -> bool:
    """Return whether a table of these images would contain all of the project."""
    workspace = selection.workspace
    return not (selection.patterns or workspace.broken or workspace.failures)
