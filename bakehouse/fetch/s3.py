"""Reader of the files of a mirror in S3, with the credentials that boto3 finds."""

import contextlib
import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from bakehouse.fetch.faults import Fault, SourceError, status_error
from bakehouse.fetch.http_client import CONNECT_SECONDS, READ_SECONDS
from bakehouse.util.aws import AwsError, AwsFault, translate_errors

ADDRESS = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(?P<prefix>.*))?")
_CHUNK = 1 << 16
_MAX_CONCURRENT_REQUESTS = 8
_OTHER_BYTES = ("PreconditionFailed", "412", "InvalidRange", "416")


class S3Files:
    """The objects below one S3 URL."""

    def __init__(self, address: str) -> None:
        match = ADDRESS.fullmatch(address.rstrip("/"))
        assert match
        self._bucket, self._prefix = match["bucket"], match["prefix"] or ""

    @contextlib.contextmanager
    def open(self, name: str, start: int, validator: str) -> Iterator["S3Object"]:
        """Open an object at byte `start`, or at 0 if it no longer matches `validator`."""
        key = {"Bucket": self._bucket, "Key": f"{self._prefix}/{name}".lstrip("/")}
        part = {"Range": f"bytes={start}-", **({"IfMatch": validator} if validator else {})} if start else {}
        try:
            response = self._get({**key, **part})
        except AwsError as error:
            if not part or error.code not in _OTHER_BYTES:
                raise _source_error(error) from None
            try:
                response = self._get(key)
            except AwsError as second:
                raise _source_error(second) from None
        # Stores that are compatible with S3 may not support ranges.
        is_part = str(response.get("ContentRange", "")).startswith(f"bytes {start}-")
        with contextlib.closing(response["Body"]):
            yield S3Object(response, start if is_part else 0)

    def _get(self, request: dict[str, str]) -> Any:
        with translate_errors("read from S3"):
            return self._client.get_object(**request)

    @cached_property
    def _client(self) -> Any:
        import boto3  # type: ignore[import-untyped]
        from botocore.config import Config  # type: ignore[import-untyped]

        config = Config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=READ_SECONDS,
            retries={"total_max_attempts": 2},
            max_pool_connections=_MAX_CONCURRENT_REQUESTS,
        )
        return boto3.Session().client("s3", config=config)


class S3Object:
    """An object in S3."""

    def __init__(self, response: Any, start: int) -> None:
        self._body = response["Body"]
        self.start = start
        self.total: int | None = start + int(response["ContentLength"])
        self.validator = str(response.get("ETag", ""))

    def chunks(self) -> Iterator[bytes]:
        from botocore.exceptions import BotoCoreError, HTTPClientError  # type: ignore[import-untyped]

        try:
            yield from self._body.iter_chunks(_CHUNK)
        except (BotoCoreError, HTTPClientError, OSError):
            reason = "closed the connection"
            raise SourceError(reason, Fault.CUT_OFF) from None


def _source_error(error: AwsError) -> SourceError:
    """Convert an error. The text of botocore can contain the URL, so it is left out."""
    if error.code == "NoSuchBucket":
        return SourceError("the bucket does not exist", Fault.SETTINGS)
    if error.fault is AwsFault.NOT_FOUND:
        return status_error(404)
    if error.code:
        # Without valid credentials, no object of the bucket is readable.
        fault = Fault.SETTINGS if error.fault is AwsFault.UNAUTHENTICATED else Fault.REJECTED
        return SourceError(f"S3 answered with {error.code}", fault)
    if error.fault is AwsFault.UNAUTHENTICATED:
        return SourceError("needs AWS credentials", Fault.SETTINGS)
    cause = type(error.__cause__).__name__
    if cause == "SSLError":
        return SourceError("S3's certificate is not trusted (AWS_CA_BUNDLE)", Fault.CERTIFICATE)
    if error.fault is AwsFault.UNREACHABLE:
        return SourceError("S3 is unreachable", Fault.NO_CONNECTION)
    return SourceError(f"S3: {cause}", Fault.SETTINGS)
