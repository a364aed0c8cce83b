"""Formats reports as text. Receives values; resolves and plans nothing."""

from __future__ import annotations

from collections import Counter
from itertools import zip_longest
from types import MappingProxyType
from typing import TYPE_CHECKING

from bakehouse.resolve.phrases import warnings_text
from bakehouse.util.format import first_names, format_bytes, format_count, format_table

if TYPE_CHECKING:
    # Tasks import this module when they start, and most of these imports are slow.
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from bakehouse.builder.built_image import BuiltImage
    from bakehouse.catalog.base_image_lock import AptLocks
    from bakehouse.catalog.recipe import Recipe
    from bakehouse.cluster.smoke_report import SmokeReport
    from bakehouse.evidence.known_checks import KnownChecks
    from bakehouse.ledger.releases import ReleaseRecord
    from bakehouse.plan.affected import ChangedImages
    from bakehouse.plan.model import BootstrappedBase, Image, Plan
    from bakehouse.resolve.outdated import OutdatedCount
    from bakehouse.resolve.resolver import Resolution
    from bakehouse.resolve.what_if import Assumptions, ImageFit

FEW = 4
"""Number of images up to which each image gets its own table."""


def resolution_table(resolutions: Iterable[Resolution]) -> str:
    """Format the components of images with their versions, and what they provide."""
    images = list(resolutions)
    blocks = "\n".join(f"{resolution.recipe.name}\n{_components(resolution)}" for resolution in images)
    return f"{blocks}{warnings_text(images)}"


def left_out(recipes: Iterable[Recipe], families: Collection[str]) -> str:
    """Format the combinations that do not resolve and so are not in the window of a named family."""
    combinations = (line for recipe in recipes if recipe.family in families for line in recipe.left_out)
    lines = "".join(f"  {line}\n" for line in dict.fromkeys(combinations))
    return f"\nnewer, but left out because they do not resolve:\n{lines}" if lines else ""


def _components(resolution: Resolution) -> str:
    lines = []
    for choice in resolution.all_choices:
        provided = ", ".join(f"{name} {version}" for name, version in choice.spec.provides.items())
        lines.append(f"  {choice.candidate}" + (f"  provides {provided}" if provided else ""))
    if (compat := resolution.compatibility_libraries) and (driver := resolution.recipe.targets.driver):
        support = "which supports only data center GPUs"
        lines.append(f"  driver {driver.text} needs {compat.name} {compat.version}, {support}")
    return "\n".join(lines) + "\n"


