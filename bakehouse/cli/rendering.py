"""Rendered files of images, with their pages and the table of images."""

from collections.abc import Sequence

from bakehouse.cli import image_docs
from bakehouse.plan.workspace import (
    Workspace,
    orphans,
    plan_resolutions,
    render_images,
    resolve_all,
    select_kept,
)
from bakehouse.util.format import format_count
from bakehouse.util.terminal import Reporter


def write(workspace: Workspace, patterns: Sequence[str], report: Reporter) -> str:
    """Write the changed files of images, of all without patterns, and return their number as a line."""
    resolutions = resolve_all(workspace, select_kept(workspace, patterns))
    planned = plan_resolutions(workspace, resolutions)
    if not planned.images:
        report("no images are rendered here: `bake render IMAGE` renders one of Bakehouse's images")
    image_docs.record_runs(workspace)
    pages = image_docs.pages(workspace, planned.images)
    rendered = render_images(workspace, planned, report, () if patterns else orphans(workspace), pages)
    # Without the images that are left out, the table would be incomplete
    is_whole = not (patterns or workspace.broken or workspace.failures)
    if is_whole and image_docs.write_table(workspace, resolutions, planned.images):
        report("wrote images/README.md")
    return f"{len(rendered)} files of {format_count(len(planned.images), 'image')}\n"
