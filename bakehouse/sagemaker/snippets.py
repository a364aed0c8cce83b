"""Prints how a release is started on SageMaker: code that runs when it is pasted.

Version 2 of the SDK: its generic Estimator takes `distribution` and drops it, so that the job silently runs
one process a host; the classes named after frameworks pass it on, and with `image_uri` they put no framework
of their own into the job. But they insist on sending a script along: for an image that carries its own, the
generic class gets the hyperparameters that `distribution` stands for. Version 3 starts with drivers of its
own, and boto3 with a request that has all of it.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from bakehouse.catalog.catalog import Catalog
from bakehouse.publish.releases import ReleaseRecord
from bakehouse.sagemaker.boto3_code import request_code
from bakehouse.sagemaker.findings import Finding
from bakehouse.sagemaker.job_spec import JobSpec, check_job
from bakehouse.sagemaker.sdk_code import estimator_code, trainer_code
from bakehouse.sagemaker.training_request import LaunchImage, TrainingRequest
from bakehouse.util.oci import is_loopback

_DEFAULTS = JobSpec()
_TOLD = {"v2": "version 2 of the SageMaker SDK", "v3": "version 3 of the SageMaker SDK", "boto3": "boto3"}


@dataclass(frozen=True, slots=True)
class Snippet:
    """Code that starts a job, and what is not as it should be with it."""

    code: str
    warnings: tuple[Finding, ...] = ()


def snippet(record: ReleaseRecord, job: JobSpec = _DEFAULTS, catalog: Catalog | None = None) -> Snippet:
    """Code that starts a training job with a released image.

    Raises UsageError with everything that is wrong with the job.
    """
    # Without a folder that is named here, nobody knows where the code will be pasted.
    found = check_job(record, job, catalog, folder=Path() if job.source_dir else None)
    image, request = found.image, found.request
    lines = _notes(record, image, request, job)
    if job.sdk == "boto3":
        lines += request_code(request, image, job.role, _base_name(image), record.registry)
    elif job.sdk == "v3":
        lines += trainer_code(request, image, job.role, _base_name(image))
    else:
        lines += estimator_code(request, image, job.role, _base_name(image))
    return Snippet("\n".join(lines) + "\n", found.warnings)


def _notes(record: ReleaseRecord, image: LaunchImage, request: TrainingRequest, job: JobSpec) -> list[str]:
    tested = f"smoke-tested ({record.transport})" if record.tested else "NOT smoke-tested"
    notes = [f"# {record.image}, published {record.date}, {tested}; for {_TOLD[job.sdk]}"]
    if is_loopback(record.registry):
        notes.append(f"# {record.registry} is a registry on this machine: SageMaker pulls from Amazon ECR.")
    name = request.sender
    if job.sdk == "v2" and not image.entry_point and name.lower() not in image.versions:
        notes.append(f"# {name} is the class that passes `distribution` on; the image needs no {name}.")
    # What a ledger tells must not end the comment.
    return [" ".join(note.split()) for note in notes]


def _base_name(image: LaunchImage) -> str:
    """What a job's name starts with: an address with a digest holds an `@`, and SageMaker takes no dot."""
    return re.sub("[._]", "-", image.name)
