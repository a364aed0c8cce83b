"""The use case `run`: a training job in local containers."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from bakehouse.builder.built_image import identity_of
from bakehouse.catalog.names import FRAMEWORKS
from bakehouse.cluster.job import TrainingJob
from bakehouse.cluster.job_report import JobReport
from bakehouse.cluster.job_runner import OutputHandler
from bakehouse.engine import daemon_info
from bakehouse.engine.daemon_info import Feature
from bakehouse.engine.open_engine import open_engine
from bakehouse.engine.protocol import Engine, StoredImage
from bakehouse.errors import UsageError
from bakehouse.jobs.job_images import find_image, find_record, is_uri, planned_image
from bakehouse.jobs.training_request import LaunchImage
from bakehouse.ledger.releases import ReleaseRecord
from bakehouse.pipeline.build import ensure_built
from bakehouse.plan.model import reference_of
from bakehouse.plan.workspace import Selection, Workspace, require_valid
from bakehouse.sagemaker import local_job, local_request
from bakehouse.sagemaker.local_job import OpenStream, RunRequest
from bakehouse.util.oci import PLATFORM, Digest, region_of
from bakehouse.util.suggest import suggestion
from bakehouse.util.terminal import Reporter


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
    selection = Selection(workspace, (recipe,), (image,)) if recipe else None
    known = find_image(workspace, image) if not recipe and is_uri(image) else None
    framework = _framework(selection.resolutions[0].version_of if selection else _versions(known))
    own = recipe.content.entry_point if recipe else known.entry_point if known else None
    if request.code_uri and not request.source_dir and not own:
        region = region_of(image.partition("/")[0]) or project.region or ""
        code = local_request.download_code(request.code_uri, region, report)
        request = replace(request, job=replace(request.job, code_archive=code))
    if request.picks_launcher:
        facts = planned_image(selection.image, workspace.catalog) if selection else known
        request = local_job.with_default_launcher(request, facts or LaunchImage(image, ""), report)
    variables = dict(recipe.content.environment) if recipe else {}
    job = local_job.prepare(request, image, workspace.catalog, *framework, report, variables)
    if limits := _limits(job):
        # Before the image is built
        daemon_info.require(daemon_info.inspect(), *limits)
    if own:
        local_job.check_code(replace(request, job=job), own)
    if selection:
        [built] = ensure_built(selection, report)
        reference = built.stored
    platforms = [recipe.platform] if recipe else [PLATFORM]
    with open_engine(report, platforms=platforms) as engine:
        if not selection:
            reference = Digest(stored_image(workspace, image, engine).digest)
        job = replace(job, image=reference)
        with listen(job) as handler:
            directory = project.output / "runs" / job.name
            efa_types = local_job.efa_types(workspace.catalog)
            return local_job.run(engine, job, directory, handler, efa_types)


def _limits(job: TrainingJob) -> tuple[Feature, ...]:
    """Return the features that the limits of a job need: engines without them ignore the limits."""
    memory = (Feature.MEMORY_LIMIT,) if job.memory else ()
    cores = (Feature.CPU_LIMIT,) if any(group.cpus for group in job.groups) else ()
    return (*memory, *cores)


def stored_image(workspace: Workspace, image: str, engine: Engine) -> StoredImage:
    """Return an image of the engine that has no recipe. Raises UsageError if the engine does not have it."""
    record = find_record(workspace.project.images, image) if is_uri(image) else None
    digests = (image.partition("@")[2], record.digest if record else "", record.config if record else "")
    if stored := next(filter(None, map(engine.image, (image, *filter(None, digests)))), None):
        return stored
    if record and (stored := _built_release(record, engine, workspace.project.state)):
        return stored
    if is_uri(image):
        raise UsageError(f"the engine has no image `{image}`", hint=f"run `docker pull {image}`")
    hint = suggestion(image, workspace.recipes) or "`bake list` lists the images"
    raise UsageError(f"no recipe is named `{image}`, and the engine has no such image", hint=hint)


def _built_release(record: ReleaseRecord, engine: Engine, state: Path) -> StoredImage | None:
    """Return the image that a release was pushed from, or None if the engine no longer has it.

    A containerd store knows an image by its manifest. The registry has another manifest if the push
    compressed layers again, so the configurations are compared.
    """
    stored = engine.image(reference_of(record.image, record.key))
    if stored and identity_of(Digest(stored.digest), engine, state)[0] == record.config:
        return stored
    return None


def _versions(image: LaunchImage | None) -> Callable[[str], str | None]:
    versions = dict(image.versions) if image else {}
    return lambda name: versions.get(name)


def _framework(version_of: Callable[[str], str | None]) -> tuple[str, str]:
    """Return the framework of an image and its version; empty without one."""
    return next(((name, version) for name in FRAMEWORKS if (version := version_of(name))), ("", ""))
