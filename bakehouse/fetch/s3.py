"""Reads files of a mirror that lies in S3, with whatever credentials boto3 finds."""

import contextlib
import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from bakehouse.fetch.http_client import CONNECT_SECONDS, READ_SECONDS, SourceError

ADDRESS = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(?P<prefix>.*))?")
_CHUNK = 1 << 16
_AT_ONCE = 8
_OTHER_BYTES = ("PreconditionFailed", "412", "InvalidRange", "416")
_ABSENT = ("NoSuchKey", "404", "NotFound")


class S3Files:
    """The objects below one address."""

    def __init__(self, address: str) -> None:
        match = ADDRESS.fullmatch(address.rstrip("/"))
        assert match
        self._bucket, self._prefix = match["bucket"], match["prefix"] or ""

    @contextlib.contextmanager
    def open(self, name: str, start: int, validator: str) -> Iterator["S3Object"]:
        """An object's bytes from `start` on; from 0 where it is another one than `validator` says."""
        from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]

        wanted = {"Bucket": self._bucket, "Key": f"{self._prefix}/{name}".lstrip("/")}
        part = {"Range": f"bytes={start}-", **({"IfMatch": validator} if validator else {})} if start else {}
        try:
            try:
                found = self._client.get_object(**wanted, **part)
            except ClientError as error:
                if not part or error.response["Error"]["Code"] not in _OTHER_BYTES:
                    raise
                part = {}
                found = self._client.get_object(**wanted)
        except (ClientError, BotoCoreError) as error:
            raise _told(error) from None
        # What is called S3 elsewhere may know nothing of ranges.
        is_part = str(found.get("ContentRange", "")).startswith(f"bytes {start}-")
        with contextlib.closing(found["Body"]):
            yield S3Object(found, start if is_part else 0)

    @cached_property
    def _client(self) -> Any:
        import boto3  # type: ignore[import-untyped]
        from botocore.config import Config  # type: ignore[import-untyped]

        config = Config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=READ_SECONDS,
            retries={"total_max_attempts": 2},
            max_pool_connections=_AT_ONCE,
        )
        return boto3.Session().client("s3", config=config)


class S3Object:
    """An object in S3."""

    def __init__(self, found: Any, start: int) -> None:
        self._body = found["Body"]
        self.start = start
        self.total: int | None = start + int(found["ContentLength"])
        self.validator = str(found.get("ETag", ""))

    def chunks(self) -> Iterator[bytes]:
        from botocore.exceptions import BotoCoreError, HTTPClientError

        try:
            yield from self._body.iter_chunks(_CHUNK)
        except (BotoCoreError, HTTPClientError, OSError):
            reason = "closed the connection"
            raise SourceError(reason, is_worth_a_retry=True) from None


def _told(error: Exception) -> SourceError:
    """A failure in our words: botocore's may tell whole addresses."""
    from botocore import exceptions as known  # type: ignore[import-untyped]

    if isinstance(error, known.ClientError):
        code = str(error.response["Error"]["Code"])
        if code in _ABSENT:
            return SourceError("does not have the file")
        if code == "NoSuchBucket":
            return SourceError("the bucket does not exist", is_down=True)
        return SourceError(f"S3 answered with {code}", is_down=code in ("InvalidAccessKeyId", "ExpiredToken"))
    if isinstance(error, (known.NoCredentialsError, known.PartialCredentialsError)):
        return SourceError("needs AWS credentials", is_down=True)
    if isinstance(error, (known.ConnectTimeoutError, known.ReadTimeoutError)):
        return SourceError("S3 does not respond", is_down=True)
    if isinstance(error, known.EndpointConnectionError):
        return SourceError("S3 is unreachable", is_down=True)
    if isinstance(error, known.SSLError):
        return SourceError("S3's certificate is not trusted (AWS_CA_BUNDLE)", is_down=True)
    return SourceError(f"S3: {type(error).__name__}", is_down=True)
