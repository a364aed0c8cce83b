"""The use case `run`: a training job in local containers."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace

from bakehouse.cluster.job import TrainingJob
from bakehouse.cluster.job_report import JobReport
from bakehouse.cluster.job_runner import OutputHandler
from bakehouse.engine import daemon_info
from bakehouse.engine.daemon_info import Feature
from bakehouse.engine.open_engine import open_engine
from bakehouse.errors import UsageError
from bakehouse.jobs.distribution import Framework
from bakehouse.pipeline.build import ensure_built
from bakehouse.plan.workspace import Selection, Workspace, require_valid
from bakehouse.resolve.resolver import Resolution
from bakehouse.sagemaker import local_job
from bakehouse.sagemaker.local_job import OpenStream, RunRequest
from bakehouse.util.oci import PLATFORM, Digest
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
    framework = _framework(selection.resolutions[0]) if selection else ("", "")
    job = local_job.prepare(request, image, workspace.catalog, *framework, report=report)
    if limits := _limits(job):
        # Before the image is built
        daemon_info.require(daemon_info.inspect(), *limits)
    own = recipe.content.entry_point if recipe else None
    if own and (warning := local_job.ignored_code(replace(request, job=job), own)):
        report(f"note: {warning}")
    if selection:
        [built] = ensure_built(selection, report)
        reference = built.stored
    platforms = [recipe.platform] if recipe else [PLATFORM]
    with open_engine(report, Feature.PLATFORM, platforms=platforms) as engine:
        if not selection:
            stored = engine.image(image)
            if stored is None:
                raise UsageError(
                    f"no recipe is named `{image}`, and the engine has no such image",
                    hint=suggestion(image, workspace.recipes) or "`bake list` lists the images",
                )
            reference = Digest(stored.digest)
        job = replace(job, image=reference)
        with listen(job) as handler:
            directory = project.state / "runs" / job.name
            efa_types = local_job.efa_types(workspace.catalog)
            return local_job.run(engine, job, directory, handler, efa_types)


def _limits(job: TrainingJob) -> tuple[Feature, ...]:
    """Return the features that the limits of a job need: engines without them ignore the limits."""
    memory = (Feature.MEMORY_LIMIT,) if job.memory else ()
    cores = (Feature.CPU_LIMIT,) if any(group.cpus for group in job.groups) else ()
    return (*memory, *cores)


def _framework(resolution: Resolution) -> tuple[Framework, str]:
    """Return the framework of an image and its version; empty without one."""
    if version := resolution.version_of("pytorch"):
        return "pytorch", version
    version = resolution.version_of("tensorflow") or ""
    return ("tensorflow", version) if version else ("", "")
