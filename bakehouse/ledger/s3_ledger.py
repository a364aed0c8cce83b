"""The ledger of a team in S3: one object for each record, created once and never changed.

The object name contains a hash of the record's facts, by which writers find that it is there, and a hash of
the whole record: a record with another date, which would be newer or older, has another name. Candidates have
a directory of their own, so that a role can record them and no releases.
"""

import hashlib
import json
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from typing import Any

from bakehouse.errors import Diagnostic, PublishError, RecipeError
from bakehouse.ledger.releases import LedgerEntry, ReleaseRecord
from bakehouse.util.aws import AwsError, AwsFault, object_content, translate_errors
from bakehouse.util.json_reader import parse_json

_MAX_THREADS = 16
_CONNECT_SECONDS, _READ_SECONDS = 10, 30
_ATTEMPTS = 5
_EXISTS = ("PreconditionFailed", "412")
_MISSING = ("NoSuchKey", "404")
_CHANGING = ("ConditionalRequestConflict", "409")
_RETRIED = (*_CHANGING, "SlowDown", "InternalError", "ServiceUnavailable")


class S3Ledger:
    """Records below one `s3://` URL, shared by a team."""

    def __init__(self, url: str, region: str | None) -> None:
        self.url = url.rstrip("/")
        self._bucket, _, self._prefix = self.url.removeprefix("s3://").partition("/")
        self._region = region

    def add(self, record: ReleaseRecord) -> None:
        """Add a record, unless an existing one differs only in its date and commit."""
        entry = LedgerEntry.of(record)
        if self._list(self._name(entry)):
            return
        key, body = self._key(entry), (json.dumps(entry.fields, indent=2, sort_keys=True) + "\n").encode()
        for attempt in range(_ATTEMPTS):
            try:
                self._request("put_object", "write to", Key=key, Body=body, IfNoneMatch="*")
                return
            except AwsError as error:
                if error.code in _EXISTS:
                    return
                if error.code not in _RETRIED or attempt == _ATTEMPTS - 1:
                    raise self._publish_error(error) from error
                time.sleep(0.1 * 2**attempt)

    def records(self, image: str) -> tuple[ReleaseRecord, ...]:
        """Return an image's records, oldest first."""
        return tuple(entry.record for entry in self.entries(image))

    def entries(self, image: str, cached: Iterable[LedgerEntry] = ()) -> tuple[LedgerEntry, ...]:
        """Return an image's records with their JSON objects, without downloading `cached` ones.

        Of records that differ only in their dates and commits, the first one counts.
        """
        entries = {self._key(entry): entry for entry in cached}
        modified = self._list(f"{image}/")
        missing = [key for key in modified if key not in entries]
        with ThreadPoolExecutor(_MAX_THREADS) as pool:
            entries |= dict(zip(missing, pool.map(self._entry, missing), strict=True))

        def order(key: str) -> tuple[str, ...]:
            record = entries[key].record
            # Records of older versions have no time, and their names do not contain the date
            return record.date, record.time, "" if record.time else modified[key], key

        first: dict[str, LedgerEntry] = {}
        for key in sorted(modified, key=order):
            first.setdefault(entries[key].identity, entries[key])
        return tuple(first.values())

    def images(self) -> tuple[str, ...]:
        """Return the images that have records."""
        start = len(self._prefixed(""))
        return tuple(sorted({key[start:].partition("/")[0] for key in self._list("")}))

    def _prefixed(self, name: str) -> str:
        return f"{self._prefix}/{name}" if self._prefix else name

    def _name(self, entry: LedgerEntry) -> str:
        directory = "candidates/" if entry.record.candidate else ""
        return f"{entry.record.image}/{directory}{_sha256(entry.identity)}"

    def _key(self, entry: LedgerEntry) -> str:
        content = json.dumps(entry.fields, sort_keys=True)
        return self._prefixed(f"{self._name(entry)}-{_sha256(content)}.json")

    def _list(self, prefix: str) -> dict[str, str]:
        """Return the keys of the records below a prefix, with their creation times."""
        modified: dict[str, str] = {}
        continuation: dict[str, str] = {}
        while True:
            page = self._read("list_objects_v2", Prefix=self._prefixed(prefix), **continuation)
            for entry in page.get("Contents", ()):
                if entry["Key"].endswith(".json"):
                    modified[entry["Key"]] = entry["LastModified"].isoformat()
            if not page.get("IsTruncated"):
                return modified
            continuation = {"ContinuationToken": page["NextContinuationToken"]}

    def _entry(self, key: str) -> LedgerEntry:
        body = self._read("get_object", Key=key)
        try:
            entry = LedgerEntry.parse(parse_json(body))
        except ValueError as error:
            raise RecipeError(
                f"`s3://{self._bucket}/{key}` is not a release record: {error}",
                hint="a newer Bakehouse may have written it; update yours. Nothing was changed",
            ) from error
        older = self._prefixed(f"{entry.record.image}/{_sha256(entry.identity)}.json")
        if key not in (self._key(entry), older):
            raise RecipeError(
                f"`s3://{self._bucket}/{key}` was changed: its content does not match its name",
                hint="restore its first version, or remove it",
            )
        return entry

    @cached_property
    def _client(self) -> Any:
        import boto3  # type: ignore[import-untyped]
        from botocore.config import Config  # type: ignore[import-untyped]

        config = Config(
            max_pool_connections=_MAX_THREADS, connect_timeout=_CONNECT_SECONDS, read_timeout=_READ_SECONDS
        )
        return boto3.Session(region_name=self._region).client("s3", config=config)

    def _read(self, operation: str, **arguments: Any) -> Any:
        try:
            return self._request(operation, "read", **arguments)
        except AwsError as error:
            raise self._publish_error(error) from error

    def _request(self, operation: str, verb: str, **arguments: Any) -> Any:
        with translate_errors(f"{verb} the ledger `{self.url}`"):
            response = getattr(self._client, operation)(Bucket=self._bucket, **arguments)
            # The connection may break while the body is read.
            return object_content(response) if "Body" in response else response

    def _publish_error(self, error: AwsError) -> PublishError:
        diagnostic = error.diagnostic
        if error.code == "NoSuchBucket":
            hint = "create the bucket, or correct `ledger` in [tool.bakehouse]"
            diagnostic = Diagnostic(f"there is no bucket `{self._bucket}`", hint=hint)
        if error.fault is AwsFault.DENIED:
            hint = "allow s3:ListBucket, s3:GetObject and s3:PutObject for the bucket"
            diagnostic = replace(diagnostic, hint=hint)
        return error.as_publish_error(diagnostic)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
