"""The use case `build`: from selected images to images in the engine."""

import contextlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from bakehouse.analysis import size_check
from bakehouse.builder import base_image, build_log, prefetch, remote_builders
from bakehouse.builder import build as builder
from bakehouse.builder.build_context import BuildOptions
from bakehouse.builder.build_inputs import Downloads
from bakehouse.builder.built_image import BuiltImage, read_configuration
from bakehouse.builder.pack import Packer
from bakehouse.builder.progress import Progress
from bakehouse.catalog.project import ProjectSettings
from bakehouse.engine import emulation, provision
from bakehouse.engine.open_engine import BUILD_FEATURES, open_engine
from bakehouse.engine.protocol import Engine
from bakehouse.errors import BuildError, Diagnostic, EngineError, NotReleasableError, Problems, UsageError
from bakehouse.evidence import step_layers, step_results
from bakehouse.evidence.step_layers import StepLayer
from bakehouse.evidence.versions import VerifiedImages
from bakehouse.fetch.project_fetcher import open_fetcher
from bakehouse.fetch.required_files import RequiredFiles, debs
from bakehouse.ledger.store import follow_renames
from bakehouse.lock.locking import require_known_hosts
from bakehouse.pipeline import compose, image_docs
from bakehouse.plan.model import BootstrappedBase, Image, Plan
from bakehouse.plan.planner import bootstrapped_bases
from bakehouse.plan.workspace import Selection, Workspace, leave_out, render_images
from bakehouse.registry.manifest import FORMS
from bakehouse.resolve.phrases import warnings_text
from bakehouse.util.files import is_directory
from bakehouse.util.oci import PLATFORM, Digest
from bakehouse.util.suggest import nearest
from bakehouse.util.terminal import Reporter

_DEFAULTS = BuildOptions()


def build(
    selection: Selection,
    report: Reporter,
    options: BuildOptions = _DEFAULTS,
    progress: Progress | None = None,
    *,
    json: bool = False,
) -> tuple[BuiltImage, ...]:
    """Render changed files, build all images as one graph, and compare installed with declared versions.

    By default, the builders of the project are used. Without `progress`, progress is printed, with `json` as
    JSON lines.
    """
    return build_plan(selection, selection.plan, report, options, progress, json=json)


def build_plan(
    selection: Selection,
    plan: Plan,
    report: Reporter,
    options: BuildOptions = _DEFAULTS,
    progress: Progress | None = None,
    *,
    json: bool = False,
) -> tuple[BuiltImage, ...]:
    """Build the images of a plan, which are all or some of the selected ones, as `build` does."""
    workspace = selection.workspace
    project = workspace.project
    for line in warnings_text(selection.resolutions).splitlines():
        report(line)
    require_known_hosts(workspace, selection.resolutions)
    follow_renames(project, selection.recipes, report)
    render_images(workspace, plan, report, pages=image_docs.pages(workspace, plan.images))
    plan = pinned_plan(workspace, runnable_plan(selection, plan, report))
    with contextlib.ExitStack() as stack:
        if progress is None:
            progress = stack.enter_context(Progress.on(sys.stderr, json=json))
        platforms = platforms_of(plan.images)
        engine = stack.enter_context(open_engine(progress.report, *BUILD_FEATURES, platforms=platforms))
        builders = options.builders or project.builders
        if not remote_builders.is_remote(builders):
            builders = ()
        options = replace(options, builders=builders, cache=project.build_cache)
        began = datetime.now(UTC).replace(microsecond=0)
        if not builders:
            compose.compose_images(workspace, plan.images, engine, progress.report, options)
        built = builder.build_images(
            project, plan.images, engine, progress, options, VerifiedImages(project.state)
        )
        times = build_log.Build(began.isoformat(), ", ".join(builders), progress.steps())
        build_log.record_build(times, project.state)
        record_layers(project, built, engine)
    require_budgets(workspace, built, report)
    return built


def ensure_built(selection: Selection, report: Reporter, *, tested: bool = False) -> tuple[BuiltImage, ...]:
    """Return built images. Images that are missing or changed are built first.

    With `tested`, an image that was never smoke-tested here is not built. Raises NotReleasableError.
    """
    state = selection.workspace.project.state
    plan = runnable_plan(selection, selection.plan, report)
    with open_engine(report, platforms=platforms_of(plan.images)) as engine:
        stored_images = [(image, engine.image(image.reference)) for image in plan.images]
        built = tuple(
            BuiltImage.stored_as(stored, image, engine, state) for image, stored in stored_images if stored
        )
    if len(built) == len(stored_images):
        return built
    problems = Problems()
    for image, stored in stored_images:
        if tested and not stored and not is_directory(state / "smoke" / image.name):
            message = f"`{image.name}` is neither built nor tested"
            problems.add(Diagnostic(message, hint=f"run `bake release {image.name}`"))
    problems.raise_as(NotReleasableError)
    return build_plan(selection, plan, report)


