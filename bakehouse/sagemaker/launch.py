"""Send a training job with a released image to SageMaker and follow it.

All checks that work without AWS come first. If they find errors, neither job nor code is sent.
"""

import contextlib
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bakehouse.catalog.instance_types import Instance, instances
from bakehouse.catalog.user_smoke import CHANNEL_NAME, CHANNEL_NAME_HINT
from bakehouse.cluster.job import job_name
from bakehouse.cluster.log_stream import LogStream
from bakehouse.errors import Diagnostic, LaunchError, Problems, UsageError
from bakehouse.jobs import code_archive
from bakehouse.jobs.create_training_job import api_request, toolkit_parameters
from bakehouse.jobs.job_images import find_release, known_lines
from bakehouse.jobs.job_spec import S3, JobSpec, valid_job
from bakehouse.jobs.rules import RuleViolation
from bakehouse.jobs.tested_job import PLACEHOLDER, with_tested_settings
from bakehouse.jobs.training_request import LOCAL, LaunchImage, TrainingRequest, launch_image
from bakehouse.plan.workspace import Workspace
from bakehouse.sagemaker import launch_report
from bakehouse.sagemaker.client import TrainingService
from bakehouse.sagemaker.follow import DEFAULT_PACE, FollowResult, Pace, follow, stop
from bakehouse.sagemaker.launch_report import LaunchReport
from bakehouse.trust import policy
from bakehouse.util.aws import AwsError, AwsFault
from bakehouse.util.oci import region_of
from bakehouse.util.terminal import Reporter

_NAME = re.compile(r"(?=.{1,63}$)[a-zA-Z0-9](?:-*[a-zA-Z0-9])*")
_ROLE = re.compile(r"arn:aws[a-z-]*:iam::[0-9]{12}:role/[a-zA-Z_0-9+=,.@/-]+")
_MAX_CHANNELS = 20
_MAX_CLOCK_DIFFERENCE = timedelta(minutes=1)
_IDENTIFYING_FIELDS = (
    "AlgorithmSpecification",
    "RoleArn",
    "ResourceConfig",
    "InputDataConfig",
    "OutputDataConfig",
    "StoppingCondition",
)


@dataclass(frozen=True, slots=True)
class JobCallbacks:
    """Functions that receive the events of a job."""

    report: Reporter = print
    """Receives changes of the status."""
    output: Reporter = print
    """Receives lines of the hosts' output."""
    warn: Callable[[RuleViolation], None] = lambda finding: print(f"warning: {finding.message}")
    """Receives warnings before the job is sent."""
    colour: bool = False
    verbose: bool = False
    """Include the toolkit's report of its environment."""


PRINTED = JobCallbacks()


def launch(
    workspace: Workspace,
    image: str,
    job: JobSpec,
    callbacks: JobCallbacks = PRINTED,
    pace: Pace = DEFAULT_PACE,
    *,
    region: str = "",
    detach: bool = False,
    stop_on_interrupt: bool = False,
) -> LaunchReport:
    """Check a job, send it and, unless detached, follow it to its end.

    `image` is the name of an image, or `pytorch` or `tensorflow` for the best image for the instance type.
    Without a region, it is that of the image's newest release in Amazon ECR. Raises UsageError with all
    errors in the job, LaunchError if it could not be sent.
    """
    _check_settings(job)
    # SageMaker pulls only from Amazon ECR.
    record = find_release(workspace, image, job.instance_type, region, registry="ecr")
    sent_image = launch_image(record, workspace.catalog, workspace.recipes.get(record.image))
    job = with_tested_settings(sent_image, job)
    _check_inputs(job)
    checked = valid_job(sent_image, replace(job, sdk="boto3"), workspace.catalog, code_root=Path())
    policy.require(workspace.project, record, callbacks.report)
    for warning in checked.warnings:
        callbacks.warn(warning)
    for line in known_lines(workspace, record.image, record):
        callbacks.report(line)
    service = TrainingService(region_of(record.registry))
    job = replace(job, name=job.name or job_name(record.image))
    try:
        arguments = _upload_code(service, job, checked.request, sent_image, callbacks.report)
    except AwsError as error:
        facts = (*error.diagnostic.facts, ("sent", "nothing"))
        raise LaunchError.of(replace(error.diagnostic, facts=facts)) from error
    return send_and_follow(
        service,
        arguments,
        first_ranks(arguments, instances(workspace.catalog)),
        callbacks,
        pace,
        stop_on_interrupt=stop_on_interrupt,
        detach=detach,
    )


