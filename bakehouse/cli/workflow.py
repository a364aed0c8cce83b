"""The pipeline from a plan to an image URI: each function takes the result of the one before."""

import contextlib
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from bakehouse.analysis import size_check
from bakehouse.builder import base_image, build, build_log, prefetch, rehearse, remote_builders, run_log
from bakehouse.builder.build_inputs import Downloads, build_inputs
from bakehouse.builder.built_image import BuiltImage
from bakehouse.builder.pack import Packer
from bakehouse.builder.progress import Progress
from bakehouse.builder.rehearse import RehearsalResults, Rehearsed
from bakehouse.catalog.base_contents import read_contents
from bakehouse.catalog.project import Project
from bakehouse.catalog.user_smoke import USER_CODE
from bakehouse.cli import image_docs, smoke_runners, tables
from bakehouse.cli.smoke_runners import PrintedJob
from bakehouse.cluster import junit, remote_smoke, smoke, smoke_report
from bakehouse.cluster.cluster import OutputHandler
from bakehouse.cluster.job import TrainingJob
from bakehouse.cluster.job_report import JobReport
from bakehouse.cluster.remote_smoke import RemoteSmoke
from bakehouse.cluster.smoke_report import SmokeReport
from bakehouse.engine import daemon_info, docker, emulation, provision
from bakehouse.engine.daemon_info import Feature
from bakehouse.engine.protocol import Engine
from bakehouse.errors import Diagnostic, EngineError, NotReleasableError, Problems, SmokeError, UsageError
from bakehouse.fetch.required_files import RequiredFiles, debs
from bakehouse.jobs import code_upload
from bakehouse.jobs.distribution import Framework
from bakehouse.ledger.releases import ReleaseRecord
from bakehouse.plan.model import BootstrappedBase, Image, Plan, RegistryBase
from bakehouse.plan.planner import bootstrapped_bases
from bakehouse.plan.workspace import (
    Workspace,
    leave_out,
    plan_images,
    plan_resolutions,
    render_images,
    require_valid,
    resolve_all,
    select,
)
from bakehouse.publish import attest, preflight, promote, publish, signed_report
from bakehouse.publish.publish import PublishOptions
from bakehouse.registry import destination
from bakehouse.registry.manifest import FORMS
from bakehouse.resolve.resolver import Resolution
from bakehouse.sagemaker import local_job, smoke_job
from bakehouse.sagemaker.follow import EVERY_FEW_SECONDS, Pace
from bakehouse.sagemaker.launch import JobCallbacks
from bakehouse.sagemaker.launch_report import LaunchReport
from bakehouse.sagemaker.local_job import OpenStream, RunRequest
from bakehouse.sagemaker.smoke_job import SmokeJob
from bakehouse.util.files import write_whole
from bakehouse.util.format import format_count
from bakehouse.util.oci import PLATFORM, Digest
from bakehouse.util.suggest import suggestion
from bakehouse.util.terminal import Reporter

