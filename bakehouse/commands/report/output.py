"""Destinations of the page: a directory or S3."""

import errno
import os
from pathlib import Path

from bakehouse.errors import UsageError
from bakehouse.util.aws import Aws
from bakehouse.util.files import display_path, write_whole

_FILE = "index.html"
_TYPE = "text/html; charset=utf-8"
_S3 = "s3://"
_UNUSABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR)


def write(page: bytes, to: str, region: str | None) -> str:
    """Write the page to a directory or an S3 URL, and return its path or URL."""
    if not to.startswith(_S3):
        path = Path(to) / _FILE
        try:
            write_whole(path, page)
        except OSError as error:
            if error.errno not in _UNUSABLE:
                raise
            raise UsageError(
                f"cannot write `{display_path(path)}`: {os.strerror(error.errno).lower()}",
                hint="name a directory that you may write to: `bake report --to DIRECTORY`",
            ) from error
        return display_path(path)
    bucket, _, prefix = to.removeprefix(_S3).partition("/")
    if not bucket:
        raise UsageError(f"`{to}` does not name a bucket", hint="write it as `s3://our-bucket/report`")
    key = f"{prefix.rstrip('/')}/{_FILE}".lstrip("/")
    aws = Aws(region)
    with aws.translate_errors(f"write `{_S3}{bucket}/{key}`"):
        aws.client("s3").put_object(Bucket=bucket, Key=key, Body=page, ContentType=_TYPE)
    return f"{_S3}{bucket}/{key}"
