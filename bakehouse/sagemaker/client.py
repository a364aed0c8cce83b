"""AWS services of a training job: S3 for its code, SageMaker for the job, CloudWatch for its logs."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import IO, TYPE_CHECKING, Any

from bakehouse.util.aws import AwsError, AwsFault, object_content, translate_errors

if TYPE_CHECKING:
    import boto3  # type: ignore[import-untyped]

LOG_GROUP = "/aws/sagemaker/TrainingJobs"
_MAX_OBJECT_BYTES = 2_000_000_000
"""Limit of downloads: archives of code, and models with test results."""
_CONNECT_SECONDS, _READ_SECONDS = 10, 30


@dataclass(frozen=True, slots=True)
class JobDescription:
    """State of a job."""

    status: str
    """TrainingJobStatus: `InProgress`, `Stopping` or one of `follow.ENDED`."""
    changes: tuple[str, ...]
    """Changes of the secondary status, each with its message, oldest first."""
    reason: str
    """FailureReason; empty if the job has not failed."""
    created: datetime
    started: datetime | None
    ended: datetime | None
    billed: int | None
    """Seconds."""
    model: str
    """S3 URI."""
    request: Mapping[str, Any]
    """Arguments of the request, with SageMaker's defaults and the other fields of the description."""

    @property
    def seconds(self) -> float | None:
        """Training time."""
        return (self.ended - self.started).total_seconds() if self.started and self.ended else None


@dataclass(frozen=True, slots=True)
class LogEvent:
    """A line of a host's output."""

    time: int
    """Milliseconds since 1970."""
    message: str


@dataclass(frozen=True, slots=True)
class Page:
    """Events of a log, and the token of the next page. At the end, the token stays the same."""

    events: tuple[LogEvent, ...]
    token: str


class TrainingService:
    """The services in one region, with the credentials that boto3 finds."""

    def __init__(self, region: str) -> None:
        self.region = region
        self._clients: dict[str, Any] = {}

    @property
    def configured_region(self) -> str:
        """The given region, or else the one in boto3's configuration."""
        return str(self._session.region_name or "")

    def default_bucket(self) -> tuple[str, str]:
        """Return the bucket that the SageMaker SDK creates and uses, and the account that must own it."""
        with translate_errors("determine the AWS identity"):
            account = str(self._client("sts").get_caller_identity()["Account"])
        return f"sagemaker-{self.region}-{account}", account

    def upload(self, bucket: str, key: str, body: bytes | IO[bytes], owner: str = "") -> None:
        """Upload code. With an `owner`, the bucket is the SDK's and is created if it is missing."""
        arguments = {"Bucket": bucket, "Key": key, "Body": body}
        if owner:
            # Another account may have created a bucket of that name.
            arguments["ExpectedBucketOwner"] = owner
        action = f"upload the code to `s3://{bucket}/{key}`"
        try:
            with translate_errors(action):
                self._client("s3").put_object(**arguments)
        except AwsError as error:
            if error.code != "NoSuchBucket" or not owner:
                raise
            self._create_bucket(bucket)
            if not isinstance(body, bytes):
                body.seek(0)
            with translate_errors(action):
                self._client("s3").put_object(**arguments)

    def download(self, bucket: str, key: str) -> bytes:
        """Return an object of S3."""
        with translate_errors(f"download `s3://{bucket}/{key}`"):
            return object_content(self._client("s3").get_object(Bucket=bucket, Key=key), _MAX_OBJECT_BYTES)

    def require_bucket(self, bucket: str, owner: str) -> None:
        """Check that the SDK's bucket belongs to `owner`; create it if it is missing."""
        try:
            with translate_errors(f"look for the bucket `{bucket}`"):
                self._client("s3").head_bucket(Bucket=bucket, ExpectedBucketOwner=owner)
        except AwsError as error:
            if error.fault is not AwsFault.NOT_FOUND:
                raise
            self._create_bucket(bucket)

    def create(self, request: Mapping[str, object]) -> None:
        with translate_errors("send the job to SageMaker"):
            self._client("sagemaker").create_training_job(**request)

    def describe(self, name: str) -> JobDescription:
        with translate_errors(f"describe the job `{name}`"):
            fields = self._client("sagemaker").describe_training_job(TrainingJobName=name)
        return JobDescription(
            status=fields["TrainingJobStatus"],
            changes=tuple(
                ": ".join(filter(None, (change["Status"], change.get("StatusMessage"))))
                for change in fields.get("SecondaryStatusTransitions", ())
            ),
            reason=fields.get("FailureReason", ""),
            created=fields["CreationTime"],
            started=fields.get("TrainingStartTime"),
            ended=fields.get("TrainingEndTime"),
            billed=fields.get("BillableTimeInSeconds"),
            model=fields.get("ModelArtifacts", {}).get("S3ModelArtifacts", ""),
            request=fields,
        )

    def stop(self, name: str) -> None:
        with translate_errors(f"stop the job `{name}`"):
            self._client("sagemaker").stop_training_job(TrainingJobName=name)

    def log_streams(self, name: str) -> list[str]:
        """Return the names of the log streams of a job's hosts that exist so far."""
        with translate_errors("list the job's logs"):
            paginator = self._client("logs").get_paginator("describe_log_streams")
            pages = paginator.paginate(logGroupName=LOG_GROUP, logStreamNamePrefix=f"{name}/")
            return sorted(stream["logStreamName"] for page in pages for stream in page["logStreams"])

    def log_events(self, stream: str, token: str, since: int) -> Page:
        """Return the next events of a log, from its start or from a time. A token belongs to its time."""
        position = ({"startTime": since} if since else {}) | ({"nextToken": token} if token else {})
        with translate_errors("read the job's logs"):
            page = self._client("logs").get_log_events(
                logGroupName=LOG_GROUP, logStreamName=stream, startFromHead=True, **position
            )
        events = tuple(LogEvent(event["timestamp"], event["message"]) for event in page["events"])
        return Page(events, page["nextForwardToken"])

    def _create_bucket(self, bucket: str) -> None:
        # S3 does not allow a location for this region.
        location = {"CreateBucketConfiguration": {"LocationConstraint": self.region}}
        arguments: dict[str, Any] = {} if self.region == "us-east-1" else location
        try:
            with translate_errors(f"create the bucket `{bucket}`"):
                self._client("s3").create_bucket(Bucket=bucket, **arguments)
        except AwsError as error:
            # Another launch was faster.
            if error.code != "BucketAlreadyOwnedByYou":
                raise

    @cached_property
    def _session(self) -> "boto3.Session":
        import boto3

        with translate_errors("read the AWS configuration"):
            return boto3.Session(region_name=self.region or None)

    def _client(self, service: str) -> Any:
        from botocore.config import Config  # type: ignore[import-untyped]

        if service not in self._clients:
            # AWS_MAX_ATTEMPTS sets the retries.
            config = Config(connect_timeout=_CONNECT_SECONDS, read_timeout=_READ_SECONDS)
            self._clients[service] = self._session.client(service, region_name=self.region, config=config)
        return self._clients[service]
