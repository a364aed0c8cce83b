"""The use case `smoke`: from built images to reports of smoke tests, here or on other machines."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bakehouse.builder.built_image import BuiltImage
from bakehouse.catalog.user_smoke import USER_CODE
from bakehouse.cluster import junit, remote_smoke, smoke_report, smoke_runners
from bakehouse.cluster import smoke as cluster_smoke
from bakehouse.cluster.bare_machine import ARCHIVE
from bakehouse.cluster.check_keys import base_keys_of
from bakehouse.cluster.job import numbered_gpus
from bakehouse.cluster.remote_smoke import RemoteSmoke
from bakehouse.cluster.smoke_report import SmokeReport
from bakehouse.cluster.smoke_runners import PrintedJob
from bakehouse.engine.open_engine import BUILD_FEATURES, open_engine
from bakehouse.errors import Diagnostic, Problems, RecipeError, SmokeError, UsageError
from bakehouse.evidence import check_rows
from bakehouse.jobs.job_images import find_record
from bakehouse.jobs.job_spec import JobSpec
from bakehouse.ledger.releases import ReleaseRecord
from bakehouse.pipeline.build import ensure_built, platforms_of
from bakehouse.plan.model import DESCRIPTION_LABEL, Image
from bakehouse.plan.workspace import Selection, Workspace
from bakehouse.publish import promote
from bakehouse.publish.image_root import write_root
from bakehouse.sagemaker import smoke_job
from bakehouse.sagemaker.follow import DEFAULT_PACE, Pace
from bakehouse.sagemaker.launch import JobCallbacks
from bakehouse.sagemaker.launch_report import LaunchReport
from bakehouse.trust import signed_report
from bakehouse.util.directory_handles import repository_around
from bakehouse.util.files import read_text, write_whole
from bakehouse.util.format import format_count
from bakehouse.util.terminal import Reporter

_MAX_LABELS = 3
"""Maximum of differing labels that are listed."""


@dataclass(frozen=True, slots=True)
class SmokeOptions:
    """Options of smoke tests."""

    only: tuple[str, ...] = ()
    """Names of the checks to run; empty means all."""
    gpus: tuple[str, ...] = ()
    """GPUs of each host, as numbers or UUIDs."""
    deadline: float | None = None
    """Seconds for each check, instead of the check's own limit."""
    report_file: Path | None = None
    """File for the results, for `promote` on another machine."""
    image_uri: str = ""
    """A pulled image or a candidate; empty means the image built here, or the newest candidate."""

    @property
    def has_named_gpus(self) -> bool:
        """Return whether GPUs other than the first ones are selected."""
        return self.gpus != numbered_gpus(len(self.gpus))


_DEFAULTS = SmokeOptions()


def smoke(
    selection: Selection, report: Reporter, options: SmokeOptions = _DEFAULTS
) -> tuple[SmokeReport, ...]:
    """Smoke-test images on this machine: built here, or one pulled from a registry."""
    if options.image_uri:
        built = [pulled_image(selection, options.image_uri, report)]
    else:
        # Before images are built
        _require_valid_options(selection.plan.images, options)
        built = [*ensure_built(selection, report)]
    return smoke_images(selection.workspace, built, report, options)


def smoke_images(
    workspace: Workspace, built: Sequence[BuiltImage], report: Reporter, options: SmokeOptions = _DEFAULTS
) -> tuple[SmokeReport, ...]:
    """Smoke-test built images. A failing image does not stop the others; failures are raised at the end."""
    _require_valid_options([item.image for item in built], options)
    sign = _report_signer(workspace, options)
    state, output = workspace.project.state, workspace.project.output
    results = []
    failures: list[Diagnostic] = []
    platforms = platforms_of(item.image for item in built)
    with open_engine(report, *BUILD_FEATURES, platforms=platforms) as engine:
        for item in built:
            result = cluster_smoke.smoke(
                engine,
                item,
                state,
                only=options.only,
                gpus=options.gpus,
                deadline=options.deadline,
                base_keys=base_keys_of(item.image, workspace.project.recipe_roots),
                report=report,
            )
            write_whole(output / "smoke" / item.image.name / "junit.xml", junit.text(result))
            check_rows.record(state, item.content, result.checks)
            if options.report_file:
                smoke_report.write(result, options.report_file, sign)
            results.append(result)
            try:
                smoke_report.require_passed(result)
            except SmokeError as failure:
                failures += failure.diagnostics
    if failures:
        raise SmokeError.of(*failures)
    return tuple(results)


