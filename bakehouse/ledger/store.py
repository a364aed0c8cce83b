"""The ledger of a project: its own files, or the team's in S3 with the files as copies."""

import contextlib
import fnmatch
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from bakehouse.catalog.project import ProjectSettings
from bakehouse.catalog.recipe import Recipe
from bakehouse.errors import Diagnostic, Problems, PublishError, Reason, StaleError, UsageError
from bakehouse.ledger.releases import (
    LedgerEntry,
    ReleaseRecord,
    append,
    former_names,
    load,
    load_entries,
    lock_path,
    text_of_entries,
)
from bakehouse.ledger.s3_ledger import S3Ledger
from bakehouse.plan.model import Image
from bakehouse.util.file_lock import exclusive
from bakehouse.util.files import make_directory, matching_paths, remove_directory, remove_file, write_whole
from bakehouse.util.suggest import suggestion
from bakehouse.util.terminal import Reporter


class Ledger(Protocol):
    """Records of what was published."""

    def add(self, record: ReleaseRecord) -> None:
        """Add a record, unless an existing one differs only in its date and commit."""

    def records(self, image: str) -> tuple[ReleaseRecord, ...]:
        """Return an image's records, oldest first."""

    def images(self) -> tuple[str, ...]:
        """Return the images that have records."""

    def former_names(self) -> dict[str, str]:
        """Return the current names of renamed images, by former name."""


def open_ledger(project: ProjectSettings) -> Ledger:
    """Return the ledger that the project's settings select."""
    files = FileLedger(project)
    return TeamLedger(S3Ledger(project.ledger, project.region), files) if project.ledger else files


def follow_renames(project: ProjectSettings, recipes: Iterable[Recipe], progress: Reporter) -> None:
    """Move the records of images whose recipes have a former name."""
    files = FileLedger(project)
    for recipe in recipes:
        for name in recipe.renamed_from:
            if files.follow_rename(name.text, recipe.name):
                progress(f"moved images/{name.text}/releases.json to images/{recipe.name}")


def require_renames_followed(project: ProjectSettings, recipes: Iterable[Recipe]) -> None:
    """Raise StaleError if `follow_renames` would move records."""
    problems = Problems()
    for recipe in recipes:
        for name in recipe.renamed_from:
            if (project.images / name.text / "releases.json").is_file():
                message = f"the releases of `{name.text}` are not those of `{recipe.name}` yet"
                hint = "run `bake render`, and commit the moved `releases.json`"
                problems.add(Diagnostic(message, name.location, hint=hint))
    problems.raise_as(StaleError)


def select_images(ledger: Ledger, patterns: Sequence[str]) -> tuple[str, ...]:
    """Return the images with records that match names or globs; all images without patterns.

    Raises UsageError if a pattern matches no image.
    """
    images, problems = ledger.images(), Problems()
    selected: set[str] = set()
    for pattern in patterns:
        matches = fnmatch.filter(images, pattern)
        if not matches:
            present = ledger.former_names().get(pattern)
            hint = f"it is called `{present}` now" if present else suggestion(pattern, images)
            hint = hint or "run `bake releases` to list all"
            message = f"no release and no candidate of `{pattern}` was published"
            problems.add(Diagnostic(message, hint=hint))
        selected.update(matches)
    problems.raise_as(UsageError)
    return tuple(sorted(selected)) if patterns else images


def unreleased_images(
    project: ProjectSettings, ledger: Ledger, images: Iterable[Image], *, candidates: bool = False
) -> tuple[Image, ...]:
    """Return the images that have no release with their build key; with `candidates`, no candidate either.

    Releases and candidates in registries other than the project's do not count.
    """
    return tuple(
        image
        for image in images
        if not any(
            record.key == image.key
            and (record.is_released or (candidates and record.candidate))
            and any(project.publishes_to(at.registry, at.repository) for at in record.locations)
            for record in ledger.records(image.name)
        )
    )


@dataclass(frozen=True, slots=True)
class FileLedger:
    """The project's files `images/<image>/releases.json`, which look-ups read."""

    project: ProjectSettings

    def add(self, record: ReleaseRecord) -> None:
        append(self._path(self.present_name(record.image)), record, self._locks)

    def records(self, image: str) -> tuple[ReleaseRecord, ...]:
        return load(self._path(image))

    def follow_rename(self, former: str, image: str) -> bool:
        """Move the records of a renamed image before those of its new name; return whether there are any."""
        path, old = self._path(image), self._path(former)
        if not old.is_file():
            return False
        with contextlib.ExitStack() as stack:
            for name in sorted((former, image)):
                stack.enter_context(exclusive(lock_path(self._locks, name)))
            entries = {entry.identity: entry for entry in (*load_entries(old), *load_entries(path))}
            make_directory(path.parent)
            write_whole(path, text_of_entries(tuple(entries.values())))
            remove_file(old)
        with contextlib.suppress(OSError):
            # The directory is empty unless it has files of the user
            remove_directory(old.parent)
        return True

    def former_names(self) -> dict[str, str]:
        return former_names(self.project.images)

    def present_name(self, image: str) -> str:
        """Return the name of the image that has the records of a former name."""
        return image if self._path(image).is_file() else self.former_names().get(image, image)

    def images(self) -> tuple[str, ...]:
        return tuple(path.parent.name for path in matching_paths(self.project.images, "*/releases.json"))

    def update(self, image: str, team: S3Ledger) -> tuple[ReleaseRecord, ...]:
        """Copy the team's records into an image's file; records that only the file has come first."""
        path = self._path(image)
        with exclusive(lock_path(self._locks, image)):
            own = load_entries(path)
            names = dict.fromkeys((*(entry.record.image for entry in own), image))
            shared = tuple(entry for name in names for entry in team.entries(name, own))
            identities = {entry.identity for entry in shared}
            merged: dict[str, LedgerEntry] = {}
            for entry in (*(entry for entry in own if entry.identity not in identities), *shared):
                merged.setdefault(entry.identity, entry)
            entries = tuple(merged.values())
            if entries != own:
                write_whole(path, text_of_entries(entries))
            return tuple(entry.record for entry in entries)

    @property
    def _locks(self) -> Path:
        return self.project.state / "locks"

    def _path(self, image: str) -> Path:
        return self.project.images / image / "releases.json"


@dataclass(frozen=True, slots=True)
class TeamLedger:
    """The team's ledger in S3, which is authoritative, and the project's files as copies."""

    team: S3Ledger
    files: FileLedger

    def add(self, record: ReleaseRecord) -> None:
        try:
            self.team.add(record)
        except PublishError as error:
            raise type(error).of(
                *(_unrecorded(record, diagnostic) for diagnostic in error.diagnostics)
            ) from error
        self.files.update(self.files.present_name(record.image), self.team)

    def records(self, image: str) -> tuple[ReleaseRecord, ...]:
        return self.files.update(image, self.team)

    def images(self) -> tuple[str, ...]:
        names = {*self.files.images(), *self.team.images()}
        return tuple(sorted(names - self.former_names().keys()))

    def former_names(self) -> dict[str, str]:
        return self.files.former_names()


def _unrecorded(record: ReleaseRecord, diagnostic: Diagnostic) -> Diagnostic:
    reason = Reason("the image is published anyway; run the same command again to record it")
    facts = (*diagnostic.facts, ("not recorded", record.image_uri))
    return replace(diagnostic, facts=facts, reasons=(*diagnostic.reasons, reason))
