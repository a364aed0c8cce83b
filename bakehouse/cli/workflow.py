"""The pipeline from a plan to an address, spelled out: each step takes the step before's result."""

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from bakehouse.analysis import size_check
from bakehouse.build import build, rehearse, run_log
from bakehouse.build.build_inputs import build_inputs
from bakehouse.build.built_image import BuiltImage
from bakehouse.build.progress import Progress
from bakehouse.build.rehearse import Outcome, Rehearsed
from bakehouse.cli import tables
from bakehouse.cluster import junit, smoke, smoke_report
from bakehouse.cluster.cluster import OutputHandler
from bakehouse.cluster.job import TrainingJob
from bakehouse.cluster.job_report import JobReport
from bakehouse.cluster.smoke_report import SmokeReport
from bakehouse.engine import daemon_info, docker, provision
from bakehouse.engine.daemon_info import Feature
from bakehouse.engine.protocol import Engine
from bakehouse.errors import Diagnostic, EngineError, SmokeError, UsageError
from bakehouse.plan.model import BootstrappedBase, Image
from bakehouse.plan.planner import bootstrapped
from bakehouse.plan.workspace import (
    Workspace,
    plan_images,
    plan_resolutions,
    render_images,
    resolve_all,
    select,
)
from bakehouse.publish import publish
from bakehouse.publish.publish import PublishOptions
from bakehouse.publish.releases import ReleaseRecord
from bakehouse.registry import destination
from bakehouse.sagemaker import local_job
from bakehouse.sagemaker.distribution import Framework
from bakehouse.sagemaker.local_job import OpenStream, RunRequest
from bakehouse.util.files import write_whole
from bakehouse.util.oci import Digest
from bakehouse.util.suggest import suggestion
from bakehouse.util.terminal import Reporter