def send_and_follow(
    service: TrainingService,
    arguments: Mapping[str, Any],
    ranks: Mapping[str, int | None],
    callbacks: JobCallbacks,
    pace: Pace,
    *,
    stop_on_interrupt: bool,
    detach: bool = False,
) -> LaunchReport:
    """Send a job and follow it to its end. `ranks` are the first ranks of each host.

    Raises LaunchError if SageMaker rejects it.
    """
    name = arguments["TrainingJobName"]
    try:
        _send(service, arguments)
        hint = "; Ctrl-C stops the job" if stop_on_interrupt else ""
        callbacks.report(f"{name}: sent to SageMaker in {service.region}{hint}")
    except KeyboardInterrupt:
        problem = stop(service, name, callbacks.report) if stop_on_interrupt else None
        callbacks.report(f"{name}: interrupted while sending the job, which may be running")
        followed = FollowResult(None, {}, problem, stopping=stop_on_interrupt and problem is None)
        return launch_report.report(name, service.region, followed)
    if detach:
        return LaunchReport(name, service.region, None)
    return _follow(service, name, ranks, callbacks, pace, stop_on_interrupt=stop_on_interrupt)


def follow_job(
    workspace: Workspace,
    name: str,
    region: str,
    callbacks: JobCallbacks = PRINTED,
    pace: Pace = DEFAULT_PACE,
    *,
    stop_on_interrupt: bool = False,
) -> LaunchReport:
    """Follow an earlier job from its first line; raise LaunchError if it does not exist."""
    service = TrainingService(region)
    try:
        description = service.describe(name)
    except AwsError as error:
        if error.fault is AwsFault.NOT_FOUND:
            raise LaunchError(
                f"the training job `{name}` does not exist in {region}",
                hint="set `--region` to the region of the job",
            ) from error
        raise LaunchError.of(error.diagnostic) from error
    ranks = first_ranks(description.request, instances(workspace.catalog))
    return _follow(service, name, ranks, callbacks, pace, stop_on_interrupt=stop_on_interrupt)


def default_region(workspace: Workspace) -> str:
    """Return the project's region, or else boto3's; raise UsageError if neither is set."""
    try:
        region = workspace.project.region or TrainingService("").configured_region
    except AwsError as error:
        raise LaunchError.of(error.diagnostic) from error
    if not region:
        raise UsageError("no AWS region is set", hint="set `--region`, for example to `eu-west-1`")
    return region


def first_ranks(request: Mapping[str, Any], instance_types: Mapping[str, Instance]) -> dict[str, int | None]:
    """Return the first rank of each host; None if the ranks per host are unknown.

    They are unknown with several groups, because SageMaker assigns host names to groups at random.
    """
    resources = request["ResourceConfig"]
    groups = resources.get("InstanceGroups") or [resources]
    # A job of another tool may have no instance count.
    count = sum(int(group.get("InstanceCount", 0)) for group in groups)
    gpus = instance_types.get(groups[0].get("InstanceType", ""), Instance("")).gpus
    per_host = None if len(groups) > 1 or gpus is None else max(gpus, 1)
    # In the toolkit's order, `algo-10` comes before `algo-2`.
    names = sorted(f"algo-{number}" for number in range(1, count + 1))
    return {name: None if per_host is None else index * per_host for index, name in enumerate(names)}


def _follow(
    service: TrainingService,
    name: str,
    ranks: Mapping[str, int | None],
    callbacks: JobCallbacks,
    pace: Pace,
    *,
    stop_on_interrupt: bool,
) -> LaunchReport:
    stream = LogStream(ranks, callbacks.output, colour=callbacks.colour, verbose=callbacks.verbose)
    try:
        followed = follow(
            service,
            name,
            tuple(ranks),
            callbacks.report,
            stream.feed,
            stop_on_interrupt=stop_on_interrupt,
            pace=pace,
        )
    finally:
        stream.end()
    return launch_report.report(name, service.region, followed)


def _check_settings(job: JobSpec) -> None:
    """Check the settings that the API would reject after the upload of the code."""
    problems = Problems()

    def add(message: str, hint: str) -> None:
        problems.add(Diagnostic(message, hint=hint))

    check_role(job.role, problems)
    if not job.groups and not job.instance_type:
        hint = "set `--instance-type` and `--instance-count`, or `--group`"
        add("no instance type given", hint)
    if {job.instance_type, *(group.instance_type for group in job.groups)} & {*LOCAL}:
        add("SageMaker does not run local jobs", "use `bake run` to run it on this machine")
    if job.name and not _NAME.fullmatch(job.name):
        add(f"`{job.name}` is not a valid job name", "use at most 63 letters, digits and hyphens")
    if job.time_limit < 1:
        add(f"invalid time limit of {job.time_limit} seconds", "set `max_run` of the job file to at least 1")
    if job.disk_gib < 1:
        add("the hosts have no disk", "set `volume_size` of the job, for example to `30g`")
    for channel, uri in job.inputs.items():
        if not CHANNEL_NAME.fullmatch(channel):
            add(f"`{channel}` is not a valid channel name", CHANNEL_NAME_HINT)
        if not is_s3(uri):
            hint = "use for example `s3://bucket/data`"
            add(f"channel `{channel}` is `{uri}`, which is not an S3 URI", hint)
    if len(job.inputs) > _MAX_CHANNELS:
        add(f"the job has {len(job.inputs)} channels", f"use at most {_MAX_CHANNELS}")
    if job.output and not is_s3(job.output):
        add(f"`output` is `{job.output}`, which is not an S3 URI", "use for example `s3://bucket/models`")
    problems.raise_as(UsageError)


