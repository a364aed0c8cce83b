"""The public Python API: `from bakehouse.api import Project`.

Errors are BakehouseError and its classes, with the messages and hints of the commands. Progress is printed on
standard error.
"""

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from bakehouse.builder.built_image import BuiltImage
from bakehouse.builder.progress import Progress
from bakehouse.cluster.job import TrainingJob, numbered_gpus
from bakehouse.cluster.job_report import JobReport
from bakehouse.cluster.smoke_report import SmokeReport
from bakehouse.errors import BakehouseError
from bakehouse.jobs.given_job import GivenJob
from bakehouse.jobs.job_spec import JobSpec
from bakehouse.ledger import image_uris
from bakehouse.ledger.releases import ReleaseRecord
from bakehouse.lock import locking
from bakehouse.pipeline import build, publish, render, run, smoke
from bakehouse.pipeline import ensure as ensuring
from bakehouse.pipeline.smoke import SmokeOptions
from bakehouse.plan.dockerfile import RenderedFile
from bakehouse.plan.workspace import Selection, Workspace, open_workspace, raise_failures, select, select_kept
from bakehouse.publish.options import PublishOptions
from bakehouse.resolve.resolver import Resolution
from bakehouse.sagemaker.local_request import local_request

__all__ = [
    "BakehouseError",
    "BuiltImage",
    "JobReport",
    "JobSpec",
    "Project",
    "ReleaseRecord",
    "RenderedFile",
    "Resolution",
    "SmokeReport",
    "ensure",
]
_ONE_HOST = JobSpec()


@contextlib.contextmanager
def _annotated() -> Iterator[None]:
    try:
        yield
    except BakehouseError as error:
        error.annotate()
        raise


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class Project:
    """The project of a directory: the one with `[tool.bakehouse]` in it or above it.

    `images` are names, families or globs; without any, a method takes all images of the project. Each method
    reads the recipes again, and raises BakehouseError.
    """

    def __init__(self, path: str | os.PathLike[str] = ".") -> None:
        self._path = Path(path).resolve()

    @_annotated()
    def resolve(self, *images: str) -> tuple[Resolution, ...]:
        """Return the versions of all components of images."""
        selection = self._select(images)
        resolutions = selection.resolutions
        raise_failures(selection.workspace)
        return resolutions

    @_annotated()
    def lock(self, *images: str, upgrade: bool = False) -> tuple[str, ...]:
        """Record the files that images are built from; return a line for each change."""
        failures: list[BakehouseError] = []
        with Progress.on(sys.stderr) as progress:
            scope = locking.LockScope(upgrade)
            lines = locking.run(self._path, images, progress.report, progress, failures, scope=scope)
        for failure in failures:
            raise failure
        return lines

    @_annotated()
    def render(self, *images: str) -> tuple[RenderedFile, ...]:
        """Write the files of images below `images/`, and return them."""
        selection = select_kept(self._open(), images)
        files = render.write(selection, _report)
        raise_failures(selection.workspace)
        return files

    @_annotated()
    def build(self, *images: str) -> tuple[BuiltImage, ...]:
        """Build images as one graph, and verify the installed versions."""
        with self._planned(images) as selection:
            return build.build(selection, _report)

    @_annotated()
    def smoke(self, *images: str, gpus: int = 0) -> tuple[SmokeReport, ...]:
        """Smoke-test images as SageMaker starts them; missing ones are built first."""
        with self._planned(images) as selection:
            return smoke.smoke(selection, _report, SmokeOptions(gpus=numbered_gpus(gpus)))

    @_annotated()
    def run(self, image: str, job: JobSpec = _ONE_HOST, *, gpus: int = 0) -> JobReport:
        """Run a training job in local containers. For a failed job, `passed` of the report is false."""
        spec = replace(job, channels={**dict.fromkeys(job.inputs, ()), **job.channels})
        request = local_request(GivenJob(image, spec), TrainingJob(), gpus)
        return run.run_job(self._open(), image, request, _report)

    @_annotated()
    def release(self, *images: str, registry: str = "", create: bool = False) -> tuple[ReleaseRecord, ...]:
        """Build images, smoke-test those not tested yet, push them, and return their records."""
        options = PublishOptions(registry=registry, create=create)
        with self._planned(images) as selection:
            return publish.release(selection, _report, options, SmokeOptions())

    @_annotated()
    def uri(self, image: str, *, registry: str = "", region: str = "") -> str:
        """Return the image URI, by digest, of the newest release."""
        workspace = self._open()
        project = workspace.project
        query = image_uris.ImageQuery(registry=registry, region=region, project=project)
        return image_uris.find(project.images, image, query, lambda: workspace.recipes).image_uri

    @_annotated()
    def ensure(self, image: str, *, registry: str = "", create: bool = False) -> str:
        """Return the image URI of the release with the current key, or release the image first.

        Of several callers on one machine, one releases it, and the others wait.
        """
        options = PublishOptions(registry=registry, create=create)
        with self._planned([image]) as selection:
            return ensuring.ensure(selection, _report, options)

    def _open(self) -> Workspace:
        return open_workspace(self._path)

    def _select(self, images: tuple[str, ...] | list[str]) -> Selection:
        return select(self._open(), images)

    @contextlib.contextmanager
    def _planned(self, images: tuple[str, ...] | list[str]) -> Iterator[Selection]:
        """Yield images that can all be planned, and raise the errors of those left out later."""
        selection = self._select(images)
        _ = selection.plan
        raise_failures(selection.workspace)
        yield selection
        raise_failures(selection.workspace)


def ensure(image: str, *, project: str | os.PathLike[str] = ".") -> str:
    """Return the image URI of the release with the current key, or release the image first."""
    return Project(project).ensure(image)
