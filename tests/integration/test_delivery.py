"""Code of several jobs at once, from a server that plays S3."""

import io
import tarfile
from pathlib import Path

import boto3  # type: ignore[import-untyped]

from bakehouse.sagemaker import code_upload


def fetched(delivered: code_upload.ServedCode) -> str:
    """Download the training script from the address that a job gets."""
    environment = delivered.environment
    client = boto3.client(
        "s3",
        endpoint_url=environment["S3_ENDPOINT_URL"],
        region_name=environment["AWS_REGION"],
        aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
    )
    bucket, _, key = delivered.uri.removeprefix("s3://").partition("/")
    data = client.get_object(Bucket=bucket, Key=key)["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(data)) as code:
        script = code.extractfile("train.py")
        assert script
        return script.read().decode()


def test_jobs_that_run_at_once_get_their_own_code(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.py").write_text(name)

    with (
        code_upload.serve_from_s3(tmp_path / "one", "127.0.0.1") as first,
        code_upload.serve_from_s3(tmp_path / "two", "127.0.0.1") as two,
    ):
        assert (fetched(first), fetched(two)) == ("one", "two")
