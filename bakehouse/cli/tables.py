"""What the tasks print on standard output."""

import contextlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence

from bakehouse.build.built_image import BuiltImage
from bakehouse.build.rehearse import Rehearsed
from bakehouse.build.stub_plan import REHEARSED
from bakehouse.build.verify import Outcome
from bakehouse.catalog import git_history
from bakehouse.cli import image_table
from bakehouse.cluster.smoke_report import SmokeReport
from bakehouse.errors import Diagnostic, UsageError
from bakehouse.plan.model import Image, Plan
from bakehouse.plan.workspace import Workspace, resolve_all, select
from bakehouse.publish.releases import ReleaseRecord
from bakehouse.resolve import diff, explain, outdated, what_if
from bakehouse.resolve.phrases import location_text, requirement_text
from bakehouse.resolve.resolver import Resolution
from bakehouse.util.format import format_bytes, format_count, format_table
from bakehouse.util.suggest import suggestion

_FEW = 4
"""Images of which each is told by itself."""


def listing(workspace: Workspace, patterns: Sequence[str], *, as_json: bool) -> str:
    """One line, or one object, for each image."""
    recipes = select(workspace, patterns)
    if as_json:
        found = [image_table.as_object(one) for one in image_table.inventory(workspace, recipes)]
        return json.dumps(found, indent=2) + "\n"
    return format_table((one.name, one.status, one.summary) for one in recipes)


def resolution_table(resolutions: Iterable[Resolution]) -> str:
    """Each image's parts with their versions, and what they bring."""
    found = list(resolutions)
    told = "\n".join(f"{one.recipe.name}\n{_parts(one)}" for one in found)
    return f"{told}{_warnings(found)}"


def _note(resolution: Resolution) -> str:
    return "" if what_if.uses_gpus(resolution) else "  no part of it uses the GPUs\n"


def _parts(resolution: Resolution) -> str:
    lines = []
    for choice in (resolution.base, *resolution.choices):
        brings = ", ".join(f"{name} {version}" for name, version in choice.face.provides.items())
        lines.append(f"  {choice.candidate}" + (f"  brings {brings}" if brings else ""))
    return "\n".join(lines) + "\n"


def fit(workspace: Workspace, patterns: Sequence[str], words: Sequence[str]) -> str:
    """Whether what the command line asks for fits: in an image, in several, or on any base."""
    wanted = what_if.parse_assumptions(words, workspace.catalog)
    if not patterns:
        first, *others = what_if.resolve_on_bases(wanted, workspace.catalog)
        also = "".join(
            f"\nalso on {', '.join(str(one.base.candidate) for one in others)}\n" if others else ""
        )
        return f"{wanted} fit\n{_parts(first)}{_note(first)}{also}"
    recipes = select(workspace, patterns)
    if len(recipes) == 1:
        found = what_if.resolve_assuming(recipes[0], wanted, workspace.catalog)
        return f"{recipes[0].name} fits with {wanted}\n{_parts(found)}{_note(found)}"
    return what_if.summarize_images(recipes, wanted, workspace.catalog)


def warnings(workspace: Workspace, patterns: Sequence[str]) -> str:
    """The warnings of images, before they are built."""
    return _warnings(resolve_all(workspace, select(workspace, patterns)))


def _warnings(resolutions: Iterable[Resolution]) -> str:
    """What is reported not to work together in images, on evidence too thin to refuse it."""
    lines = []
    for resolution in resolutions:
        for candidate, known in resolution.warnings:
            parts = " and ".join(requirement_text(one) for one in known.parts)
            lines.append(f"warning: {resolution.recipe.name}: {candidate} with {parts}: {known.reason}\n")
            lines.append(f"  one report: {known.source}   {location_text(known.location)}\n")
    return "".join(lines)


def difference(workspace: Workspace, image: str, other: str, since: str, until: str) -> str:
    """What differs between two images, or between images at a commit and later."""
    if bool(other) == bool(since):
        message = "`diff` compares with another image, or with a commit"
        hint = "name a second image, or a commit with `--from`"
        raise UsageError(Diagnostic(message, hint=hint))
    if other:
        first, second = (resolve_all(workspace, select(workspace, [name]))[0] for name in (image, other))
        told = diff.compare(first, second) or "  the same parts\n"
        return f"{first.recipe.name} → {second.recipe.name}\n{told}"
    with contextlib.ExitStack() as stack:
        before = stack.enter_context(git_history.past(workspace.project, since))
        after = stack.enter_context(git_history.past(workspace.project, until)) if until else workspace
        return diff.compare_catalogs(before.recipes, before.catalog, after.recipes, after.catalog, image)


