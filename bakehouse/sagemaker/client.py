"""What one training job is asked of AWS: S3 for its code, SageMaker for the job, CloudWatch for its logs."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from bakehouse.util.aws_answers import Refusal, Trouble, not_aws, refusal, unfit_settings

if TYPE_CHECKING:
    import boto3  # type: ignore[import-untyped]

LOG_GROUP = "/aws/sagemaker/TrainingJobs"
_CONNECT_SECONDS, _READ_SECONDS = 10, 30


class ServiceError(Exception):
    """AWS did not do what it was asked."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.diagnostic.message)
        self.trouble = refusal.trouble
        self.diagnostic = refusal.diagnostic
        self.code = refusal.code


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
        with _told_as("find out who we are in AWS"):
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
            with _told_as(doing):
                self._client("s3").put_object(**arguments)
        except ServiceError as error:
            if error.code != "NoSuchBucket" or not owner:
                raise
            self._make(bucket)
            with _told_as(doing):
                self._client("s3").put_object(**arguments)

    def require(self, bucket: str, owner: str) -> None:
        """See that the SDK's own bucket is there and `owner`'s; it is made where it is missing."""
        try:
            with _told_as(f"look for the bucket `{bucket}`"):
                self._client("s3").head_bucket(Bucket=bucket, ExpectedBucketOwner=owner)
        except ServiceError as error:
            if error.trouble is not Trouble.ABSENT:
                raise
            self._make(bucket)

    def create(self, request: Mapping[str, object]) -> None:
        with _told_as("send the job to SageMaker"):
            self._client("sagemaker").create_training_job(**request)

    def describe(self, name: str) -> Mapping[str, Any]:
        with _told_as(f"ask about the job `{name}`"):
            return dict(self._client("sagemaker").describe_training_job(TrainingJobName=name))

    def stop(self, name: str) -> None:
        with _told_as(f"stop the job `{name}`"):
            self._client("sagemaker").stop_training_job(TrainingJobName=name)

    def log_streams(self, name: str) -> list[str]:
        """The logs of a job's hosts, by their names; none where there are none yet."""
        with _told_as("list the job's logs"):
            pages = self._client("logs").get_paginator("describe_log_streams")
            found = pages.paginate(logGroupName=LOG_GROUP, logStreamNamePrefix=f"{name}/")
            return sorted(one["logStreamName"] for page in found for one in page["logStreams"])

    def log_events(self, stream: str, token: str, since: int) -> Page:
        """The next events of a log, from its head or `since` a time; a token belongs to one such time."""
        place: dict[str, Any] = {"startTime": since} if since else {}
        if token:
            place["nextToken"] = token
        with _told_as("read the job's logs"):
            answer = self._client("logs").get_log_events(
                logGroupName=LOG_GROUP, logStreamName=stream, startFromHead=True, **place
            )
        return Page(tuple(answer["events"]), str(answer["nextForwardToken"]))

    def _make(self, bucket: str) -> None:
        try:
            with _told_as(f"make the bucket `{bucket}`"):
                self._client("s3").create_bucket(Bucket=bucket, **self._place())
        except ServiceError as error:
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

        with _told_as("read the AWS configuration"):
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


@contextlib.contextmanager
def _told_as(doing: str) -> Iterator[None]:
    """Turn boto3's exceptions into ours; the words of a refused signature are never repeated."""
    from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]
    from botocore.parsers import ResponseParserError  # type: ignore[import-untyped]

    try:
        yield
    except (ClientError, BotoCoreError) as error:
        raise ServiceError(refusal(doing, error)) from error
    except ResponseParserError as error:
        raise ServiceError(not_aws(doing)) from error
    except ValueError as error:
        raise ServiceError(unfit_settings(doing)) from error