def smoke_on_sagemaker(
    selection: Selection,
    job: JobSpec,
    callbacks: JobCallbacks,
    options: SmokeOptions = _DEFAULTS,
    pace: Pace = DEFAULT_PACE,
) -> tuple[LaunchReport, SmokeReport | None]:
    """Smoke-test the newest candidate in Amazon ECR as a training job, and keep the results.

    The GPUs are those of the instances. Raises SmokeError for failed checks.
    """
    workspace, image = selection.workspace, selection.image
    project = workspace.project
    candidate = promote.find_candidate(project, image.name, "ecr", options.image_uri)
    gpus = smoke_job.check_job(job, candidate, workspace.catalog)
    remote = _remote_smoke(workspace, image, candidate, options, gpus=gpus, hosts=job.hosts)
    remote = replace(remote, content=promote.content_in_registry(project, candidate, callbacks.report))
    sign = _report_signer(workspace, options)
    logs = project.output / "smoke" / image.name / "sagemaker"
    launched, result = smoke_job.smoke_on_sagemaker(
        remote, job, workspace.catalog, project.prices, logs, callbacks, pace
    )
    if result:
        _keep_remote_report(workspace, result, options, sign)
    return launched, result


def smoke_elsewhere(
    selection: Selection,
    runner: str,
    seconds: int,
    results: Path | None,
    report: Reporter,
    options: SmokeOptions = _DEFAULTS,
) -> SmokeReport | PrintedJob:
    """Smoke-test the newest candidate over ssh, or read the results of a job; else write such a job.

    Raises SmokeError for failed checks.
    """
    workspace, image = selection.workspace, selection.image
    project = workspace.project
    candidate = promote.find_candidate(project, image.name, "", options.image_uri)
    remote = _remote_smoke(workspace, image, candidate, options, gpus=len(options.gpus))
    if options.has_named_gpus:
        if runner in smoke_runners.PRINTED:
            raise UsageError(
                f"`--gpus device={','.join(options.gpus)}` cannot be combined with `--on {runner}`",
                hint=f"use `--gpus {len(options.gpus)}`; the scheduler selects the GPUs",
            )
        remote = replace(remote, gpu_ids=options.gpus)
    sign = _report_signer(workspace, options)
    directory = project.state / "smoke" / image.name / runner.partition(":")[0]
    if results:
        smoke_report.require_outside(results, repository_around(project.root))
        remote = replace(remote, content=promote.content_in_registry(project, candidate, report))
        text = read_text(results, errors="replace")
        document = remote_smoke.read_results(text, f"`{results}`")
    elif runner.startswith(smoke_runners.SSH):
        remote = replace(remote, content=promote.content_in_registry(project, candidate, report))
        document = smoke_runners.run_over_ssh(remote, runner, seconds, report)
    elif runner == smoke_runners.BARE:
        root = write_root(project, candidate, directory / ARCHIVE, f"smoke --on {runner}", report)
        return smoke_runners.write_bare_script(remote, root, directory, seconds)
    else:
        return smoke_runners.write_job(runner, remote, directory, seconds)
    gpus = f" with {format_count(len(options.gpus), 'GPU')}" if options.gpus else ""
    result = remote.report(document, directory / "logs", f"{runner}{gpus}", f"{runner}{gpus}")
    _keep_remote_report(workspace, result, options, sign)
    return result