def outdated_parts(workspace: Workspace, patterns: Sequence[str]) -> str:
    """The parts that are not the newest known: of a few images with what holds them back, of many in sums."""
    recipes = select(workspace, patterns)
    if not patterns:
        recipes = tuple(one for one in recipes if one.status == "current")
    resolutions = resolve_all(workspace, recipes)
    if len(resolutions) <= _FEW:
        return "\n".join(outdated.table(one, workspace.catalog) for one in resolutions)
    told = outdated.summary(resolutions, workspace.catalog)
    example = f"`./bake outdated {resolutions[0].recipe.name}` tells what holds each part of an image back\n"
    return f"{len(resolutions)} images; part, newest known, what they have\n\n{told}\n{example}"


def explanation(workspace: Workspace, image: str, part: str | None) -> str:
    """Why each version of an image was chosen, or one part's."""
    (recipe,) = select(workspace, [image])[:1]
    (resolution,) = resolve_all(workspace, [recipe])
    names = explain.explainable_names(resolution)
    if part and part not in names:
        message = f"`{recipe.name}` has no `{part}`"
        raise UsageError(Diagnostic(message, hint=suggestion(part, names)))
    if part:
        return explain.component_report(resolution, workspace.catalog, part)
    return explain.overview(resolution, workspace.catalog) + _warnings([resolution])


def plan_table(plan: Plan) -> str:
    """Each stage once, with its key and the images that share it."""
    users: dict[str, list[str]] = {}
    for image in plan.images:
        for stage in image.stages:
            users.setdefault(stage.key, []).append(image.name)
    rows = [(key[:8], stage.name, ", ".join(users[key])) for key, stage in plan.stages.items()]
    rows += [(image.key[:8], f"image {image.name}", _weight(image)) for image in plan.images]
    return format_table(rows)


def _weight(image: Image) -> str:
    stages = format_count(len(image.stages), "stage")
    return f"{stages}, {format_bytes(image.wheel_bytes)} of Python packages to fetch"


def built_table(built: Sequence[BuiltImage]) -> str:
    """Each built image with its digest and weight."""
    return format_table((one.image.name, one.digest[:19], format_bytes(one.bytes)) for one in built)


def rehearsal_table(rehearsed: Sequence[Rehearsed]) -> str:
    """Each rehearsed image, what was not real in it, and what of its answers is as declared."""
    lines = []
    for one in sorted(rehearsed, key=lambda one: one.rehearsal.real.name):
        image = one.rehearsal.real
        files = sum(len(stage.wheels) + len(stage.sdists) + len(stage.artifacts) for stage in image.stages)
        names = ", ".join(one.rehearsal.stubs) or "none"
        told = f"{len(one.agree)} answers as declared"
        told += f", {len(one.differ)} not" if one.differ else ""
        verified = sum(one.rehearsal.is_real(name) for name in one.agree)
        proof = f"{verified} verified, {len(one.agree) - verified} unverified"
        lines.append(f"{image.name}  {REHEARSED}: {len(one.rehearsal.files)} of {files} files are stand-ins")
        lines.append(f"  not real: {names}")
        lines.append(f"  {told}: {proof}")
        lines += [
            f"  not as declared: {answer.component} {answer.declared}: {answer.error or answer.installed}"
            for answer in one.differ
        ]
    return "\n".join(lines) + "\n" if lines else ""


def smoke_table(reports: Sequence[SmokeReport]) -> str:
    """How many checks passed, and each that was not tested with the reason."""
    lines = []
    for report in reports:
        counts = Counter(check.outcome for check in report.checks)
        told = ", ".join(f"{counts[outcome]} {outcome}" for outcome in Outcome if counts[outcome])
        lines.append(f"{report.image}  {report.digest[:19]}  {told}; ranks talked through {report.transport}")
        lines += [
            f"  not tested: {check.name}: {check.reason}"
            for check in report.checks
            if check.outcome is Outcome.NOT_TESTED
        ]
    return "\n".join(lines) + "\n"


def uris(records: Sequence[ReleaseRecord]) -> str:
    """The address of each published image."""
    return "".join(f"{record.image_uri}\n" for record in records)


def released(records: Sequence[ReleaseRecord]) -> str:
    """Each record of the ledger: what it is, under which tag and digest, where, and from which commit."""
    rows = [
        (
            record.date,
            "candidate" if record.candidate else "release" if record.tested else "untested",
            f"{record.registry}/{record.repository}:{record.tags[0]}",
            record.digest[:19],
            record.revision[:12] or "no commit",
        )
        for record in records
    ]
    return format_table(rows)
