"""Sends a training job with a released image to SageMaker, and follows it.

Everything that can be checked without AWS is checked first: a job with errors is not sent, and no code is.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bakehouse.catalog.instance_gpus import find_gpus
from bakehouse.catalog.instance_types import Instance, instances
from bakehouse.cluster.job import job_name
from bakehouse.cluster.log_stream import LogStream
from bakehouse.errors import Diagnostic, LaunchError, Problems, UsageError
from bakehouse.plan.workspace import Workspace
from bakehouse.publish import image_uris
from bakehouse.sagemaker import code_upload, launch_report
from bakehouse.sagemaker.client import TrainingService
from bakehouse.sagemaker.create_training_job import DAY, VOLUME_GIB, api_request, toolkit_parameters
from bakehouse.sagemaker.follow import EVERY_FEW_SECONDS, Followed, Pace, follow, stop
from bakehouse.sagemaker.job_spec import S3, CheckedJob, JobSpec, check_job
from bakehouse.sagemaker.launch_report import LaunchReport
from bakehouse.sagemaker.rules import Finding
from bakehouse.sagemaker.training_request import LOCAL
from bakehouse.util.aws import AwsError, AwsFault
from bakehouse.util.oci import region_of

_NAME = re.compile(r"[a-zA-Z0-9](?:-*[a-zA-Z0-9]){0,62}")
_LONGEST_NAME = 63
_CHANNEL = re.compile(r"[A-Za-z0-9._-]{1,64}")
_ROLE = re.compile(r"arn:aws[a-z-]*:iam::[0-9]{12}:role/[a-zA-Z_0-9+=,.@/-]+")
_MOST_CHANNELS = 20
_CLOCKS_DIFFER = timedelta(minutes=1)
_TELLING_APART = (
    *("AlgorithmSpecification", "RoleArn", "ResourceConfig"),
    *("InputDataConfig", "OutputDataConfig", "StoppingCondition"),
)


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """A job to be sent."""

    image: str
    """An image's name, or `pytorch` or `tensorflow` for the best that fits its instance type."""
    job: JobSpec
    name: str = ""
    """Empty: the image's and the time."""
    region: str = ""
    """Empty: that of the image's newest release in Amazon ECR."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """Channels, by their addresses in S3."""
    output: str = ""
    """Where in S3 the model goes, and the code; empty: the bucket that SageMaker's SDK makes and uses."""
    max_run: int = DAY
    volume_gib: int = VOLUME_GIB
    """Of each host."""
    detach: bool = False
    """Only send it."""
    stop_on_interrupt: bool = False


@dataclass(frozen=True, slots=True)
class JobCallbacks:
    """Who hears what happens to a job."""

    report: Callable[[str], None] = print
    """Of its status."""
    output: Callable[[str], None] = print
    """Of a line that a host printed."""
    warn: Callable[[Finding], None] = lambda finding: print(f"warning: {finding.message}")
    """Of what is not as it should be, before the job is sent."""
    colour: bool = False
    verbose: bool = False
    """Also what the toolkit prints of its environment."""


_PRINTED = JobCallbacks()


def launch(
    workspace: Workspace,
    wanted: LaunchRequest,
    telling: JobCallbacks = _PRINTED,
    pace: Pace = EVERY_FEW_SECONDS,
) -> LaunchReport:
    """Check a job, send it and follow it to its end.

    Raises UsageError with everything that is wrong with it, and LaunchError where it could not be sent.
    """
    region, found = _prepared(workspace, wanted)
    for warning in found.warnings:
        telling.warn(warning)
    service, name = TrainingService(region), wanted.name or job_name(found.image.name)
    try:
        request = _with_code(service, wanted, found, name, telling.report)
    except AwsError as error:
        facts = (*error.diagnostic.facts, ("sent", "nothing"))
        raise LaunchError(replace(error.diagnostic, facts=facts)) from error
    first = first_ranks(request, instances(workspace.catalog))
    try:
        _send(service, request)
        telling.report(f"{name}: sent to SageMaker in {region}")
    except KeyboardInterrupt:
        is_stopping = wanted.stop_on_interrupt
        trouble = stop(service, name, telling.report) if is_stopping else None
        telling.report(f"{name}: interrupted while it was sent; SageMaker may have it")
        followed = Followed(None, {}, trouble, stopping=is_stopping and trouble is None)
        return launch_report.report(name, region, followed)
    if wanted.detach:
        return LaunchReport(name, region, None)
    return _followed(service, name, first, telling, pace, stop_on_interrupt=wanted.stop_on_interrupt)


