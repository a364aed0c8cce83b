"""Prints a `create_training_job` request of boto3, and what sends the code before it."""

from collections.abc import Mapping

from bakehouse.sagemaker.create_training_job import api_request, script_of, toolkit_parameters
from bakehouse.sagemaker.literals import Code, literal
from bakehouse.sagemaker.training_request import LaunchImage, TrainingRequest
from bakehouse.util.oci import region_of


def request_code(
    request: TrainingRequest, image: LaunchImage, role: str, name: str, registry: str
) -> list[str]:
    """Code that sends the training script to S3, where there is one, and asks for the job."""
    known = region_of(registry)
    region = literal(known or Code("boto3.Session().region_name"))
    sends = bool(request.entry_point)
    uploads = sends and not request.source_dir.startswith("s3://")
    told: dict[str, object] = dict(request.hyperparameters)
    start = [
        f"region = {region}",
        'account = boto3.client("sts", region).get_caller_identity()["Account"]',
        "# The bucket that SageMaker's SDK makes and uses: any other in the region does as well.",
        'bucket = f"sagemaker-{region}-{account}"',
        f'name = {literal(name)} + time.strftime("-%Y%m%d-%H%M%S")',
        's3 = boto3.client("s3", region)',
        "try:",
        "    # Anybody could have made a bucket of that name before.",
        "    s3.head_bucket(Bucket=bucket, ExpectedBucketOwner=account)",
        "except s3.exceptions.ClientError as error:",
        '    if error.response["Error"]["Code"] != "404":',
        "        raise",
        f"    s3.create_bucket(Bucket=bucket{_place(known)})",
    ]
    if sends:
        archive = Code('f"s3://{bucket}/{key}"') if uploads else request.source_dir
        told |= toolkit_parameters(request, archive=archive, name=Code("name"), region=Code("region"))
    asked = api_request(
        request,
        image,
        role,
        name=Code("name"),
        hyperparameters=Code("{key: json.dumps(value) for key, value in hyperparameters.items()}"),
        output=Code('f"s3://{bucket}/"'),
    )
    imports = ["import io", "import json", "import tarfile", "import time"]
    return [
        *(imports if uploads else ["import json", "import time"]),
        "",
        "import boto3",
        "",
        *start,
        *(_upload(request) if uploads else ()),
        *_block("hyperparameters", told),
        *_block("request", asked),
        'boto3.client("sagemaker", region).create_training_job(**request)',
    ]


def _upload(request: TrainingRequest) -> list[str]:
    packed, inside = request.source_dir, "."
    if not packed:
        packed, inside = request.entry_point, script_of(request)
    return [
        'key = f"{name}/source/sourcedir.tar.gz"',
        "packed = io.BytesIO()",
        'with tarfile.open(fileobj=packed, mode="w:gz", dereference=True) as archive:',
        f"    archive.add({literal(packed)}, arcname={literal(inside)})",
        "s3.put_object(Bucket=bucket, Key=key, Body=packed.getvalue(), ExpectedBucketOwner=account)",
    ]


def _place(region: str) -> str:
    """What names the region of a bucket; us-east-1 is the one that S3 does not let be named."""
    if region == "us-east-1":
        return ""
    place = 'CreateBucketConfiguration={"LocationConstraint": region}'
    return f", {place}" if region else f', **({{}} if region == "us-east-1" else dict({place}))'


def _block(name: str, values: Mapping[str, object]) -> list[str]:
    return [f"{name} = {{", *(f"    {literal(key)}: {literal(value)}," for key, value in values.items()), "}"]
