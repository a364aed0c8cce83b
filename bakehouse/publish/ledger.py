"""The ledger of a project: its own files, and the team's in S3 where it has one."""

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bakehouse.catalog.project import Project
from bakehouse.errors import Diagnostic, Problems, PublishError, Reason, UsageError
from bakehouse.publish.releases import ReleaseRecord, append, load, text_of, with_record
from bakehouse.publish.s3_ledger import S3Ledger
from bakehouse.util.file_lock import exclusive
from bakehouse.util.files import write_whole
from bakehouse.util.suggest import suggestion


@dataclass(frozen=True, slots=True)
class Ledger:
    """What was published of a project's images.

    With a team's ledger, that one is the truth; the project's files are copies, which look-ups read.
    """

    project: Project

    def add(self, record: ReleaseRecord) -> None:
        """Write a record down; one that is there already stays out."""
        team = self._team
        if team is None:
            append(self._path(record.image), record, self.project.state / "locks")
            return
        try:
            team.add(record)
        except PublishError as error:
            raise type(error)(*(_unwritten(record, told) for told in error.diagnostics)) from error
        self._copy(team, record.image)

    def records(self, image: str) -> tuple[ReleaseRecord, ...]:
        """An image's records, oldest first, the team's newest among them."""
        if team := self._team:
            return self._copy(team, image)
        return load(self._path(image))

    def images(self) -> tuple[str, ...]:
        """The images that have records."""
        own = {path.parent.name for path in self.project.images.glob("*/releases.json")}
        return tuple(sorted(own.union(self._team.images() if self._team else ())))

    def chosen(self, patterns: Sequence[str]) -> tuple[str, ...]:
        """The images that have records, of those that names or globs mean; none means all.

        Raises UsageError where one means none: nobody is to take that for nothing being amiss.
        """
        images, problems = self.images(), Problems()
        found: set[str] = set()
        for pattern in patterns:
            meant = fnmatch.filter(images, pattern)
            if not meant:
                hint = suggestion(pattern, images) or "`./bake releases` lists all"
                problems.add(
                    Diagnostic(f"no release and no candidate of `{pattern}` was published", hint=hint)
                )
            found.update(meant)
        problems.raise_as(UsageError)
        return tuple(sorted(found)) if patterns else images

    @property
    def _team(self) -> S3Ledger | None:
        return S3Ledger(self.project.ledger, self.project.region) if self.project.ledger else None

    def _path(self, image: str) -> Path:
        return self.project.images / image / "releases.json"

    def _copy(self, team: S3Ledger, image: str) -> tuple[ReleaseRecord, ...]:
        """Bring an image's file up to date; records that only this project has come first."""
        path = self._path(image)
        with exclusive(self.project.state / "locks" / f"releases-{image}.lock"):
            own = load(path)
            shared = team.records(image, own)
            told: tuple[ReleaseRecord, ...] = ()
            for record in (*(one for one in own if with_record(shared, one) != shared), *shared):
                told = with_record(told, record)
            if told != own:
                write_whole(path, text_of(told))
            return told


def _unwritten(record: ReleaseRecord, told: Diagnostic) -> Diagnostic:
    """Why a record could not be written down, with what becomes of the image."""
    reason = Reason("the image is published all the same: the same command, once more, writes it down")
    facts = (*told.facts, ("not written down", record.image_uri))
    return replace(told, facts=facts, reasons=(*told.reasons, reason))