def fit(
    assumptions: Assumptions,
    resolutions: Sequence[Resolution],
    undecided: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Format the combination that assumptions give in an image, or on each base that fits."""
    first, *others = resolutions
    fits = f"{assumptions} {'fits' if len(assumptions.names) == 1 else 'fit'}"
    heading = f"{first.recipe.name} fits with {assumptions}" if first.recipe.name else fits
    bases = ", ".join(str(resolution.base.candidate) for resolution in others)
    also = f"\nalso on {bases}\n" if others else ""
    unknown = "".join(f"\nnot known on {base}: {reason}\n" for base, reason in undecided.items())
    warnings = warnings_text(resolutions, asked=assumptions.names)
    return f"{heading}\n{_components(first)}{also}{unknown}{warnings}"


def image_fits(fits: Sequence[ImageFit]) -> str:
    """Format one line for each image: that it fits, or what would have to change."""
    rows = []
    for fit in fits:
        changes = f"; it would with {fit.changes}" if fit.changes else ""
        unknown = f"the catalogue lacks {fit.lacking}" if fit.lacking else "the search ended first"
        refused = f"does not fit{changes}" if fit.is_decided else f"not known: {unknown}"
        rows.append((fit.image, "fits" if fit.resolution else refused))
    return format_table(rows) + warnings_text(fit.resolution for fit in fits if fit.resolution)


def comparison(before: Resolution, after: Resolution, locks: AptLocks) -> str:
    """Format the differences between two images."""
    from bakehouse.plan import diff

    lines = diff.compare(before, after, (locks, locks)) or "  the same recipe and components\n"
    return f"{before.recipe.name} → {after.recipe.name}\n{lines}"


def outdated_counts(resolutions: Sequence[Resolution], counts: Iterable[OutdatedCount]) -> str:
    """Format the outdated components of many images as counts."""
    from bakehouse.resolve import outdated

    hint = (
        f"run `bake outdated {resolutions[0].recipe.name}` for what holds each component of an image back\n"
    )
    heading = f"{len(resolutions)} images: component, newest release, versions in images"
    return f"{heading}\n\n{outdated.summary(counts)}\n{hint}"


def plan_table(plan: Plan, affected: ChangedImages | None = None) -> str:
    """Format each stage once, with its build key and the images that share it.

    With `affected`, only new stages are listed, and then the reasons for the new keys.
    """
    users: dict[str, list[str]] = {}
    for image in plan.images:
        for stage in image.stages:
            users.setdefault(stage.key, []).append(image.name)
    rows = [
        (key[:8], stage.name, ", ".join(users[key]))
        for key, stage in plan.stages.items()
        if affected is None or key in affected.stages
    ]
    rows += [(image.key[:8], f"image {image.name}", _weight(image)) for image in plan.images]
    return format_table(rows) + (_reasons_text(plan, affected) if affected else "")


def _reasons_text(plan: Plan, affected: ChangedImages) -> str:
    """Format each reason for new keys once, with the images that it concerns."""
    images: dict[str, list[str]] = {}
    for image in plan.images:
        for reason in affected.reasons[image.name] or ("not known: the committed files do not show it",):
            images.setdefault(reason, []).append(image.name)
    if not images:
        return ""
    rows = (
        (f"  {reason}", names[0] if len(names) == 1 else format_count(len(names), "image"))
        for reason, names in images.items()
    )
    return f"\nreasons for the new keys:\n{format_table(rows)}"


def _weight(image: Image) -> str:
    stages = format_count(len(image.stages), "stage")
    return f"{stages}, {format_bytes(image.wheel_bytes)} of Python packages to download"


def built_table(built: Sequence[BuiltImage], bases: Mapping[str, BootstrappedBase] | None = None) -> str:
    """Format each base with its reference, and each built image with its digest and size."""
    made = [(name, base.reference) for name, base in (bases or {}).items()]
    rows = ((item.image.name, item.digest[:19], format_bytes(item.bytes)) for item in built)
    return format_table(made) + format_table(rows)


def smoke_table(reports: Sequence[SmokeReport], known: Sequence[KnownChecks] = ()) -> str:
    """Format the counts of check results and each check that was not tested, with its reason.

    `known` has all results of each image. Results of earlier runs are marked.
    """
    from bakehouse.builder.verify import Outcome

    lines = []
    for report, every in zip_longest(reports, known):
        counts = Counter(check.outcome for check in report.checks)
        results = ", ".join(f"{counts[outcome]} {outcome}" for outcome in Outcome if counts[outcome])
        lines.append(f"{report.image}  {report.content[:19]}  {results}; transport {report.transport}")
        lines += [
            f"  not tested: {check.name}: {check.reason}"
            for check in report.checks
            if check.outcome is Outcome.NOT_TESTED
        ]
        lines += [f"  not run: {name}: {report.interrupted}" for name in report.unfinished]
        lines += _earlier_results(report, every) if every else []
    return "\n".join(lines) + "\n"


def _earlier_results(report: SmokeReport, known: KnownChecks) -> list[str]:
    """Return a line about the checks that a run left out; none if it ran all."""
    ran = {check.name for check in report.checks}
    older = [check for check in known.checks if check.date and check.name not in ran]
    missing = [name for name in known.missing if name not in ran]
    counts = Counter(check.outcome for check in older)
    parts = [f"{count} {outcome}" for outcome, count in counts.items()]
    parts += [f"the oldest of {min(check.date for check in older)[:10]}"] if older else []
    parts += [f"no result of {first_names(missing)}"] if missing else []
    return [f"  from earlier runs: {'; '.join(parts)}"] if parts else []


def uris(records: Sequence[ReleaseRecord]) -> str:
    """Format the image URI of each published image."""
    return "".join(f"{record.image_uri}\n" for record in records)


def released(records: Sequence[ReleaseRecord]) -> str:
    """Format each publication in the ledger: date, kind, tag, image URI and commit.

    Records that add facts to a publication, such as a signature, have no line.
    """
    rows: dict[tuple[str, ...], str] = {}
    for record in records:
        replaced = record.rollback.time if record.rollback else ""
        row = (_kind(record), record.tags[0], record.image_uri, _commit(record), replaced)
        rows.setdefault(row, record.date)
    return format_table([(date, *row[:4]) for row, date in rows.items()])


def _kind(record: ReleaseRecord) -> str:
    if record.rollback:
        return "rollback"
    return "candidate" if record.candidate else "release" if record.tested else "untested"


def _commit(record: ReleaseRecord) -> str:
    """Return the commit of a record, and the uncommitted files that it was published with."""
    from bakehouse.catalog.git_history import DIRTY

    if not record.revision.endswith(DIRTY):
        return record.revision[:12] or "no commit"
    files = f" ({first_names(record.uncommitted)})" if record.uncommitted else ""
    return f"{record.revision[:12]}{DIRTY}{files}"


def release_notes(records: Sequence[ReleaseRecord], between: Callable[[str, str, str], Iterable[str]]) -> str:
    """Format the newest release of an image as Markdown, with its changes since the release before.

    `between` gives the changes of an image between two commits. Return an empty text if the image was never
    released.
    """
    from bakehouse.catalog.git_history import DIRTY
    from bakehouse.errors import BakehouseError, UsageError
    from bakehouse.ledger.release_changes import changes
    from bakehouse.ledger.releases import by_release
    from bakehouse.util.value_change import value_changes

    released = [record for record in by_release(records) if record.is_released]
    if not released:
        return ""
    new = released[-1]
    title = " (rollback)" if new.rollback else ""
    lines = [f"## {new.image} {new.date}{title}", "", f"`{new.image_uri}`", ""]
    # A digest that is released again has another record.
    old = next((record for record in reversed(released) if record.digest != new.digest), None)
    if old:
        lines += [f"Changes since {old.date} (`{old.digest[:19]}`):", ""]
        revisions = [record.revision for record in (old, new)]
        try:
            if not all(revisions) or any(revision.endswith(DIRTY) for revision in revisions):
                raise UsageError("a release is not of a commit")
            others = [*between(new.image, *revisions)]
        except BakehouseError as error:
            others = [f"packages, code and recipe: not known, because {error.diagnostics[0].message}"]
        for change in changes(old, new):
            if change.kind == "build key" and others:
                continue
            kind = "" if change.kind in ("component", "provided version") else f"{change.kind} "
            lines.append(f"- {kind}{change.words}")
        lines += [f"- {text}" for text in others]
        first, second = ({check.name: check.outcome for check in record.checks} for record in (old, new))
        lines += [f"- check {change.words}" for change in value_changes(first, second)]
    else:
        lines += [f"First release, {format_bytes(new.bytes)}.", ""]
        lines += [f"- {part.component} {part.version}" for part in new.parts]
    passed = sum(check.outcome == "passed" for check in new.checks)
    rest = "".join(f", `{check.name}` {check.outcome}" for check in new.checks if check.outcome != "passed")
    return "\n".join([*lines, "", f"Checks: {passed} passed{rest}.", "", ""])