def _check_inputs(job: JobSpec) -> None:
    """Check that the channels of the smoke test have S3 URIs."""
    unset = [name for name, uri in job.inputs.items() if uri.startswith(PLACEHOLDER)]
    if unset:
        message = f"the smoke test of the recipe has the channel `{unset[0]}`, and the job has no data for it"
        raise UsageError(message, hint=f"set `--channel {unset[0]}=s3://bucket/data`")


def check_role(role: str, problems: Problems) -> None:
    """Report a role that is missing or not an ARN."""
    if not role:
        hint = "set `--role arn:aws:iam::123456789012:role/SageMakerRole`"
        problems.add(Diagnostic("no IAM role given", hint=hint))
    elif not _ROLE.fullmatch(role):
        hint = "use `arn:aws:iam::123456789012:role/SageMakerRole`"
        problems.add(Diagnostic(f"`{role}` is not the ARN of a role", hint=hint))


def is_s3(uri: str) -> bool:
    """Return whether a text is the S3 URI of something in a bucket."""
    return uri.startswith(S3) and bool(uri.removeprefix(S3).partition("/")[0])


def _upload_code(
    service: TrainingService, job: JobSpec, request: TrainingRequest, image: LaunchImage, report: Reporter
) -> dict[str, Any]:
    """Return the arguments of the API after the code was uploaded to S3."""
    name = job.name
    bucket, owner = job.output.removeprefix(S3).partition("/")[0], ""
    is_local = bool(request.entry_point) and not request.source_dir.startswith(S3)
    with contextlib.ExitStack() as stack:
        if is_local:
            # Before any request to AWS, because it may contain secrets or be too big to be code.
            source = Path(request.source_dir or request.entry_point)
            tree = code_archive.select(source, request.entry_point if request.source_dir else "", report)
            code = stack.enter_context(code_archive.pack(tree))
        if not bucket:
            bucket, owner = service.default_bucket()
        if owner and not is_local:
            # The model will be stored there.
            service.require_bucket(bucket, owner)
        archive = request.source_dir
        if is_local:
            # The code of an existing job with this name must not change.
            digest = hashlib.file_digest(code, "sha256").hexdigest()  # type: ignore[arg-type]
            key = f"{name}/source/{digest[:12]}/sourcedir.tar.gz"
            code.seek(0)
            service.upload(bucket, key, code, owner)
            archive = f"{S3}{bucket}/{key}"
            report(f"{name}: uploaded the code to {archive}")
    hyperparameters: dict[str, object] = dict(request.hyperparameters)
    if request.entry_point:
        hyperparameters |= toolkit_parameters(request, archive=archive, name=name, region=service.region)
    return api_request(
        request,
        image,
        job,
        name=name,
        hyperparameters={key: json.dumps(value) for key, value in hyperparameters.items()},
        output=job.output or f"{S3}{bucket}/",
    )


def _send(service: TrainingService, arguments: Mapping[str, Any]) -> None:
    """Create the job; raise LaunchError if SageMaker rejects it."""
    began = datetime.now(UTC)
    try:
        service.create(arguments)
    except AwsError as error:
        name, diagnostic = arguments["TrainingJobName"], error.diagnostic
        if error.code == "ResourceInUse":
            # It may be this job, because boto3 retries after a lost response.
            if _is_same_job(service, arguments, began):
                return
            message = f"the training job `{name}` already exists"
            diagnostic = replace(diagnostic, message=message, hint="set another `--job-name`")
        elif error.code == "ResourceLimitExceeded":
            hint = "request a higher quota in Service Quotas, under `... for training job usage`"
            diagnostic = replace(
                diagnostic, message="the account's quota for these instances is too low", hint=hint
            )
        elif error.fault in (AwsFault.UNREACHABLE, AwsFault.BUSY):
            hint = f"check whether the job exists: `bake launch --follow {name} --region {service.region}`"
            diagnostic = replace(diagnostic, hint=hint)
        raise LaunchError.of(diagnostic) from error


def _is_same_job(service: TrainingService, arguments: Mapping[str, Any], began: datetime) -> bool:
    """Return whether the existing job is the one that was just sent."""
    try:
        description = service.describe(arguments["TrainingJobName"])
    except AwsError:
        return False
    sent = description.request
    return bool(
        description.created >= began - _MAX_CLOCK_DIFFERENCE
        and all(sent.get(key, {}) == arguments.get(key, {}) for key in ("HyperParameters", "Environment"))
        and all(_contains(sent.get(key, []), arguments.get(key, [])) for key in _IDENTIFYING_FIELDS)
    )


def _contains(description: object, request: object) -> bool:
    """Return whether a description contains all values of a request. SageMaker adds defaults."""
    if isinstance(request, Mapping):
        return isinstance(description, Mapping) and all(
            _contains(description.get(key), request[key]) for key in request
        )
    if isinstance(request, list):
        return (
            isinstance(description, list)
            and len(description) == len(request)
            and all(_contains(item, value) for item, value in zip(description, request, strict=True))
        )
    return description == request