_BUILDS = (Feature.LOCAL, Feature.PLATFORM, Feature.ROOTFUL, Feature.BRIDGE, Feature.BUILDX)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of a task."""

    json: bool = False
    """Print progress as JSON lines."""
    only: tuple[str, ...] = ()
    gpus: int = 0
    hosts: int = 1
    """Hosts of a smoke test on other machines."""
    image_uri: str = ""
    """The candidate to test on other machines; empty means the newest."""
    deadline: float | None = None
    report: Path | None = None
    """File for the smoke-test results, for `promote` on another machine."""
    terms: PublishOptions = field(default_factory=PublishOptions)
    builders: tuple[str, ...] = ()
    """Builders of buildx; the default is those of the project."""
    build_cache: str = ""
    """Repository of the build cache; the default is that of the project."""
    offline: bool = False
    """Build from local files, without the network."""
    source: str = ""
    """A directory filled by `fetch`, or another mirror, to search first."""
    real_packages: bool = False
    """Download every package of a lock for a rehearsal, whatever its size."""


@contextlib.contextmanager
def engine(
    report: Reporter, *features: Feature, platforms: Collection[str] = (PLATFORM,)
) -> Iterator[Engine]:
    """Yield this machine's engine, installed and started if needed, without remains of ended runs.

    With the feature PLATFORM, it must run the programs of all `platforms`.
    """
    daemon = provision.ensure(provision.ask_at_terminal, report)
    # An engine on an Arm machine runs arm64 images
    needed = [feature for feature in features if feature != Feature.PLATFORM or PLATFORM in platforms]
    daemon_info.require(daemon, *needed)
    if Feature.PLATFORM in features:
        emulation.require_platforms(daemon, platforms)
    connected = docker.connect()
    with contextlib.closing(connected):
        connected.sweep()
        yield connected


def _platforms(images: Iterable[Image]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(image.platform for image in images))


def without_foreign(workspace: Workspace, plan: Plan, patterns: Collection[str], report: Reporter) -> Plan:
    """Return a plan without the images whose programs the engine does not run.

    Those that patterns name are failures; those that only a glob matches are reported. Raises EngineError if
    none is left.
    """
    images = plan.images
    for platform in sorted({*_platforms(images)} - {PLATFORM}):
        daemon = provision.ensure(provision.ask_at_terminal, report)
        try:
            emulation.require_platforms(daemon, [platform])
        except EngineError as error:
            foreign = [image.name for image in images if image.platform == platform]
            images = tuple(image for image in images if image.platform != platform)
            if not images:
                raise
            if named := [name for name in foreign if name in patterns]:
                leave_out(workspace, error)
            for name in sorted({*foreign}.difference(named)):
                [cause] = error.diagnostics
                report(f"left out {name}: {cause.message}; {cause.hint}")
    return replace(plan, images=images)


def build_images(
    workspace: Workspace,
    patterns: Sequence[str],
    report: Reporter,
    options: RunOptions,
    progress: Progress | None = None,
) -> tuple[BuiltImage, ...]:
    """Build the images that match names or globs, as `build_plan` does."""
    resolutions = resolve_all(workspace, select(workspace, patterns))
    plan = plan_resolutions(workspace, resolutions)
    return build_plan(workspace, resolutions, plan, report, options, progress, patterns)


def build_plan(
    workspace: Workspace,
    resolutions: Sequence[Resolution],
    plan: Plan,
    report: Reporter,
    options: RunOptions,
    progress: Progress | None = None,
    patterns: Collection[str] = (),
) -> tuple[BuiltImage, ...]:
    """Render changed files, build all images as one graph, and compare installed with declared versions.

    `patterns` selected the images: see `without_foreign`.
    """
    for line in tables.warnings(resolutions).splitlines():
        report(line)
    render_images(workspace, plan, report, pages=image_docs.pages(workspace, plan.images))
    plan = without_foreign(workspace, plan, patterns, report)
    with contextlib.ExitStack() as stack:
        if progress is None:
            progress = stack.enter_context(Progress.on(sys.stderr, json=options.json))
        connected = stack.enter_context(engine(progress.report, *_BUILDS, platforms=_platforms(plan.images)))
        builders = _remote_builders(workspace.project, options)
        began = datetime.now(UTC).replace(microsecond=0)
        built = build.build_images(
            workspace.project,
            plan.images,
            connected,
            progress,
            source=options.source,
            offline=options.offline,
            builders=builders,
            cache=options.build_cache or workspace.project.build_cache,
        )
        times = build_log.Build(began.isoformat(), ", ".join(builders), progress.steps())
        build_log.record_build(times, workspace.project.state)
    today = datetime.now(UTC).date()
    _record(workspace, {item.image.name: run_log.built_run(item.image, today) for item in built})
    _require_budgets(workspace, built, report)
    return built


def _remote_builders(project: Project, options: RunOptions) -> tuple[str, ...]:
    """Return the builders of a build; empty if it is this machine's engine."""
    names = options.builders or project.builders
    return names if remote_builders.is_remote(names) else ()


def image_digests(
    workspace: Workspace, patterns: Sequence[str], report: Reporter
) -> tuple[tuple[BuiltImage, Digest], ...]:
    """Return built images with the digests of their manifests, which a push gives to registries."""
    images = plan_images(workspace, patterns).images
    with engine(report, Feature.PLATFORM, platforms=_platforms(images)) as connected:
        packer = Packer(connected, workspace.project.cache)
        return tuple(
            (built, packer.pack(built, FORMS[built.image.format], report).manifest.digest)
            for built in size_check.stored_images(packer, images, patterns, report)
        )


