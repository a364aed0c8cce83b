"""The use cases `push`, `promote` and `release`: from built and tested images to records of releases."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bakehouse.builder.built_image import BuiltImage
from bakehouse.builder.pack import ImagePacker
from bakehouse.catalog import git_history
from bakehouse.catalog.project import ProjectSettings
from bakehouse.catalog.support import notice_day
from bakehouse.engine import provision
from bakehouse.errors import EngineError, SmokeError
from bakehouse.evidence.known_checks import known_checks
from bakehouse.ledger.releases import ReleaseRecord
from bakehouse.lock.locking import require_known_hosts
from bakehouse.pipeline import image_docs, without_engine
from bakehouse.pipeline.build import build, ensure_built, manifest_digests, require_budgets
from bakehouse.pipeline.smoke import SmokeOptions, smoke_images
from bakehouse.plan.workspace import Selection, Workspace, render_images
from bakehouse.publish import attest, image_push, preflight
from bakehouse.publish import promote as promotion
from bakehouse.publish.options import PublishOptions
from bakehouse.registry import destination
from bakehouse.util.format import first_names
from bakehouse.util.terminal import Reporter


def push(selection: Selection, report: Reporter, options: PublishOptions) -> tuple[ReleaseRecord, ...]:
    """Push images that may be released, or candidates. Missing ones are built first."""
    check_access(selection, options)
    built = ensure_built(selection, report, tested=not options.candidate)
    return push_images(selection.workspace, built, report, options)


def push_images(
    workspace: Workspace,
    built: Sequence[BuiltImage],
    report: Reporter,
    options: PublishOptions,
    packer: ImagePacker | None = None,
) -> tuple[ReleaseRecord, ...]:
    """Push built images that may be released, or candidates, and record them in the ledger."""
    require_budgets(workspace, built, report)
    day = notice_day()
    for image in (item.image for item in built):
        for line in image.known.lines(day):
            report(f"{image.name}: {line}")
        if image.known.is_archived:
            report(f"{image.name}: an image of the archive, without claims; `bake list` has recommended ones")
    try:
        return image_push.push_images(workspace.project, built, report, options, packer)
    finally:
        image_docs.update_pages(workspace, [item.image for item in built])


def built_uris(selection: Selection, report: Reporter, registry: str) -> tuple[str, ...]:
    """Return the URIs that one built image will have in the registries that `--registry` selects."""
    project, image = selection.workspace.project, selection.image
    prefix = destination.prefix(project, registry)
    [(_, digest)] = manifest_digests(selection, report)
    return tuple(
        f"{selected.host}/{prefix}/{image.name}@{digest}"
        for selected in destination.registries(project, registry)
    )


def promote(selection: Selection, report: Reporter, options: PublishOptions) -> ReleaseRecord:
    """Release the newest candidate of an image."""
    image = selection.image
    record = promotion.promote_image(selection.workspace.project, image, report, options)
    image_docs.update_pages(selection.workspace, [image])
    return record


def release(
    selection: Selection,
    report: Reporter,
    options: PublishOptions,
    smoke_options: SmokeOptions,
    *,
    json: bool = False,
) -> tuple[ReleaseRecord, ...]:
    """Build images, smoke-test those not tested yet, and push them.

    Without an engine, it releases images that differ from their last release only in wheels and code.
    """
    check_access(selection, options)
    for line in uncommitted_lines(selection):
        report(line)
    try:
        provision.ensure(provision.ask_at_terminal, report)
    except EngineError as missing:
        try:
            return _release_without_engine(selection, report, options)
        except EngineError as error:
            report(str(error))
        raise missing from None
    built = build(selection, report, json=json)
    project = selection.workspace.project
    untested = [item for item in built if _needs_smoke(project, item, smoke_options.gpus)]
    smoke_images(selection.workspace, untested, report, smoke_options)
    return push_images(selection.workspace, built, report, options)


def _release_without_engine(
    selection: Selection, report: Reporter, options: PublishOptions
) -> tuple[ReleaseRecord, ...]:
    workspace, records = selection.workspace, list[ReleaseRecord]()
    require_known_hosts(workspace, selection.resolutions)
    render_images(workspace, selection.plan, report)
    for built, packer in without_engine.prepare(workspace, selection.plan.images, report, options.registry):
        is_tested = not known_checks(workspace.project, built.image, built.content).blockers
        if not (is_tested or options.candidate):
            report(f"{built.image.name}: not tested here, so it becomes a candidate")
        settings = replace(options, candidate=options.candidate or not is_tested)
        records += push_images(workspace, [built], report, settings, packer)
    return tuple(records)


def uncommitted_lines(selection: Selection) -> list[str]:
    """Return a line for the images of each set of uncommitted files; the ledger records these files."""
    recipes: dict[Path, list[str]] = {}
    for image in selection.plan.images:
        recipes.setdefault(image.recipe_file, []).append(image.name)
    images: dict[tuple[str, ...], list[str]] = {}
    for recipe, names in recipes.items():
        images.setdefault(git_history.uncommitted(selection.workspace.project, recipe), []).extend(names)
    return [
        f"{first_names(names)}: released from uncommitted files: {first_names(paths)}"
        for paths, names in images.items()
        if paths
    ]


def check_access(selection: Selection, options: PublishOptions) -> None:
    """Raise an error before a build if the destination would reject the push of an image."""
    project = selection.workspace.project
    destination.check_selection(project, options.registry)
    attest.bundler_of(project)
    names = [recipe.name for recipe in selection.recipes]
    preflight.check_access(project, options.registry, names, create=options.create)


def _needs_smoke(project: ProjectSettings, built: BuiltImage, gpus: tuple[str, ...]) -> bool:
    """Return whether a test on this machine can give the results that a release needs."""
    try:
        known = known_checks(project, built.image, built.content)
    except SmokeError:
        # They cannot be read
        return True
    return not known.has_passed or bool(gpus and known.blockers)