def manifest_digests(selection: Selection, report: Reporter) -> tuple[tuple[BuiltImage, Digest], ...]:
    """Return built images with the digests of their manifests, which a push gives to registries."""
    images = selection.plan.images
    with open_engine(report, platforms=platforms_of(images)) as engine:
        packer = Packer(engine, selection.workspace.project.cache)
        return tuple(
            (built, packer.pack(built, FORMS[built.image.format], report).manifest.digest)
            for built in size_check.stored_images(packer, images, selection.patterns, report)
        )


def named_bases(workspace: Workspace, names: Iterable[str]) -> dict[str, BootstrappedBase]:
    """Return the bootstrapped bases, such as `debian-12`, among names of images. Raises UsageError."""
    names = [name for name in names if name not in workspace.recipes]
    if not names:
        return {}
    bases = bootstrapped_bases(workspace.catalog, workspace.apt_locks)
    for name in names:
        if name not in bases and (near := nearest(name, [*workspace.recipes, *bases])) in bases:
            raise UsageError(f"unknown image or base `{name}`", hint=f"did you mean `{near}`?")
    return {name: bases[name] for name in names if name in bases}


def make_bases(
    project: ProjectSettings,
    bases: Mapping[str, BootstrappedBase],
    report: Reporter,
    options: BuildOptions = _DEFAULTS,
) -> None:
    """Make bootstrapped bases, unless the engine has them."""
    for name, base in bases.items():
        _make_base(project, name, base, report, options)


def _make_base(
    project: ProjectSettings, name: str, base: BootstrappedBase, report: Reporter, options: BuildOptions
) -> None:
    with open_engine(report, *BUILD_FEATURES, platforms=[base.platform]) as engine:
        files = debs(base.debs)
        needed = RequiredFiles(files, dict.fromkeys(files, (f"base {name}",)), (files,))
        source, offline = options.source, options.offline
        with open_fetcher(project, report, source=source, offline=offline) as fetcher:
            get = partial(prefetch.download_packages, Downloads(needed, fetcher))
            base_image.ensure_base(base, engine=engine, state=project.state, report=report, get=get)


def runnable_plan(selection: Selection, plan: Plan, report: Reporter) -> Plan:
    """Return the part of a plan whose programs the engine runs.

    Images that are named and left out are failures; those that only a glob matches are reported. Raises
    EngineError if none is left.
    """
    images = plan.images
    platforms = {*platforms_of(images)}
    if platforms == {PLATFORM}:
        # All or none, as `open_engine` finds
        return plan
    daemon = provision.ensure(provision.ask_at_terminal, report)
    for platform in sorted(platforms):
        try:
            emulation.require_platforms(daemon, [platform])
        except EngineError as error:
            foreign = [image.name for image in images if image.platform == platform]
            images = tuple(image for image in images if image.platform != platform)
            if not images:
                raise
            if named := [name for name in foreign if name in selection.patterns]:
                leave_out(selection.workspace, error)
            for name in sorted({*foreign}.difference(named)):
                [cause] = error.diagnostics
                report(f"left out {name}: {cause.message}; {cause.hint}")
    return replace(plan, images=images)


def pinned_plan(workspace: Workspace, plan: Plan) -> Plan:
    """Return the part of a plan whose files have checksums. Images that are left out are failures.

    Raises BuildError if none is left.
    """
    problems = Problems()
    for image in plan.images:
        for artifact in image.unpinned:
            message = f"`{image.name}` needs `{artifact.file}`, which has no recorded checksum"
            hint = f"run `bake lock {image.name}`, and compare the sha256 with the publisher's"
            problems.add(Diagnostic(message, artifact.location, hint=hint))
    if not problems:
        return plan
    error = BuildError.of(*problems.all)
    pinned = tuple(image for image in plan.images if not image.unpinned)
    if not pinned:
        raise error
    leave_out(workspace, error)
    return replace(plan, images=pinned)


def platforms_of(images: Iterable[Image]) -> tuple[str, ...]:
    """Return the platforms of images, each once."""
    return tuple(dict.fromkeys(image.platform for image in images))


def record_layers(project: ProjectSettings, built: Iterable[BuiltImage], engine: Engine) -> None:
    """Record the layers that the steps of images gave, unless this content of an image is recorded."""
    known = step_layers.read(project.state)
    rows: list[StepLayer] = []
    for item in built:
        pinned = [layer.is_pinned for layer in item.image.layer_keys]
        own = step_results.content_row(item.image, item.content)
        if own not in known and (any(pinned) or not pinned):
            rows += step_results.built_rows(
                item.image, read_configuration(item.stored, engine, project.state)
            )
    step_layers.record(project.state, rows, project.state / "locks")


def require_budgets(workspace: Workspace, built: Sequence[BuiltImage], report: Reporter) -> None:
    """Check the size budgets of images."""
    if any(item.image.budgets for item in built):
        platforms = platforms_of(item.image for item in built)
        with open_engine(report, platforms=platforms) as engine:
            packer = Packer(engine, workspace.project.cache)
            reader = size_check.SizeReader(packer, workspace.templates, report)
            size_check.require_budgets(reader, built)