def pulled_image(selection: Selection, image_uri: str, report: Reporter) -> BuiltImage:
    """Return a pulled image as a build of the selected recipe. Raises UsageError if it is not one."""
    image = selection.image
    with open_engine(report, platforms=[image.platform]) as engine:
        stored = engine.image(image_uri)
        if stored is None:
            raise UsageError(f"the engine has no image `{image_uri}`", hint=f"run `docker pull {image_uri}`")
        built = BuiltImage.stored_as(stored, image, engine, selection.workspace.project.state)
    record = find_record(selection.workspace.project.images, image_uri)
    facts: tuple[tuple[str, str], ...] = ()
    if record and record.key != image.key:
        facts = (("key of the recipe", image.key), ("key of the image", record.key))
    elif not record:
        # Without a record of the image, its labels tell what it contains
        wanted = {name: text for name, text in image.labels.items() if name != DESCRIPTION_LABEL}
        facts = tuple(
            (name, f"{stored.labels.get(name) or 'none'}; the recipe has {text}")
            for name, text in wanted.items()
            if stored.labels.get(name) != text
        )[:_MAX_LABELS]
    if facts:
        raise UsageError(
            f"`{image_uri}` was not built from this recipe of `{image.name}`",
            facts=facts,
            hint="check out the commit it was published from; `bake releases` lists the commits",
        )
    return built


def _remote_smoke(
    workspace: Workspace,
    image: Image,
    candidate: ReleaseRecord,
    options: SmokeOptions,
    *,
    gpus: int,
    hosts: int = 1,
) -> RemoteSmoke:
    """Return the smoke checks of a candidate for other machines. Raises UsageError for another build."""
    promote.require_same_key(candidate, image)
    _require_valid_options([image], options, with_long=False)
    return RemoteSmoke(
        image,
        candidate.image_uri,
        hosts=hosts,
        gpus=gpus,
        only=options.only,
        deadline=options.deadline,
        base_keys=base_keys_of(image, workspace.project.recipe_roots),
    )


def _report_signer(workspace: Workspace, options: SmokeOptions) -> smoke_report.Sign | None:
    """Return the signer of the report file. Raises TrustError for an unusable key, before any check."""
    return signed_report.signer(workspace.project) if options.report_file else None


def _keep_remote_report(
    workspace: Workspace, result: SmokeReport, options: SmokeOptions, sign: smoke_report.Sign | None
) -> None:
    """Keep the results of other machines if they are complete. Raises SmokeError for failures."""
    write_whole(workspace.project.output / "smoke" / result.image / "junit.xml", junit.text(result))
    if options.report_file:
        smoke_report.write(result, options.report_file, sign)
    if not result.unfinished:
        check_rows.record(workspace.project.state, result.content, result.checks)
    smoke_report.require_passed(result)


def _require_valid_options(images: Sequence[Image], options: SmokeOptions, *, with_long: bool = True) -> None:
    """Raise UsageError for options that do not fit the images, RecipeError for missing channels."""
    if options.report_file and len(images) > 1:
        raise UsageError(f"`--report` needs exactly one image, got {len(images)}")
    for image in images:
        cluster_smoke.require_checks(image, options.only, with_long=with_long)
    require_channels(images, options.only)


def require_channels(images: Iterable[Image], only: Sequence[str]) -> None:
    """Raise RecipeError for channels of the user's smoke tests that are not directories."""
    problems = Problems()
    for image in images:
        if image.smoke is None or (only and USER_CODE not in only):
            continue
        for name, path in image.smoke.channels:
            if not path.is_dir():
                message = f"channel `{name}` of `{image.name}`: `{os.path.relpath(path)}` is not a directory"
                hint = "correct `channels`, or create the directory"
                problems.add(Diagnostic(message, image.smoke.location, hint=hint))
    problems.raise_as(RecipeError)