def follow_job(
    workspace: Workspace,
    name: str,
    region: str,
    telling: JobCallbacks = _PRINTED,
    pace: Pace = EVERY_FEW_SECONDS,
    *,
    stop_on_interrupt: bool = False,
) -> LaunchReport:
    """Follow a job that was sent before, from its first line on; raises LaunchError where there is none."""
    service = TrainingService(region)
    try:
        described = service.describe(name)
    except AwsError as error:
        if error.fault is AwsFault.NOT_FOUND:
            hint = "`--region` is where it was sent"
            message = f"there is no training job `{name}` in {region}"
            raise LaunchError(Diagnostic(message, hint=hint)) from error
        raise LaunchError(error.diagnostic) from error
    first = first_ranks(described, instances(workspace.catalog))
    return _followed(service, name, first, telling, pace, stop_on_interrupt=stop_on_interrupt)


def default_region(workspace: Workspace) -> str:
    """The project's region, else boto3's; raises UsageError where neither is set."""
    try:
        region = workspace.project.region or TrainingService("").configured_region
    except AwsError as error:
        raise LaunchError(error.diagnostic) from error
    if not region:
        raise UsageError(Diagnostic("no AWS region is set", hint="`--region` names one, as in `eu-west-1`"))
    return region


def first_ranks(described: Mapping[str, Any], known: Mapping[str, Instance]) -> dict[str, int | None]:
    """A job's hosts, each with the number of its first rank; None where its type is nobody's guess.

    SageMaker deals names to groups as it likes.
    """
    resources = described["ResourceConfig"]
    groups = resources.get("InstanceGroups") or [resources]
    # A job that somebody else sent may run on no instances of its own.
    count = sum(int(group.get("InstanceCount", 0)) for group in groups)
    gpus = known.get(groups[0].get("InstanceType", ""), Instance("")).gpus
    each = None if len(groups) > 1 or gpus is None else max(gpus, 1)
    # The toolkit's order: `algo-10` comes before `algo-2`.
    names = sorted(f"algo-{number}" for number in range(1, count + 1))
    return {name: None if each is None else place * each for place, name in enumerate(names)}


def _followed(
    service: TrainingService,
    name: str,
    first: Mapping[str, int | None],
    telling: JobCallbacks,
    pace: Pace,
    *,
    stop_on_interrupt: bool,
) -> LaunchReport:
    stream = LogStream(first, telling.output, colour=telling.colour, verbose=telling.verbose)
    try:
        followed = follow(
            service,
            name,
            tuple(first),
            telling.report,
            stream.feed,
            stop_on_interrupt=stop_on_interrupt,
            pace=pace,
        )
    finally:
        stream.end()
    return launch_report.report(name, service.region, followed)


def _prepared(workspace: Workspace, wanted: LaunchRequest) -> tuple[str, CheckedJob]:
    """The region of a job and the job itself, with nothing wrong that is known here."""
    _check(wanted)
    is_framework = wanted.image in image_uris.FRAMEWORKS
    kind = wanted.job.instance_type
    asked = image_uris.ImageQuery(
        region=wanted.region,
        # SageMaker pulls from nowhere else.
        registry="ecr",
        instance=find_gpus(kind) if is_framework and kind else None,
    )
    record = image_uris.find(workspace.project.images, wanted.image, asked)
    job = replace(wanted.job, sdk="boto3")
    return region_of(record.registry), check_job(record, job, workspace.catalog, code_root=Path())


def _check(wanted: LaunchRequest) -> None:
    """What the API would refuse after the code was uploaded."""
    problems, job = Problems(), wanted.job

    def report(message: str, hint: str) -> None:
        problems.add(Diagnostic(message, hint=hint))

    if not job.role:
        report("no role that the job runs as", "`--role arn:aws:iam::123456789012:role/SageMakerRole`")
    elif not _ROLE.fullmatch(job.role):
        report(f"`{job.role}` is no role", "such as `arn:aws:iam::123456789012:role/SageMakerRole`")
    if not job.groups and not job.instance_type:
        hint = "`--instance-type` and `--instance-count`, or `--group`: they are paid for"
        report("nobody said which instances the job runs on", hint)
    if any(kind in LOCAL for kind in (job.instance_type, *(kind for _, kind, _ in job.groups))):
        report("a local job is not sent to SageMaker", "`./bake run` runs it on this machine")
    if wanted.name and not (_NAME.fullmatch(wanted.name) and len(wanted.name) <= _LONGEST_NAME):
        report(f"`{wanted.name}` can't be the name of a job", "63 letters, digits and hyphens at most")
    if wanted.max_run < 1:
        report(f"a job of {wanted.max_run} seconds", "`--max-run` is how long it may take")
    if wanted.volume_gib < 1:
        report("a host without a disk", "`--volume-size` is that of each host, such as `30g`")
    for channel, uri in wanted.inputs.items():
        if not _CHANNEL.fullmatch(channel):
            report(f"`{channel}` can't be the name of a channel", "64 letters, digits and `._-` at most")
        if not _is_s3(uri):
            report(f"channel `{channel}` is `{uri}`, which is no address in S3", "such as `s3://bucket/data`")
    if len(wanted.inputs) > _MOST_CHANNELS:
        report(f"{len(wanted.inputs)} channels", f"SageMaker takes {_MOST_CHANNELS}")
    if wanted.output and not _is_s3(wanted.output):
        report(f"`--output {wanted.output}` is no address in S3", "such as `s3://bucket/models`")
    problems.raise_as(UsageError)