def _require_budgets(workspace: Workspace, built: Sequence[BuiltImage], report: Reporter) -> None:
    """Check the size budgets of images."""
    if any(item.image.budgets for item in built):
        with engine(
            report, Feature.PLATFORM, platforms=_platforms(item.image for item in built)
        ) as connected:
            packer = Packer(connected, workspace.project.cache)
            reader = size_check.SizeReader(packer, workspace.templates, report)
            size_check.require_budgets(reader, built)


def rehearse_images(
    workspace: Workspace, patterns: Sequence[str], report: Reporter, options: RunOptions
) -> RehearsalResults:
    """Run every build step of images, with stubs for unavailable files.

    A failing image does not stop the others. Each group of images is recorded when it ends.
    """
    project = workspace.project
    plan = without_foreign(workspace, plan_images(workspace, patterns), patterns, report)
    debian = _debian(workspace)
    prepared = rehearse.prepare(
        plan.images, workspace.templates, debian, project.state, real=options.real_packages
    )
    with contextlib.ExitStack() as stack:
        progress = stack.enter_context(Progress.on(sys.stderr, json=options.json))
        connected = stack.enter_context(engine(progress.report, *_BUILDS, platforms=_platforms(plan.images)))
        provision.ensure_tools(provision.ask_at_terminal, progress.report, "mmdebstrap")
        downloads = stack.enter_context(rehearse.start_downloads(prepared, debian, project, progress.report))
        given = build_inputs(
            state=project.state,
            mirrors=project.mirrors,
            ca=project.ca,
            report=progress.report,
            suites=[
                rehearse.SUITE,
                *(image.base.suite for image in plan.images if isinstance(image.base, BootstrappedBase)),
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
            done=lambda rehearsed: _record(workspace, _rehearsals(rehearsed)),
        )


def _rehearsals(rehearsed: Sequence[Rehearsed]) -> dict[str, run_log.Run]:
    today = datetime.now(UTC).date()
    return {
        item.rehearsal.real.name: run_log.rehearsed_run(item.rehearsal.real, item.rehearsal.stubs, today)
        for item in rehearsed
    }


def make_base(workspace: Workspace, name: str, report: Reporter) -> BootstrappedBase:
    """Make a bootstrapped base, such as `debian-12`, unless the engine has it. Raises UsageError."""
    project, bases = workspace.project, bootstrapped_bases(workspace.catalog, workspace.apt_locks)
    base = bases.get(name)
    if base is None:
        raise UsageError(f"unknown base `{name}`", hint=suggestion(name, bases))
    with engine(report, *_BUILDS, platforms=[base.platform]) as connected:
        provision.ensure_tools(provision.ask_at_terminal, report, "mmdebstrap")
        files = debs(base.debs)
        needed = RequiredFiles(files, dict.fromkeys(files, (f"base {name}",)), (files,))
        with prefetch.open_fetcher(project, report) as fetcher:
            get = partial(prefetch.download_packages, Downloads(needed, fetcher))
            base_image.ensure_base(base, engine=connected, state=project.state, report=report, get=get)
    return base


def _debian(workspace: Workspace) -> BootstrappedBase:
    """Return the base that stubs of other bases are made from."""
    bases = [
        base
        for base in bootstrapped_bases(workspace.catalog, workspace.apt_locks).values()
        if base.suite == rehearse.SUITE
    ]
    if not bases:
        raise EngineError(f"no component bootstraps Debian `{rehearse.SUITE}`, which stubs of bases need")
    return bases[0]


def _record(workspace: Workspace, runs: Mapping[str, run_log.Run]) -> None:
    """Record how far images were run. A user's project records only its own images."""
    project = workspace.project
    own = {
        name: run
        for name, run in runs.items()
        if workspace.recipes[name].location.path.resolve().is_relative_to(project.root)
    }
    if own:
        run_log.record_runs(project.state, own, project.state / "locks")


def _keys_of_base(workspace: Workspace, image: Image) -> frozenset[str]:
    """Return the sha256 of the private keys that are recorded for the vendor base of an image."""
    digest = image.base.digest if isinstance(image.base, RegistryBase) else None
    contents = digest and read_contents(workspace.project.recipe_roots, digest)
    return contents.private_keys if contents else frozenset()


def smoke_images(
    workspace: Workspace, built: Sequence[BuiltImage], report: Reporter, options: RunOptions
) -> tuple[SmokeReport, ...]:
    """Smoke-test built images. A failing image does not stop the others; failures are raised at the end."""
    _require_smoke_options([item.image for item in built], options)
    sign = _report_signer(workspace, options)
    state = workspace.project.state
    results = []
    failures: list[Diagnostic] = []
    with engine(report, *_BUILDS, platforms=_platforms(item.image for item in built)) as connected:
        for item in built:
            result = smoke.smoke(
                connected,
                item,
                state,
                only=options.only,
                gpus=options.gpus,
                deadline=options.deadline,
                base_keys=_keys_of_base(workspace, item.image),
                report=report,
            )
            write_whole(state / "smoke" / item.image.name / "junit.xml", junit.text(result))
            outcomes = [(check.name, check.outcome) for check in result.checks]
            smoked = run_log.smoked_run(item.image, outcomes, datetime.now(UTC).date())
            if not options.only or run_log.is_rerun(smoked, run_log.load_runs(state).get(item.image.name)):
                _record(workspace, {item.image.name: smoked})
            if options.report:
                smoke_report.write(result, options.report, sign)
            results.append(result)
            try:
                smoke_report.require_passed(result)
            except SmokeError as failure:
                failures += failure.diagnostics
    if failures:
        raise SmokeError.of(*failures)
    return tuple(results)


def remote_smoke_of(
    workspace: Workspace, name: str, options: RunOptions, candidate: ReleaseRecord
) -> RemoteSmoke:
    """Return the smoke checks of a candidate for other machines. Raises UsageError for another build."""
    image = _only(workspace, name)
    promote.require_same_key(candidate, image)
    _require_smoke_options([image], options)
    return RemoteSmoke(
        image,
        candidate.image_uri,
        Digest(candidate.digest),
        hosts=options.hosts,
        gpus=options.gpus,
        only=options.only,
        deadline=options.deadline,
        base_keys=_keys_of_base(workspace, image),
    )


def smoke_on_sagemaker(
    workspace: Workspace,
    name: str,
    job: SmokeJob,
    callbacks: JobCallbacks,
    options: RunOptions,
    pace: Pace = EVERY_FEW_SECONDS,
) -> tuple[LaunchReport, SmokeReport | None]:
    """Smoke-test the newest candidate in Amazon ECR as a training job, and store the report by its digest.

    Raises SmokeError for failed checks.
    """
    project = workspace.project
    candidate = promote.find_candidate(project, _only(workspace, name).name, "ecr", options.image_uri)
    gpus = smoke_job.check(job, candidate, workspace.catalog)
    options = replace(options, gpus=gpus, hosts=job.instance_count)
    remote = remote_smoke_of(workspace, name, options, candidate)
    sign = _report_signer(workspace, options)
    logs = project.state / "smoke" / remote.image.name / "sagemaker"
    launched, result = smoke_job.smoke_on_sagemaker(
        remote, job, workspace.catalog, project.prices, logs, callbacks, pace
    )
    if result:
        _keep_remote_report(workspace, result, options, sign)
    return launched, result


def smoke_elsewhere(
    workspace: Workspace,
    name: str,
    runner: str,
    seconds: int,
    results: Path | None,
    report: Reporter,
    options: RunOptions,
) -> SmokeReport | PrintedJob:
    """Smoke-test the newest candidate over ssh, or read the results of a job; otherwise write such a job.

    Raises SmokeError for failed checks.
    """
    project = workspace.project
    image = _only(workspace, name)
    candidate = promote.find_candidate(project, image.name, "", options.image_uri)
    remote = remote_smoke_of(workspace, name, options, candidate)
    sign = _report_signer(workspace, options)
    directory = project.state / "smoke" / image.name / runner.partition(":")[0]
    if results:
        text = results.read_text(encoding="utf-8", errors="replace")
        document = remote_smoke.read_results(text, f"`{results}`")
    elif runner.startswith(smoke_runners.SSH):
        document = smoke_runners.run_over_ssh(remote, runner, seconds, report)
    else:
        return smoke_runners.write_job(runner, remote, candidate.tags[0], directory, seconds)
    gpus = f" with {format_count(options.gpus, 'GPU')}" if options.gpus else ""
    result = remote.report(document, directory / "logs", f"{runner}{gpus}", f"{runner}{gpus}")
    _keep_remote_report(workspace, result, options, sign)
    return result


def _report_signer(workspace: Workspace, options: RunOptions) -> smoke_report.Sign | None:
    """Return what signs the file of `--report`. Raises TrustError for an unusable key, before any check."""
    return signed_report.signer(workspace.project) if options.report else None


def _keep_remote_report(
    workspace: Workspace, result: SmokeReport, options: RunOptions, sign: smoke_report.Sign | None
) -> None:
    """Store a report from other machines by its digest if it is complete. Raises SmokeError for failures."""
    state = workspace.project.state
    write_whole(state / "smoke" / result.image / "junit.xml", junit.text(result))
    if options.report:
        smoke_report.write(result, options.report, sign)
    if not result.unfinished:
        smoke_report.store(result, state)
    smoke_report.require_passed(result)


def require_smoke_options(workspace: Workspace, patterns: Sequence[str], options: RunOptions) -> None:
    """Raise UsageError for options that do not fit the selected images, before these are built."""
    if options.only or options.report:
        _require_smoke_options(plan_images(workspace, patterns).images, options)


def _require_smoke_options(images: Sequence[Image], options: RunOptions) -> None:
    if options.report and len(images) > 1:
        raise UsageError(f"`--report` needs exactly one image, got {len(images)}")
    for image in images:
        smoke.require_checks(image, options.only)


def push_images(
    workspace: Workspace, built: Sequence[BuiltImage], report: Reporter, options: RunOptions
) -> tuple[ReleaseRecord, ...]:
    """Push images that may be released, or candidates, and record them in the ledger."""
    _require_budgets(workspace, built, report)
    try:
        return publish.push_images(workspace.project, built, report, options.terms)
    finally:
        image_docs.update_pages(workspace, [item.image for item in built])


def promote_image(workspace: Workspace, name: str, report: Reporter, options: RunOptions) -> ReleaseRecord:
    """Release the newest candidate of an image."""
    image = _only(workspace, name)
    record = promote.promote_image(workspace.project, image, report, options.terms)
    image_docs.update_pages(workspace, [image])
    return record


def check_access(workspace: Workspace, patterns: Sequence[str], terms: PublishOptions) -> None:
    """Raise an error before a build if the destination would reject the push of an image."""
    destination.check_selection(workspace.project, terms.registry)
    attest.bundler_of(workspace.project)
    names = [recipe.name for recipe in select(workspace, patterns)]
    preflight.check_access(workspace.project, terms.registry, names, create=terms.create)


def release_images(
    workspace: Workspace, patterns: Sequence[str], report: Reporter, options: RunOptions
) -> tuple[ReleaseRecord, ...]:
    """Build, smoke-test and push images."""
    check_access(workspace, patterns, options.terms)
    built = build_images(workspace, patterns, report, options)
    state = workspace.project.state
    untested = [
        item
        for item in built
        if _needs_smoke(smoke_report.load_all(state, item.digest), item.image, options.gpus)
    ]
    smoke_images(workspace, untested, report, options)
    return push_images(workspace, built, report, options)


def _needs_smoke(report: SmokeReport | None, image: Image, gpus: int) -> bool:
    """Return whether a test on this machine can bring what a release needs."""
    if report is None:
        return True
    report = smoke_report.current(report, image.smoke)
    has_user_code = any(check.name == USER_CODE for check in report.checks)
    lacks_user_code = image.smoke is not None and not has_user_code
    blocked = smoke_report.release_blockers(report, image.required, image.smoke)
    return not report.passed or lacks_user_code or bool(gpus and blocked)


def built_images(
    workspace: Workspace, patterns: Sequence[str], report: Reporter, *, tested: bool = False
) -> tuple[BuiltImage, ...]:
    """Return built images. Images that are missing or changed are built first.

    With `tested`, an image that never passed a smoke test is not built. Raises NotReleasableError.
    """
    resolutions = resolve_all(workspace, select(workspace, patterns))
    return _built_images(workspace, resolutions, patterns, report, tested=tested)


def _built_images(
    workspace: Workspace,
    resolutions: Sequence[Resolution],
    patterns: Collection[str],
    report: Reporter,
    *,
    tested: bool = False,
) -> tuple[BuiltImage, ...]:
    plan = without_foreign(workspace, plan_resolutions(workspace, resolutions), patterns, report)
    with engine(report, Feature.PLATFORM, platforms=_platforms(plan.images)) as connected:
        stored_images = [(image, connected.image(image.reference)) for image in plan.images]
        state = workspace.project.state
        built = tuple(
            BuiltImage.stored_as(stored, image, connected, state) for image, stored in stored_images if stored
        )
    if len(built) == len(stored_images):
        return built
    problems = Problems()
    for image, stored in stored_images:
        if tested and not stored and not smoke_report.has_passed(workspace.project.state, image.name):
            message = f"`{image.name}` is neither built nor tested"
            problems.add(Diagnostic(message, hint=f"run `bake release {image.name}`"))
    problems.raise_as(NotReleasableError)
    return build_plan(workspace, resolutions, plan, report, RunOptions())


def pulled_image(workspace: Workspace, name: str, image_uri: str, report: Reporter) -> BuiltImage:
    """Return a pulled image as a build of its recipe. Raises UsageError if it is not one."""
    image = _only(workspace, name)
    with engine(report, Feature.PLATFORM, platforms=[image.platform]) as connected:
        stored = connected.image(image_uri)
        if stored is None:
            raise UsageError(f"the engine has no image `{image_uri}`", hint=f"run `docker pull {image_uri}`")
        built = BuiltImage.stored_as(stored, image, connected, workspace.project.state)
    if stored.key != image.key:
        facts = (("key of the recipe", image.key), ("key of the image", stored.key or "none"))
        raise UsageError(
            f"`{image_uri}` was not built from this recipe of `{image.name}`",
            facts=facts,
            hint="check out the commit it was published from; `bake releases` lists the commits",
        )
    return built


def _only(workspace: Workspace, name: str) -> Image:
    images = plan_images(workspace, [name]).images
    if len(images) > 1:
        raise UsageError(
            f"`{name}` matches {len(images)} images", hint="name one of them; `bake list` lists them"
        )
    return images[0]


def _framework(resolution: Resolution) -> tuple[Framework, str]:
    """Return the framework of an image and its version; empty without one."""
    if version := resolution.version_of("pytorch"):
        return "pytorch", version
    version = resolution.version_of("tensorflow") or ""
    return ("tensorflow", version) if version else ("", "")


@contextlib.contextmanager
def _discard_output(job: TrainingJob) -> Iterator[OutputHandler]:
    yield lambda host, data: None


def run_job(
    workspace: Workspace,
    image: str,
    request: RunRequest,
    report: Reporter = print,
    listen: OpenStream = _discard_output,
) -> JobReport:
    """Run a job in an image of the catalogue, built if needed, or in any image that the engine has."""
    project, recipe = workspace.project, workspace.recipes.get(image)
    require_valid(workspace, [image])
    resolutions = resolve_all(workspace, [recipe]) if recipe else ()
    framework = _framework(resolutions[0]) if resolutions else ("", "")
    if request.source_dir:
        code_upload.check(request.source_dir, request.job.entry_point, report)
    prepared = local_job.prepare(request, image, workspace.catalog, *framework)
    for warning in prepared.warnings:
        report(f"note: {warning}")
    own = recipe.content.entry_point if recipe else None
    if own and (warning := local_job.ignored_code(replace(request, job=prepared.job), own)):
        report(f"note: {warning}")
    if resolutions:
        [built] = _built_images(workspace, resolutions, [image], report)
        reference = built.stored
    platforms = [recipe.platform] if recipe else [PLATFORM]
    with engine(report, Feature.LOCAL, Feature.PLATFORM, platforms=platforms) as connected:
        if not resolutions:
            stored = connected.image(image)
            if stored is None:
                raise UsageError(
                    f"no recipe is named `{image}`, and the engine has no such image",
                    hint=suggestion(image, workspace.recipes) or "`bake list` lists the images",
                )
            reference = Digest(stored.digest)
        job = replace(prepared.job, image=reference)
        with listen(job) as handler:
            directory = project.state / "runs" / job.name
            return local_job.run(connected, replace(prepared, job=job), directory, handler)
