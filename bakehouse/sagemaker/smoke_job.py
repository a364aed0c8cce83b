"""Smoke checks of a published image as a training job on SageMaker.

The script of `remote_smoke` is sent in a channel of the job. Its results are the job's model, which SageMaker
also uploads for a stopped job.
"""

import io
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.instance_types import find_instance, instances
from bakehouse.cluster import remote_smoke
from bakehouse.cluster.job import ML, job_name
from bakehouse.cluster.job_report import Status
from bakehouse.cluster.remote_smoke import RemoteSmoke
from bakehouse.cluster.smoke_report import SmokeReport
from bakehouse.errors import Diagnostic, LaunchError, Problems, SmokeError, UsageError
from bakehouse.jobs.create_training_job import api_request
from bakehouse.jobs.instance_groups import instance_group
from bakehouse.jobs.job_spec import JobSpec
from bakehouse.jobs.training_request import LaunchImage, TrainingRequest, launch_image
from bakehouse.jobs.validate import validate
from bakehouse.ledger.releases import ReleaseRecord
from bakehouse.sagemaker.client import TrainingService
from bakehouse.sagemaker.follow import DEFAULT_PACE, Pace
from bakehouse.sagemaker.launch import PRINTED, JobCallbacks, check_role, first_ranks, is_s3, send_and_follow
from bakehouse.sagemaker.launch_report import LaunchReport
from bakehouse.util import archive_reader
from bakehouse.util.aws import AwsError
from bakehouse.util.format import format_count
from bakehouse.util.oci import region_of

CHANNEL = "smoke"
SCRIPT = "smoke.py"
RESULTS = "smoke-results.json"
"""File in the job's model."""
_MAX_RESULTS = 200_000_000


def check_job(job: JobSpec, candidate: ReleaseRecord, catalog: Catalog) -> int:
    """Return the GPUs of each host; raise UsageError if the job is invalid or does not suit the image."""
    problems = Problems()
    check_role(job.role, problems)
    if not job.instance_type:
        problems.add(Diagnostic("no instance type given", hint="set `--instance-type`"))
    if job.hosts < 1:
        problems.add(Diagnostic("the job has no host", hint="set `--instance-count` to at least 1"))
    if job.time_limit < 1:
        message = f"invalid time limit of {job.time_limit} seconds"
        problems.add(Diagnostic(message, hint="set `max_run` of the job file to at least 1"))
    if job.output and not is_s3(job.output):
        message = f"`output: {job.output}` is not an S3 URI"
        problems.add(Diagnostic(message, hint="use for example `s3://bucket/smoke`"))
    problems.raise_as(UsageError)
    instance = find_instance(instances(catalog), job.instance_type)
    findings = validate(_request(job, catalog), launch_image(candidate, catalog))
    if errors := [finding.diagnostic for finding in findings if finding.is_error]:
        raise UsageError.of(*errors)
    if instance.gpus is None:
        raise UsageError(
            f"the number of GPUs of `{job.instance_type}` is unknown", hint="use another instance type"
        )
    return instance.gpus


def estimate(job: JobSpec, prices: Mapping[str, float]) -> str:
    """Return the highest cost of a job: billable seconds, and a price if the project sets it."""
    return f"at most {_billed(job, job.time_limit, prices)}"