def _is_s3(uri: str) -> bool:
    return uri.startswith(S3) and bool(uri.removeprefix(S3).partition("/")[0])


def _with_code(
    service: TrainingService, wanted: LaunchRequest, found: CheckedJob, name: str, say: Callable[[str], None]
) -> dict[str, Any]:
    """The request, once the code that it names is in S3."""
    request = found.request
    bucket, owner = wanted.output.removeprefix(S3).partition("/")[0], ""
    is_local = bool(request.entry_point) and not request.source_dir.startswith(S3)
    if is_local:
        # Read before AWS is asked for anything: it may be too big to be code.
        code = code_upload.pack(Path(request.source_dir or request.entry_point))
    if not bucket:
        bucket, owner = service.default_bucket()
    if owner and not is_local:
        # The model goes there.
        service.require(bucket, owner)
    told: dict[str, object] = dict(request.hyperparameters)
    if request.entry_point:
        archive = request.source_dir
        if is_local:
            # A job of that name may be there, whose code must stay as it is.
            key = f"{name}/source/{hashlib.sha256(code).hexdigest()[:12]}/sourcedir.tar.gz"
            service.upload(bucket, key, code, owner)
            archive = f"{S3}{bucket}/{key}"
            say(f"{name}: its code is at {archive}")
        told |= toolkit_parameters(request, archive=archive, name=name, region=service.region)
    return api_request(
        request,
        found.image,
        wanted.job.role,
        name=name,
        hyperparameters={key: json.dumps(value) for key, value in told.items()},
        output=wanted.output or f"{S3}{bucket}/",
        max_run=wanted.max_run,
        inputs=wanted.inputs,
        volume_gib=wanted.volume_gib,
    )


def _send(service: TrainingService, request: Mapping[str, Any]) -> None:
    """Ask for the job; raises LaunchError where SageMaker doesn't take it."""
    began = datetime.now(UTC)
    try:
        service.create(request)
    except AwsError as error:
        name, told = request["TrainingJobName"], error.diagnostic
        if error.code == "ResourceInUse":
            # It may be this one: boto3 asks again where an answer was lost.
            if _is_ours(service, request, began):
                return
            message = f"there is another training job `{name}`"
            told = replace(told, message=message, hint="names are taken once: give `--job-name` another")
        elif error.code == "ResourceLimitExceeded":
            hint = "ask for more of these instances under Service Quotas, `... for training job usage`"
            told = replace(told, message="the account may not have so many of these instances", hint=hint)
        elif error.fault in (AwsFault.UNREACHABLE, AwsFault.BUSY):
            hint = f"see whether it is there: `./bake follow {name} --region {service.region}`"
            told = replace(told, hint=hint)
        raise LaunchError(told) from error


def _is_ours(service: TrainingService, request: Mapping[str, Any], began: datetime) -> bool:
    """Whether a job that is there is the one that was just asked for."""
    try:
        there = service.describe(request["TrainingJobName"])
    except AwsError:
        return False
    return bool(
        there["CreationTime"] >= began - _CLOCKS_DIFFER
        and all(there.get(key, {}) == request.get(key, {}) for key in ("HyperParameters", "Environment"))
        and all(_holds(there.get(key, []), request.get(key, [])) for key in _TELLING_APART)
    )


def _holds(there: object, asked: object) -> bool:
    """Whether SageMaker says of a job what it was asked for; it adds what was left out."""
    if isinstance(asked, Mapping):
        return isinstance(there, Mapping) and all(_holds(there.get(key), asked[key]) for key in asked)
    if isinstance(asked, list):
        return (
            isinstance(there, list)
            and len(there) == len(asked)
            and all(_holds(one, other) for one, other in zip(there, asked, strict=True))
        )
    return there == asked
