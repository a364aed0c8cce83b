"""Settings of a job from the command line and a job file. The command line wins."""

from dataclasses import dataclass, field, fields, replace
from typing import Any

from bakehouse.catalog.instance_types import instances
from bakehouse.errors import UsageError
from bakehouse.jobs.job_document import open_document
from bakehouse.jobs.job_file import JobFile, is_of_sdk, is_request
from bakehouse.jobs.job_images import find_image
from bakehouse.jobs.job_settings import KEYS, LocalSettings, read_settings
from bakehouse.jobs.job_spec import JobSpec
from bakehouse.plan.workspace import Workspace

_UNSET = JobSpec()


@dataclass(frozen=True, slots=True)
class GivenJob:
    """Settings of a job, and their source file."""

    image: str
    """Name or URI; empty if none is given."""
    spec: JobSpec
    local: LocalSettings = field(default_factory=LocalSettings)
    file: JobFile | None = None
    """The file, if it has the form of the SDK or of the API."""


def read_job(workspace: Workspace, image: str, job: str, line: JobSpec) -> GivenJob:
    """Return the settings of `--job`, if it is given, with those of the command line.

    The settings of a file of the SDK are only in `file`. Raises UsageError with all mistakes in the file.
    """
    if not job:
        return GivenJob(image, _with_sdk(workspace, line))
    document = open_document(workspace.project, job)
    if is_request(document.values) or is_of_sdk(document.values, KEYS):
        file = JobFile(document, instances(workspace.catalog), line)
        name = image or file.image
        if not file.is_request:
            return GivenJob(name, line, file=file)
        known = find_image(workspace, name) if name else None
        spec = file.spec(known)
        spec = _with_sdk(workspace, replace(spec, **_given(line, *_OF_THE_CALL)))
        return GivenJob(name, spec, file=file)
    own_image, own, local = read_settings(document)
    spec = replace(override(own, line, document.title), origin=document.title)
    return GivenJob(image or own_image, _with_sdk(workspace, spec), local)


def find_job(workspace: Workspace, image: str) -> str:
    """Return the name of the only job of the project with an image; empty if there are none or several."""
    names = [name for name, table in workspace.project.jobs.items() if table.get("image") == image]
    return names[0] if len(names) == 1 and image else ""


def _with_sdk(workspace: Workspace, job: JobSpec) -> JobSpec:
    """Return a job with the project's version of the SDK, unless it names one."""
    return replace(job, sdk="v2") if workspace.project.sagemaker_sdk == 2 and not job.sdk else job


_OF_THE_CALL = ("sdk", "name", "inputs")
"""Settings that a request does not have, or that `JobFile` does not replace."""


def require_job(given: GivenJob, command: str) -> None:
    """Raise UsageError unless a job names its image and its settings are known."""
    if given.file and not given.file.is_request:
        raise UsageError(
            f"`{command}` does not read arguments of the SDK",
            hint="use Bakehouse's keys, or a CreateTrainingJob request; `validate` also reads arguments",
        )
    if not given.image:
        raise UsageError(f"`{command}` needs an image", hint="name one, or set `image` in the job file")


def override(file: JobSpec, line: JobSpec, title: str) -> JobSpec:
    """Return the settings of a file with those of the command line, which win."""
    has_type, has_count = bool(line.instance_type), line.instance_count is not None
    if file.groups and has_count and not has_type:
        message = f"`--instance-count` does not say which group of {title} it is for"
        raise UsageError(message, hint="use `--group`, or set `--instance-type` too")
    if line.groups:
        file = replace(file, instance_type="", instance_count=None)
    elif has_type and file.groups:
        file = replace(file, groups=())
    if line.distribution is not None:
        file = replace(file, launcher="", processes_per_host=None)
    merged: dict[str, Any] = {
        "hyperparameters": {**file.hyperparameters, **line.hyperparameters},
        "environment": {**file.environment, **line.environment},
        "inputs": {**file.inputs, **line.inputs},
        "channels": {**line.channels, **file.channels},
    }
    return replace(file, **{**_given(line), **merged})


def _given(line: JobSpec, *names: str) -> dict[str, Any]:
    """Return the settings that have a value, all of them or only `names`."""
    return {
        each.name: getattr(line, each.name)
        for each in fields(JobSpec)
        if getattr(line, each.name) != getattr(_UNSET, each.name) and (not names or each.name in names)
    }
