"""Rendered files of images, with their pages and the table of images."""

from collections.abc import Sequence

from bakehouse.pipeline import image_docs
from bakehouse.plan.workspace import Selection, check_rendered, orphans, render_images
from bakehouse.util.format import format_count
from bakehouse.util.terminal import Reporter


def write(selection: Selection, report: Reporter) -> str:
    """Write the changed files of images, and return their number as a line.

    Copies of files of the recipes are not counted, as in `check`.
    """
    workspace, plan = selection.workspace, selection.plan
    _report_none(selection, report)
    image_docs.record_runs(workspace)
    pages = image_docs.pages(workspace, plan.images)
    rendered = render_images(workspace, plan, report, _orphans(selection), pages)
    if _is_whole(selection) and image_docs.write_table(workspace, selection.resolutions, plan.images):
        report("wrote images/README.md")
    files = sum(not file.is_copy for file in rendered)
    return f"{files} files of {format_count(len(plan.images), 'image')}\n"


def check(selection: Selection, report: Reporter) -> str:
    """Raise StaleError unless the files of images are up to date; return their number as a line."""
    workspace, plan = selection.workspace, selection.plan
    _report_none(selection, report)
    files = check_rendered(workspace, plan, _orphans(selection), image_docs.pages(workspace, plan.images))
    if _is_whole(selection):
        image_docs.check_table(workspace, selection.resolutions, plan.images)
    return f"{files} files of {format_count(len(plan.images), 'image')} are up to date\n"


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