def smoke_on_sagemaker(
    remote: RemoteSmoke,
    job: JobSpec,
    catalog: Catalog,
    prices: Mapping[str, float],
    logs: Path,
    callbacks: JobCallbacks = PRINTED,
    pace: Pace = DEFAULT_PACE,
) -> tuple[LaunchReport, SmokeReport | None]:
    """Run the checks as a training job; Ctrl-C stops it. Returns no smoke report without results.

    Raises LaunchError if the job could not be sent, SmokeError for the results of another job.
    """
    region = region_of(remote.uri.partition("/")[0])
    service, name = TrainingService(region), job.name or job_name(f"smoke-{remote.image.name}")
    hosts, report_line = f"{job.hosts} x {job.instance_type}", callbacks.report
    report_line(f"{name}: {hosts} in {region}; {estimate(job, prices)}")
    try:
        bucket, owner = job.output.removeprefix("s3://").partition("/")[0], ""
        if not bucket:
            bucket, owner = service.default_bucket()
        prefix = job.output.removeprefix(f"s3://{bucket}").strip("/")
        key = "/".join(filter(None, (prefix, name, CHANNEL, SCRIPT)))
        service.upload(bucket, key, remote.script(), owner)
    except AwsError as error:
        facts = (*error.diagnostic.facts, ("sent", "nothing"))
        raise LaunchError.of(replace(error.diagnostic, facts=facts)) from error
    arguments = _arguments(remote, job, catalog, name, f"s3://{bucket}/{key.rpartition('/')[0]}/")
    ranks = first_ranks(arguments, instances(catalog))
    launched = send_and_follow(service, arguments, ranks, callbacks, pace, stop_on_interrupt=True)
    if launched.billed is not None:
        report_line(f"{name}: billed {_billed(job, launched.billed, prices)}")
    document = _results(service, name, launched)
    if document is None:
        return launched, None
    billed = f", {launched.billed} s billed for each host" if launched.billed is not None else ""
    origin = f"training job {name} in {region}{billed}"
    report = remote.report(document, logs, f"sagemaker {hosts}", origin)
    if launched.status is Status.STOPPED and report.unfinished and not report.interrupted:
        report = replace(report, interrupted="the job was stopped")
    return launched, report


def _arguments(remote: RemoteSmoke, job: JobSpec, catalog: Catalog, name: str, inputs: str) -> dict[str, Any]:
    own = tuple(field for field in job.request if field.path != "InputDataConfig")
    arguments: dict[str, Any] = api_request(
        _request(job, catalog),
        LaunchImage(remote.image.name, remote.uri),
        replace(job, inputs={CHANNEL: inputs}, request=own),
        name=name,
        hyperparameters={},
        output=inputs.removesuffix(f"{name}/{CHANNEL}/"),
    )
    command = ["python3", f"{ML}/input/data/{CHANNEL}/{SCRIPT}"]
    arguments["AlgorithmSpecification"]["ContainerEntrypoint"] = command
    return arguments


def _request(job: JobSpec, catalog: Catalog) -> TrainingRequest:
    group = instance_group(instances(catalog), job.instance_type, job.hosts, "")
    return TrainingRequest("API", (group,))


def _billed(job: JobSpec, seconds: int, prices: Mapping[str, float]) -> str:
    """Return billable seconds of all hosts, with their price. SageMaker reports those of one host."""
    total = seconds * job.hosts
    text = f"{format_count(total, 'billable instance second')} ({job.hosts} x {seconds})"
    price = prices.get(job.instance_type)
    if price is None:
        return f"{text}; no price of {job.instance_type} in [tool.bakehouse.prices]"
    limit = ", less on Spot" if job.spot else ""
    return f"{text}: {price * total / 3600:.2f} at {price:g} an hour{limit}"


def _results(service: TrainingService, name: str, launched: LaunchReport) -> dict[str, Any] | None:
    """Return the results in a job's model; None if the job failed, still runs or wrote none."""
    if launched.status not in (Status.COMPLETED, Status.STOPPED):
        return None
    try:
        description = service.describe(name)
        model = description.model
        if not model:
            return None
        bucket, _, key = model.removeprefix("s3://").partition("/")
        content = service.download(bucket, key)
    except AwsError as error:
        if launched.status is Status.STOPPED:
            # It was stopped before its container could write anything.
            return None
        raise LaunchError.of(error.diagnostic) from error
    text = _member(content)
    if text is None:
        raise SmokeError(f"the model of the job `{name}` contains no `{RESULTS}`", facts=(("model", model),))
    return remote_smoke.read_results(text, f"`{RESULTS}` of the job `{name}`")


def _member(content: bytes) -> str | None:
    try:
        text = archive_reader.find(
            io.BytesIO(content), re.compile(rf"(?:\./)?{re.escape(RESULTS)}"), _MAX_RESULTS
        )
        return text.decode() if text is not None else None
    except ValueError:
        return None
