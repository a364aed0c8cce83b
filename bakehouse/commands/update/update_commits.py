"""`update --commit`: one commit for each component, with its evidence and the images that it changes."""

from collections.abc import Callable, Sequence
from pathlib import Path

from bakehouse.commands.update import update as updating
from bakehouse.commands.update.update import ComponentUpdate, ReleaseProposal
from bakehouse.errors import BuildError, Reason, UsageError
from bakehouse.pipeline import render
from bakehouse.plan.workspace import Workspace, select_kept
from bakehouse.util import git
from bakehouse.util.format import format_count
from bakehouse.util.terminal import Reporter

_MAX_SUBJECT = 72


def run(
    names: Sequence[str], open_workspace: Callable[[], Workspace], report: Reporter, *, since: str = ""
) -> list[ComponentUpdate]:
    """Write the entries of new releases, render the images, and commit each component.

    Raises UsageError if files that it would commit have changes, and BuildError if git fails.
    """
    workspace = open_workspace()
    components = updating.select(workspace, names, write=True)
    images = workspace.project.images
    _require_no_changes(workspace.project.root, [images, *(component.directory for component in components)])
    updates = []
    for component in components:
        [update] = updating.run(workspace, [component.name], report, since=since, write=True)
        updates.append(update)
        paths = [path for path in (component.directory, images) if path.exists()]
        if not update.proposals or not _changes(workspace.project.root, paths):
            continue
        workspace = open_workspace()
        render.write(select_kept(workspace, ()), report)
        paths = [path for path in (component.directory, images) if path.exists()]
        try:
            git.commit(workspace.project.root, paths, message(update))
        except git.GitError as error:
            raise BuildError(
                f"`{component.name}` was updated, but not committed",
                reasons=(Reason(f"the repository {error}"),),
            ) from error
        report(f"committed {component.name}")
    return updates


def message(update: ComponentUpdate) -> str:
    """Return the message of the commit of a component."""
    name, versions = update.component.name, [proposal.version for proposal in update.proposals]
    subject = f"Add {name} {', '.join(versions)}"
    if len(subject) > _MAX_SUBJECT:
        subject = f"Add {format_count(len(versions), 'release')} of {name}"
    return "\n\n".join([subject, *map(_paragraph, update.proposals)])


def _paragraph(proposal: ReleaseProposal) -> str:
    day = f", released on {proposal.day}" if proposal.day else ""
    return "\n".join(
        (
            f"{proposal.component} {proposal.version}{day}; made from {proposal.before}",
            *(f"{fact.field} {fact.value}: {fact.source}" for fact in proposal.evidence),
            *(f"check: {line}" for line in proposal.checks),
            f"images: {', '.join(proposal.moved) or 'none would change'}",
        )
    )


def _require_no_changes(root: Path, paths: Sequence[Path]) -> None:
    if changed := _changes(root, [path for path in paths if path.exists()]):
        raise UsageError(
            f"`{changed[0]}` has changes that are not committed",
            hint="commit them first, or use `--write` instead of `--commit`",
        )


def _changes(root: Path, paths: Sequence[Path]) -> tuple[str, ...]:
    try:
        return git.changes(root, paths)
    except git.GitError as error:
        text = "`--commit` needs a git repository"
        reason = Reason(f"`{root}` {error}")
        raise UsageError(text, reasons=(reason,), hint="use `--write` without one") from error
