"""Search of the release with which a job broke, between one that works and one that fails."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bakehouse.catalog import git_history
from bakehouse.catalog.git_history import Past
from bakehouse.catalog.project import ProjectSettings
from bakehouse.errors import Diagnostic, Problems, UsageError
from bakehouse.ledger import release_names
from bakehouse.ledger.release_changes import Change, timeline
from bakehouse.ledger.releases import ReleaseRecord
from bakehouse.plan import diff
from bakehouse.registry.manifest import short
from bakehouse.resolve.resolver import Resolution, Unsatisfiable, resolve
from bakehouse.util.format import first_names


@dataclass(frozen=True, slots=True)
class Bisection:
    """The state of a search."""

    good: ReleaseRecord
    """The release nearest to `bad` with which the job works."""
    bad: ReleaseRecord
    """The release nearest to `good` with which it fails."""
    between: tuple[ReleaseRecord, ...]
    """The releases between them, from the good one to the bad one."""

    @property
    def next(self) -> ReleaseRecord | None:
        """Return the release to try; None if the change is between `good` and `bad`."""
        return self.between[len(self.between) // 2] if self.between else None

    @property
    def most_tries(self) -> int:
        """Return the number of releases to try at most."""
        return len(self.between).bit_length()


def bisect(line: Sequence[ReleaseRecord], good: Sequence[str], bad: Sequence[str]) -> Bisection:
    """Narrow the search in a timeline by the digests that are known to work and to fail.

    The search is between the first digests of both. The job may have broken with a newer or with an older
    release. Candidates that are not named are left out. Raises UsageError if the results contradict each
    other.
    """
    known = [record for record in line if record.is_released or record.digest in {*good, *bad}]
    digests = [record.digest for record in known]
    start, end = digests.index(good[0]), digests.index(bad[0])
    searched = known[start : end + 1] if start <= end else known[end : start + 1][::-1]
    last = max(index for index, record in enumerate(searched) if record.digest in good)
    first = min(index for index, record in enumerate(searched) if record.digest in bad)
    if last >= first:
        raise UsageError.of(_contradiction(searched[last], searched[first]))
    return Bisection(searched[last], searched[first], tuple(searched[last + 1 : first]))


def _contradiction(good: ReleaseRecord, bad: ReleaseRecord) -> Diagnostic:
    if good.digest == bad.digest:
        return Diagnostic(f"release `{good.digest}` is named as good and as bad")
    return Diagnostic(
        "the job broke more than once between these releases",
        facts=(("good", f"{good.date} {good.digest}"), ("bad", f"{bad.date} {bad.digest}")),
        hint="start again with two of them that have no other result between them",
    )


def start(
    ledger: Mapping[str, Sequence[ReleaseRecord]], good: Sequence[str], bad: Sequence[str]
) -> Bisection:
    """Return the search among the records of images, by digests, tags or image URIs. Raises UsageError."""
    problems = Problems()
    matches: dict[str, dict[str, dict[str, ReleaseRecord]]] = {}
    for text in (*good, *bad):
        matches[text] = release_names.matches(ledger, text)
        if not matches[text]:
            problems.add(release_names.unknown(text, ledger))
    problems.raise_as(UsageError)
    images = [image for image in ledger if all(image in by_image for by_image in matches.values())]
    if not images:
        rows = tuple((text, ", ".join(by_image)) for text, by_image in matches.items())
        raise UsageError(
            "the releases are of different images",
            facts=rows,
            hint="run `bake diff IMAGE IMAGE` to compare two images",
        )
    if len(images) > 1:
        raise UsageError(
            f"the releases are of several images: {', '.join(f'`{image}`' for image in images)}",
            hint="name the image after the two releases",
        )
    for text, by_image in matches.items():
        if len(by_image[images[0]]) > 1:
            problems.add(release_names.ambiguous(text, by_image[images[0]]))
    problems.raise_as(UsageError)
    digests = [[next(iter(matches[text][images[0]])) for text in texts] for texts in (good, bad)]
    return bisect(timeline(ledger[images[0]]), *digests)


def commit_changes(
    project: ProjectSettings, before: ReleaseRecord, after: ReleaseRecord
) -> tuple[Change, ...]:
    """Return the packages and values of the recipe that differ between the commits of two releases.

    Raises UsageError if a commit is unknown, or does not have the versions of its release.
    """
    with _commit(project, before) as (old, first), _commit(project, after) as (new, second):
        packages = diff.package_changes(first, second, (old.apt_locks, new.apt_locks))
        found = [
            Change(f"{changes.kind} package", change.name, change.before, change.after)
            for changes in packages
            for change in changes.changes
        ]
        found += [
            Change(f"recipe, {change.key}", change.name, change.before, change.after)
            for change in diff.recipe_changes(first, second)
        ]
        return tuple(found)


@contextlib.contextmanager
def _commit(project: ProjectSettings, record: ReleaseRecord) -> Iterator[tuple[Past, Resolution]]:
    """Read the recipe and the locks of a release at its commit."""
    release, revision = f"release {short(record.digest)}", record.revision
    if not revision:
        raise UsageError(f"{release} has no commit")
    if revision.endswith(git_history.DIRTY):
        files = f": {first_names(record.uncommitted)}" if record.uncommitted else ""
        raise UsageError(f"{release} was published from uncommitted files{files}")
    with git_history.past(project, revision, record.image) as state:
        recipe = state.recipes.get(record.image)
        try:
            resolution = resolve(recipe, state.catalog) if recipe else None
        except Unsatisfiable:
            resolution = None
        choices = resolution.all_choices if resolution else ()
        versions = {(choice.name, choice.version, choice.candidate.variant.name) for choice in choices}
        if record.image in state.unread:
            raise UsageError(f"the packages of {release} are not known: {state.unread[record.image]}")
        if not resolution or versions != {
            (part.component, part.version, part.variant) for part in record.parts
        }:
            # For example, a catalogue outside the repository is read in its current state
            raise UsageError(f"commit {revision[:12]} does not give the versions of {release}")
        yield state, resolution