_BUILDS = (Feature.LOCAL, Feature.PLATFORM, Feature.ROOTFUL, Feature.BRIDGE, Feature.BUILDX)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What the options of a task ask for."""

    json: bool = False
    """Progress as JSON lines."""
    only: tuple[str, ...] = ()
    gpus: int = 0
    deadline: float | None = None
    report: Path | None = None
    """Where to write what smoke tests saw, for another machine."""
    terms: PublishOptions = field(default_factory=PublishOptions)
    offline: bool = False
    """Build from files that are here, and ask no network."""
    source: str = ""
    """A folder that `fetch` has filled, or another mirror, to look into first."""
    real_packages: bool = False
    """Let a rehearsal fetch every package of a lock, however large."""


@contextlib.contextmanager
def engine(say: Reporter, *features: Feature) -> Iterator[Engine]:
    """The engine this machine reaches, or one installed and started for it, swept of what dead runs left."""
    found = provision.ensure(provision.ask_at_terminal, say)
    daemon_info.require(found, *features)
    connected = docker.connect()
    with contextlib.closing(connected):
        connected.sweep()
        yield connected


def build_images(
    workspace: Workspace,
    patterns: Sequence[str],
    say: Reporter,
    options: RunOptions,
    progress: Progress | None = None,
) -> tuple[BuiltImage, ...]:
    """Render what changed, build all images in one graph, and compare declared with installed."""
    resolutions = resolve_all(workspace, select(workspace, patterns))
    for line in tables.warnings(resolutions).splitlines():
        say(line)
    plan = plan_resolutions(workspace, resolutions)
    render_images(workspace, plan, say)
    with contextlib.ExitStack() as stack:
        if progress is None:
            progress = stack.enter_context(Progress.on(sys.stderr, json=options.json))
        connected = stack.enter_context(engine(progress.report, *_BUILDS))
        built = build.build_images(
            workspace.project,
            plan.images,
            connected,
            progress,
            source=options.source,
            offline=options.offline,
        )
    today = datetime.now(UTC).date()
    _record(workspace, {one.image.name: run_log.built_run(one.image, today) for one in built})
    _require_budgets(workspace, built, say)
    return built


def _require_budgets(workspace: Workspace, built: Sequence[BuiltImage], say: Reporter) -> None:
    """Hold images to what their recipes let them weigh."""
    if any(one.image.budgets for one in built):
        with engine(say, Feature.PLATFORM) as connected:
            scale = size_check.SizeReader(connected, workspace.templates, say)
            size_check.require_budgets(scale, built, workspace.project.state)


def rehearse_images(
    workspace: Workspace, patterns: Sequence[str], say: Reporter, options: RunOptions
) -> Outcome:
    """Let BuildKit execute every step of images, with stand-ins for what can't be had here.

    All are tried; those that went through are written down group by group.
    """
    project, plan = workspace.project, plan_images(workspace, patterns)
    debian = _debian(workspace)
    prepared = rehearse.prepare(
        plan.images, workspace.templates, debian, project.state, real=options.real_packages
    )
    with contextlib.ExitStack() as stack:
        progress = stack.enter_context(Progress.on(sys.stderr, json=options.json))
        connected = stack.enter_context(engine(progress.report, *_BUILDS))
        provision.ensure_tools(provision.ask_at_terminal, progress.report, "mmdebstrap")
        downloads = stack.enter_context(rehearse.start_downloads(prepared, debian, project, progress.report))
        given = build_inputs(
            state=project.state,
            mirrors=project.mirrors,
            ca=project.ca,
            report=progress.report,
            suites=[
                rehearse.SUITE,
                *(one.base.suite for one in plan.images if isinstance(one.base, BootstrappedBase)),
            ],
            downloads=downloads,
        )
        return rehearse.run_rehearsals(
            prepared,
            debian=debian,
            state=project.state,
            engine=connected,
            downloads=downloads,
            inputs=stack.enter_context(given),
            progress=progress,
            restart=partial(build.restart, progress.report),
            done=lambda made: _record(workspace, _rehearsals(made)),
        )


def _rehearsals(made: Sequence[Rehearsed]) -> dict[str, run_log.Run]:
    today = datetime.now(UTC).date()
    return {
        one.rehearsal.real.name: run_log.rehearsed_run(one.rehearsal.real, one.rehearsal.stubs, today)
        for one in made
    }


def _debian(workspace: Workspace) -> BootstrappedBase:
    """The base that stand-ins of other bases are made of."""
    lock = workspace.apt_locks.suites.get(rehearse.SUITE)
    found = [
        bootstrapped(component.name, release.version, base, lock.base(base.packages) if lock else ())
        for component in workspace.catalog.components.values()
        for release in component.releases
        for variant in release.variants
        if (base := variant.spec.base) and base.suite == rehearse.SUITE
    ]
    if not found:
        message = f"no component bootstraps Debian `{rehearse.SUITE}`, which stand-ins are made of"
        raise EngineError(Diagnostic(message))
    return found[0]


def _record(workspace: Workspace, made: Mapping[str, run_log.Run]) -> None:
    """Write down how far images were run; of a user's project, its own images alone."""
    project = workspace.project
    own = {
        name: run
        for name, run in made.items()
        if workspace.recipes[name].location.path.resolve().is_relative_to(project.root)
    }
    if own:
        run_log.record_runs(project.state, own, project.state / "locks")


def smoke_images(
    workspace: Workspace, built: Sequence[BuiltImage], say: Reporter, options: RunOptions
) -> tuple[SmokeReport, ...]:
    """Try built images as clusters; every image is tried, then the first failures are raised."""
    if options.report and len(built) > 1:
        message = f"one report is of one image, and these are {len(built)}"
        raise UsageError(Diagnostic(message, hint="name one with `--report`"))
    state = workspace.project.state
    reports = []
    failures: list[Diagnostic] = []
    with engine(say, *_BUILDS) as connected:
        for one in built:
            report = smoke.smoke(
                connected,
                one,
                state,
                only=options.only,
                gpus=options.gpus,
                deadline=options.deadline,
                report=say,
            )
            write_whole(state / "smoke" / one.image.name / "junit.xml", junit.text(report))
            if options.report:
                smoke_report.write(report, options.report)
            reports.append(report)
            try:
                smoke_report.require_passed(report)
            except SmokeError as failure:
                failures += failure.diagnostics
    if failures:
        raise SmokeError(*failures)
    return tuple(reports)


def push_images(
    workspace: Workspace, built: Sequence[BuiltImage], say: Reporter, options: RunOptions
) -> tuple[ReleaseRecord, ...]:
    """Push what may be released, or candidates, and write it into the ledger."""
    _require_budgets(workspace, built, say)
    return publish.push_images(workspace.project, built, say, options.terms)


def promote_image(workspace: Workspace, name: str, say: Reporter, options: RunOptions) -> ReleaseRecord:
    """Release the newest candidate of an image."""
    image = _only(workspace, name)
    return publish.promote_image(workspace.project, image, say, options.terms)


