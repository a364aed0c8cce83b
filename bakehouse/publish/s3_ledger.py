"""The ledger of a team: one object in S3 for each record, written only where there is none, never again.

An object's name is made of what its record tells, so writers need no lock and never wait for each other: a
record that is there already is refused by S3 itself. Their order is that of their days, then of S3's clock.
"""

import hashlib
import json
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import MISSING, asdict, fields, replace
from functools import cached_property
from itertools import count
from typing import Any

from bakehouse.errors import Diagnostic, PublishError, RecipeError
from bakehouse.publish.releases import ReleaseRecord, WrongRecordError, record_in
from bakehouse.util.aws import AwsError, AwsFault, translate_errors

_AT_ONCE = 16
_CONNECT_SECONDS, _READ_SECONDS = 10, 30
_ATTEMPTS = 5
_READ, _WRITE = "read", "write to"
_THERE = ("PreconditionFailed", "412")
_AGAIN = ("ConditionalRequestConflict", "409", "SlowDown", "InternalError", "ServiceUnavailable")

_DEFAULTS = {one.name: one.default for one in fields(ReleaseRecord) if one.default is not MISSING}


class S3Ledger:
    """The records below one address in S3."""

    def __init__(self, address: str, region: str | None) -> None:
        self.address = address.rstrip("/")
        self._bucket, _, self._prefix = self.address.removeprefix("s3://").partition("/")
        self._region = region

    def add(self, record: ReleaseRecord) -> bool:
        """Put a record there; False where one is there that differs in nothing but its day and its commit."""
        body = (json.dumps(asdict(record), indent=2, sort_keys=True) + "\n").encode()
        for attempt in count():
            try:
                self._ask("put_object", _WRITE, Key=self._key(record), Body=body, IfNoneMatch="*")
            except AwsError as error:
                if error.code in _THERE:
                    return False
                if error.code not in _AGAIN or attempt == _ATTEMPTS - 1:
                    raise self._publish_error(error) from error
                time.sleep(0.1 * 2**attempt)
            else:
                return True
        raise AssertionError

    def records(self, image: str, known: Collection[ReleaseRecord] = ()) -> tuple[ReleaseRecord, ...]:
        """An image's records, oldest first; those that are `known` are not fetched again."""
        there = {self._key(record): record for record in known}
        listed = self._listed(f"{image}/")
        missing = [key for key in listed if key not in there]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            there |= dict(zip(missing, pool.map(self._record, missing), strict=True))

        def when(key: str) -> tuple[str, ...]:
            return there[key].date, listed[key], key

        return tuple(there[key] for key in sorted(listed, key=when))

    def images(self) -> tuple[str, ...]:
        """The images that have records."""
        start = len(self._below(""))
        return tuple(sorted({key[start:].partition("/")[0] for key in self._listed("")}))

    def _below(self, name: str) -> str:
        return f"{self._prefix}/{name}" if self._prefix else name

    def _key(self, record: ReleaseRecord) -> str:
        values = asdict(replace(record, date="", revision="")).items()
        # What a later version adds is left out while it says nothing: names stay what they are.
        told = {name: value for name, value in values if name not in _DEFAULTS or value != _DEFAULTS[name]}
        text = json.dumps(told, sort_keys=True)
        return self._below(f"{record.image}/{hashlib.sha256(text.encode()).hexdigest()}.json")

    def _listed(self, below: str) -> dict[str, str]:
        """The objects' names, each with the time at which S3 took it."""
        listed: dict[str, str] = {}
        more: dict[str, str] = {}
        while True:
            page = self._read("list_objects_v2", Prefix=self._below(below), **more)
            for entry in page.get("Contents", ()):
                if entry["Key"].endswith(".json"):
                    listed[entry["Key"]] = entry["LastModified"].isoformat()
            if not page.get("IsTruncated"):
                return listed
            more = {"ContinuationToken": page["NextContinuationToken"]}

    def _record(self, key: str) -> ReleaseRecord:
        body = self._read("get_object", Key=key)
        try:
            record = record_in(json.loads(body))
        except (ValueError, RecursionError, WrongRecordError) as error:
            message = f"`s3://{self._bucket}/{key}` is no record of a release: {error}"
            hint = "a newer Bakehouse may have written it: update yours; nothing was changed"
            raise RecipeError(Diagnostic(message, hint=hint)) from error
        if self._key(record) != key:
            message = f"`s3://{self._bucket}/{key}` was changed: it tells of something else than its name"
            raise RecipeError(Diagnostic(message, hint="restore its first version, or remove it"))
        return record

    @cached_property
    def _client(self) -> Any:
        import boto3  # type: ignore[import-untyped]
        from botocore.config import Config  # type: ignore[import-untyped]

        config = Config(
            max_pool_connections=_AT_ONCE, connect_timeout=_CONNECT_SECONDS, read_timeout=_READ_SECONDS
        )
        return boto3.Session(region_name=self._region).client("s3", config=config)

    def _read(self, operation: str, **arguments: Any) -> Any:
        try:
            return self._ask(operation, _READ, **arguments)
        except AwsError as error:
            raise self._publish_error(error) from error

    def _ask(self, operation: str, verb: str, **arguments: Any) -> Any:
        with translate_errors(f"{verb} the ledger `{self.address}`"):
            answer = getattr(self._client, operation)(Bucket=self._bucket, **arguments)
            # The connection may break while the body is read.
            return answer["Body"].read() if "Body" in answer else answer

    def _publish_error(self, error: AwsError) -> PublishError:
        diagnostic = error.diagnostic
        if error.code == "NoSuchBucket":
            hint = "create the bucket, or correct `ledger` in [tool.bakehouse]"
            diagnostic = Diagnostic(f"there is no bucket `{self._bucket}`", hint=hint)
        if error.fault is AwsFault.DENIED:
            hint = "allow s3:ListBucket, s3:GetObject and s3:PutObject there"
            diagnostic = replace(diagnostic, hint=hint)
        return error.as_publish_error(diagnostic)
