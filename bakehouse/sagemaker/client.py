"""What one training job is asked of AWS: S3 for its code, SageMaker for the job, CloudWatch for its logs."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from bakehouse.util.aws import AwsError, AwsFault, translate_errors

if TYPE_CHECKING:
    import boto3  # type: ignore[import-untyped]

LOG_GROUP = "/aws/sagemaker/TrainingJobs"
_CONNECT_SECONDS, _READ_SECONDS = 10, 30


@dataclass(frozen=True, slots=True)
class Page:
    """Events of a log, and from where to go on; the same token again means that there are no more."""

    events: tuple[Mapping[str, Any], ...]
    token: str


class TrainingService:
    """SageMaker, and what belongs to it, in one region; with whatever credentials boto3 finds by itself."""

    def __init__(self, region: str) -> None:
        self.region = region

    @property
    def configured_region(self) -> str:
        """The region given, else the one that boto3 is configured for."""
        return str(self._session.region_name or "")

    def default_bucket(self) -> tuple[str, str]:
        """The bucket that SageMaker's SDK makes and uses, and the account that has to own it."""
        with translate_errors("determine the AWS identity"):
            account = str(self._client("sts").get_caller_identity()["Account"])
        return f"sagemaker-{self.region}-{account}", account

    def upload(self, bucket: str, key: str, body: bytes, owner: str = "") -> None:
        """Put the code there; the SDK's own bucket, which has an `owner`, is made where it is missing."""
        arguments = {"Bucket": bucket, "Key": key, "Body": body}
        if owner:
            # Anybody could have made a bucket of that name before.
            arguments["ExpectedBucketOwner"] = owner
        doing = f"upload the code to `s3://{bucket}/{key}`"
        try:
            with translate_errors(doing):
                self._client("s3").put_object(**arguments)
        except AwsError as error:
            if error.code != "NoSuchBucket" or not owner:
                raise
            self._make(bucket)
            with translate_errors(doing):
                self._client("s3").put_object(**arguments)

    def require(self, bucket: str, owner: str) -> None:
        """See that the SDK's own bucket is there and `owner`'s; it is made where it is missing."""
        try:
            with translate_errors(f"look for the bucket `{bucket}`"):
                self._client("s3").head_bucket(Bucket=bucket, ExpectedBucketOwner=owner)
        except AwsError as error:
            if error.fault is not AwsFault.NOT_FOUND:
                raise
            self._make(bucket)

    def create(self, request: Mapping[str, object]) -> None:
        with translate_errors("send the job to SageMaker"):
            self._client("sagemaker").create_training_job(**request)

    def describe(self, name: str) -> Mapping[str, Any]:
        with translate_errors(f"ask about the job `{name}`"):
            return dict(self._client("sagemaker").describe_training_job(TrainingJobName=name))

    def stop(self, name: str) -> None:
        with translate_errors(f"stop the job `{name}`"):
            self._client("sagemaker").stop_training_job(TrainingJobName=name)

    def log_streams(self, name: str) -> list[str]:
        """The logs of a job's hosts, by their names; none where there are none yet."""
        with translate_errors("list the job's logs"):
            pages = self._client("logs").get_paginator("describe_log_streams")
            found = pages.paginate(logGroupName=LOG_GROUP, logStreamNamePrefix=f"{name}/")
            return sorted(one["logStreamName"] for page in found for one in page["logStreams"])

    def log_events(self, stream: str, token: str, since: int) -> Page:
        """The next events of a log, from its head or `since` a time; a token belongs to one such time."""
        place: dict[str, Any] = {"startTime": since} if since else {}
        if token:
            place["nextToken"] = token
        with translate_errors("read the job's logs"):
            answer = self._client("logs").get_log_events(
                logGroupName=LOG_GROUP, logStreamName=stream, startFromHead=True, **place
            )
        return Page(tuple(answer["events"]), str(answer["nextForwardToken"]))

    def _make(self, bucket: str) -> None:
        try:
            with translate_errors(f"make the bucket `{bucket}`"):
                self._client("s3").create_bucket(Bucket=bucket, **self._place())
        except AwsError as error:
            # Another launch was faster.
            if error.code != "BucketAlreadyOwnedByYou":
                raise

    def _place(self) -> dict[str, Any]:
        # The one region that S3 does not let be named.
        if self.region == "us-east-1":
            return {}
        return {"CreateBucketConfiguration": {"LocationConstraint": self.region}}

    @cached_property
    def _session(self) -> "boto3.Session":
        import boto3

        with translate_errors("read the AWS configuration"):
            return boto3.Session(region_name=self.region or None)

    @cached_property
    def _clients(self) -> dict[str, Any]:
        return {}

    def _client(self, service: str) -> Any:
        from botocore.config import Config  # type: ignore[import-untyped]

        if service not in self._clients:
            # How often boto3 asks again is the user's: AWS_MAX_ATTEMPTS.
            config = Config(connect_timeout=_CONNECT_SECONDS, read_timeout=_READ_SECONDS)
            self._clients[service] = self._session.client(service, region_name=self.region, config=config)
        return self._clients[service]