def release_images(
    workspace: Workspace, patterns: Sequence[str], say: Reporter, options: RunOptions
) -> tuple[ReleaseRecord, ...]:
    """Build, smoke and push."""
    destination.check(workspace.project, options.terms.registry)
    built = build_images(workspace, patterns, say, options)
    state = workspace.project.state
    seen = {one.digest: smoke_report.load_all(state, one.digest) for one in built}
    untried = [
        one
        for one in built
        if not (report := seen[one.digest])
        or not report.passed
        or (options.gpus and smoke_report.release_blockers(report, one.image.required))
    ]
    smoke_images(workspace, untried, say, options)
    return push_images(workspace, built, say, options)


def built_images(workspace: Workspace, patterns: Sequence[str], say: Reporter) -> tuple[BuiltImage, ...]:
    """The images as they were built before; what is missing or changed is built now."""
    plan = plan_images(workspace, patterns)
    with engine(say, Feature.PLATFORM) as connected:
        found = [(image, connected.image(image.reference)) for image in plan.images]
    built = tuple(
        BuiltImage(image, Digest(stored.digest), stored.bytes, stored.is_rehearsed)
        for image, stored in found
        if stored
    )
    if len(built) == len(found):
        return built
    return build_images(workspace, patterns, say, RunOptions())


def pulled_image(workspace: Workspace, name: str, image_uri: str, say: Reporter) -> BuiltImage:
    """An image that was pulled, as one of the recipe that it was built from."""
    image = _only(workspace, name)
    with engine(say, Feature.PLATFORM) as connected:
        stored = connected.image(image_uri)
    if stored is None:
        raise UsageError(Diagnostic(f"there is no `{image_uri}` here", hint=f"run `docker pull {image_uri}`"))
    if stored.key != image.key:
        facts = (("recipe's key", image.key), ("image's key", stored.key or "none"))
        hint = "check out the commit that it was published from: `./bake releases` tells it"
        message = f"`{image_uri}` was not built from this recipe of `{image.name}`"
        raise UsageError(Diagnostic(message, facts=facts, hint=hint))
    return BuiltImage(image, Digest(stored.digest), stored.bytes, stored.is_rehearsed)


def _only(workspace: Workspace, name: str) -> Image:
    images = plan_images(workspace, [name]).images
    if len(images) > 1:
        message = f"`{name}` means {len(images)} images"
        raise UsageError(Diagnostic(message, hint="name one of them; `./bake list` shows them"))
    return images[0]


def framework_of(workspace: Workspace, name: str) -> tuple[Framework, str]:
    """The framework of an image of the catalogue and its version; none of others, which nobody knows."""
    recipe = workspace.recipes.get(name)
    if recipe is None:
        return "", ""
    [resolution] = resolve_all(workspace, [recipe])
    if version := resolution.version_of("pytorch"):
        return "pytorch", version
    version = resolution.version_of("tensorflow") or ""
    return ("tensorflow", version) if version else ("", "")


@contextlib.contextmanager
def _nobody_listens(job: TrainingJob) -> Iterator[OutputHandler]:
    yield lambda host, data: None


def run_job(
    workspace: Workspace,
    image: str,
    request: RunRequest,
    say: Reporter = print,
    listen: OpenStream = _nobody_listens,
) -> JobReport:
    """Run a user's job in an image of the catalogue, built if it isn't yet, or in any that the engine has."""
    project = workspace.project
    prepared = local_job.prepare(request, image, workspace.catalog, *framework_of(workspace, image))
    for warning in prepared.warnings:
        say(f"note: {warning}")
    if image in workspace.recipes:
        [built] = built_images(workspace, [image], say)
        reference = built.digest
    with engine(say, Feature.LOCAL, Feature.PLATFORM, Feature.BRIDGE) as connected:
        if image not in workspace.recipes:
            stored = connected.image(image)
            if stored is None:
                hint = suggestion(image, workspace.recipes) or "`./bake list` names the images"
                message = f"`{image}` is no image of a recipe, and the engine has none of that name"
                raise UsageError(Diagnostic(message, hint=hint))
            reference = Digest(stored.digest)
        job = replace(prepared.job, image=reference)
        address = daemon_info.inspect().bridge or ""
        with listen(job) as heard:
            folder = project.state / "runs" / job.name
            return local_job.run(connected, replace(prepared, job=job), folder, address, heard)
