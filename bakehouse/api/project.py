"""A project, with the use cases of the command line as methods."""

import io
import os
import time
from pathlib import Path

from bakehouse.builder.built_image import BuiltImage
from bakehouse.builder.progress import Mode, Progress
from bakehouse.cluster.job import TrainingJob
from bakehouse.cluster.job_report import JobReport
from bakehouse.cluster.smoke_report import SmokeReport
from bakehouse.errors import BakehouseError
from bakehouse.jobs.given_job import read_job, require_job
from bakehouse.jobs.job_spec import JobSpec
from bakehouse.ledger import image_uris
from bakehouse.ledger.claims import Holder, claims, ended
from bakehouse.ledger.releases import ReleaseRecord
from bakehouse.ledger.store import Ledger, open_ledger
from bakehouse.lock import locking
from bakehouse.lock.locking import LockScope
from bakehouse.pipeline import build, publish, render, run, smoke
from bakehouse.pipeline.smoke import SmokeOptions
from bakehouse.plan.workspace import Selection, Workspace, open_workspace, raise_failures, select
from bakehouse.publish.options import PublishOptions
from bakehouse.resolve.resolver import Resolution
from bakehouse.sagemaker.local_request import local_request
from bakehouse.util.terminal import Reporter

_POLL_SECONDS = 1.0
_ONE_JOB = JobSpec()


def _ignore(line: str) -> None:
    pass


class _Lines(io.StringIO):
    """A stream that passes each whole line on."""

    def __init__(self, report: Reporter) -> None:
        super().__init__()
        self._report_line = report

    def write(self, text: str) -> int:
        super().write(text)
        *lines, rest = self.getvalue().split("\n")
        self.seek(0)
        self.truncate()
        super().write(rest)
        for line in lines:
            self._report_line(line)
        return len(text)


class Project:
    """A Bakehouse project: the directory with `[tool.bakehouse]`, or one below it.

    Images are names, families or globs; without any, a method takes all images of the project. `report` gets
    each line of progress. Every method reads the recipes anew and raises BakehouseError.
    """

    def __init__(self, path: str | os.PathLike[str] = ".", *, report: Reporter = _ignore) -> None:
        self._path = Path(path).resolve()
        self._report = report

    def resolve(self, *images: str) -> tuple[Resolution, ...]:
        """Return the versions of all components of images."""
        return self._select(images).resolutions

    def lock(self, *images: str, upgrade: bool = False) -> tuple[str, ...]:
        """Record the files of a build; return a line for each changed lock file."""
        failures: list[BakehouseError] = []
        with self._progress() as progress:
            scope = LockScope(upgrade)
            lines = locking.run(self._path, images, progress.report, progress, failures, [], scope)
        for failure in failures:
            raise failure
        return lines

    def render(self, *images: str) -> None:
        """Write the Dockerfiles and bake files of images below `images/`."""
        selection = self._select(images)
        render.write(selection, self._report)
        raise_failures(selection.workspace)

    def build(self, *images: str) -> tuple[BuiltImage, ...]:
        """Build images as one graph, and verify the installed versions."""
        with self._progress() as progress:
            built = build.build(self._select(images), progress.report, progress=progress)
        return tuple(built)

    def smoke(self, *images: str, gpus: int = 0) -> tuple[SmokeReport, ...]:
        """Smoke-test images as SageMaker starts them, and build them first if needed."""
        return smoke.smoke(self._select(images), self._report, SmokeOptions(gpus=gpus))

    def run(self, image: str, job: JobSpec = _ONE_JOB, *, gpus: int = 0) -> JobReport:
        """Run a training job in local containers; a failed job is a report that did not pass."""
        workspace = self._workspace()
        given = read_job(workspace, image, "", job)
        require_job(given, "run")
        request = local_request(given, TrainingJob(), gpus)
        return run.run_job(workspace, given.image, request, self._report)

    def release(self, *images: str, registry: str = "", create: bool = False) -> tuple[ReleaseRecord, ...]:
        """Build images, smoke-test those not tested yet, and push them; return their records."""
        options = PublishOptions(registry=registry, create=create)
        return publish.release(self._select(images), self._report, options, SmokeOptions())

    def uri(self, image: str, *, registry: str = "", region: str = "") -> str:
        """Return the image URI, by digest, of the newest release."""
        query = image_uris.ImageQuery(region=region, registry=registry)
        with image_uris.open_images(self._path, image) as images:
            return image_uris.find(images, image, query, lambda: self._workspace().recipes).image_uri

    def ensure(self, image: str, *, registry: str = "", create: bool = False) -> str:
        """Return the image URI of the release with the current key, or release it first.

        Of several callers, also on other machines with the same ledger in S3, one releases the image. The
        others wait for its URI, or raise its error. If it is killed, another one continues.
        """
        selection = self._select([image])
        key = selection.image.key
        project = selection.workspace.project
        ledger = open_ledger(project)
        waiting = claims(ledger, project.state / "locks", selection.image.name, key)
        seen: set[str] = set()
        while True:
            claim = waiting.take()
            if isinstance(claim, Holder):
                seen.add(claim.token)
                time.sleep(_POLL_SECONDS)
                continue
            with ended(claim):
                if uri := _released(ledger, selection.image.name, key, registry):
                    return uri
                if claim.previous.token in seen:
                    claim.previous.raise_error()
                return self.release(image, registry=registry, create=create)[0].image_uri

    def _workspace(self) -> Workspace:
        return open_workspace(self._path)

    def _select(self, images: tuple[str, ...] | list[str]) -> Selection:
        return select(self._workspace(), images)

    def _progress(self) -> Progress:
        return Progress(_Lines(self._report), Mode.LINES)


def ensure(image: str, *, project: str | os.PathLike[str] = ".", registry: str = "") -> str:
    """Return the image URI of the release with the current key, or release it first."""
    return Project(project).ensure(image, registry=registry)


def _released(ledger: Ledger, image: str, key: str, registry: str) -> str:
    """Return the URI of the newest release with a key; empty if there is none."""
    for record in reversed(ledger.records(image)):
        if record.is_released and record.key == key and image_uris.is_in(record, registry):
            return record.image_uri
    return ""
