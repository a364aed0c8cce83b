"""Rendered files of images, with their pages and the table of images."""

from collections.abc import Sequence
from dataclasses import dataclass

from bakehouse.cli import image_docs
from bakehouse.plan.model import Plan
from bakehouse.plan.workspace import (
    Workspace,
    check_rendered,
    orphans,
    plan_resolutions,
    render_images,
    resolve_all,
    select_kept,
)
from bakehouse.resolve.resolver import Resolution
from bakehouse.util.format import format_count
from bakehouse.util.terminal import Reporter


@dataclass(frozen=True, slots=True)
class _Selection:
    """The images to render."""

    resolutions: Sequence[Resolution]
    plan: Plan
    orphans: Sequence[str]
    """Directories of removed images."""
    is_whole: bool
    """All images of the project; without those that are left out, the table would be incomplete."""

    @property
    def count(self) -> str:
        return format_count(len(self.plan.images), "image")


def write(workspace: Workspace, patterns: Sequence[str], report: Reporter) -> str:
    """Write the changed files of images, of all without patterns, and return their number as a line.

    Copies of files of the recipes are not counted, as in `check`.
    """
    selected = _select(workspace, patterns, report)
    image_docs.record_runs(workspace)
    pages = image_docs.pages(workspace, selected.plan.images)
    rendered = render_images(workspace, selected.plan, report, selected.orphans, pages)
    if selected.is_whole and image_docs.write_table(workspace, selected.resolutions, selected.plan.images):
        report("wrote images/README.md")
    return f"{sum(not file.is_copy for file in rendered)} files of {selected.count}\n"


def check(workspace: Workspace, patterns: Sequence[str], report: Reporter) -> str:
    """Raise StaleError unless the files of images are up to date; return their number as a line."""
    selected = _select(workspace, patterns, report)
    pages = image_docs.pages(workspace, selected.plan.images)
    files = check_rendered(workspace, selected.plan, selected.orphans, pages)
    if selected.is_whole:
        image_docs.check_table(workspace, selected.resolutions, selected.plan.images)
    return f"{files} files of {selected.count} are up to date\n"


def _select(workspace: Workspace, patterns: Sequence[str], report: Reporter) -> _Selection:
    resolutions = resolve_all(workspace, select_kept(workspace, patterns))
    plan = plan_resolutions(workspace, resolutions)
    if not plan.images:
        report("no images are rendered here: `bake render IMAGE` renders one of Bakehouse's images")
    is_whole = not (patterns or workspace.broken or workspace.failures)
    return _Selection(resolutions, plan, () if patterns else orphans(workspace), is_whole)
