"""Options of the tasks that publish or promote."""

import contextlib
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from bakehouse.catalog import git_history
from bakehouse.catalog.project import ProjectSettings
from bakehouse.errors import BakehouseError
from bakehouse.ledger.store import open_ledger
from bakehouse.plan.model import Image
from bakehouse.publish.push import PushOptions
from bakehouse.publish.record import describe
from bakehouse.util.oci import Digest


@dataclass(frozen=True, slots=True)
class PublishOptions:
    """Options of the tasks that publish or promote."""

    registry: str = ""
    """`local`, `ecr`, a registry of the settings or a host, and a prefix; empty is the default."""
    create: bool = False
    """Create missing ECR repositories."""
    candidate: bool = False
    """Publish as candidates."""
    move_tag: bool = False
    """Move the image's moving tag to the release."""
    image_uri: str = ""
    """Candidate to promote; empty is the newest."""
    reports: tuple[Path, ...] = ()
    """Smoke reports from other machines."""
    attest: bool = False
    """Attach an SBOM and provenance without signatures."""
    fail_on: str = ""
    """Lowest severity of scan findings that fails; empty is the registry's setting."""


def push_options_for(project: ProjectSettings, options: PublishOptions, prefix: str = "") -> PushOptions:
    """Return the options of each push of a task."""
    return PushOptions(
        day=datetime.now(UTC).date(),
        locks=project.state / "locks",
        prefix=prefix or project.repository_prefix,
        candidate=options.candidate,
        revision=git_history.current(project.root),
        history=partial(_history, project),
    )


def with_uncommitted(options: PushOptions, project: ProjectSettings, image: Image) -> PushOptions:
    """Return the options with the uncommitted files of an image; other files do not make it `-dirty`."""
    paths = git_history.uncommitted(project, image.recipe_file)
    commit = options.revision.removesuffix(git_history.DIRTY)
    revision = f"{commit}{git_history.DIRTY}" if commit and paths else commit
    return replace(options, revision=revision, uncommitted=paths)


def _history(project: ProjectSettings, image: str, digest: Digest) -> str:
    # This runs after a push has failed.
    with contextlib.suppress(BakehouseError):
        return describe(open_ledger(project).records(image), digest)
    return ""
