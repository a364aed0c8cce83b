"""Python code that starts a training job with a release.

SDK v2: the generic Estimator ignores `distribution`, so the job would run one process on each host. The
classes of the frameworks pass it on, and with `image_uri` they add no settings of the framework. But they
require a script. For images that contain a script, the generic class gets the hyperparameters of the
distribution instead. SDK v3 has its own drivers, and a boto3 request contains all settings.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.recipe import Recipe
from bakehouse.jobs import code_archive
from bakehouse.jobs.api_fields import CHANNELS, member_name
from bakehouse.jobs.cluster_forms import cluster_job
from bakehouse.jobs.create_training_job import (
    api_request,
    has_preferences,
    input_channels,
    script_path,
    sent_by_trainer,
    toolkit_parameters,
)
from bakehouse.jobs.job_spec import COMPILER, S3, SDKS, CheckedJob, JobSpec, valid_job
from bakehouse.jobs.model_trainer import REQUIREMENTS
from bakehouse.jobs.rules import RuleViolation
from bakehouse.jobs.sdk_channels import SdkObject, channel_inputs, channel_objects
from bakehouse.jobs.sdk_fields import estimator_argument, trainer_argument
from bakehouse.jobs.tested_job import PLACEHOLDER, with_tested_settings
from bakehouse.jobs.training_request import LaunchImage, TrainingRequest, launch_image
from bakehouse.ledger.releases import ReleaseRecord
from bakehouse.util.format import format_names
from bakehouse.util.oci import is_loopback, region_of

_INSTALL = {
    "v2": "pip install 'sagemaker<3'",
    "v3": "pip install 'sagemaker>=3'",
    "boto3": "pip install boto3",
}
_CONFIGS = {
    "compute": "Compute",
    "stopping_condition": "StoppingCondition",
    "networking": "Networking",
    "output_data_config": "OutputDataConfig",
    "checkpoint_config": "CheckpointConfig",
    "training_image_config": "TrainingImageConfig",
}
"""Classes of the structures among the arguments of ModelTrainer."""
_NO_ROLE = {
    "v2": "Outside SageMaker, get_execution_role() fails: set role to the ARN of an execution role.",
    "v3": "Outside SageMaker, set role to the ARN of an execution role: the default is the caller's role.",
}
_GENERIC = (
    "Estimator and not PyTorch or TensorFlow: these upload a script, and the image contains its own. "
    "Estimator ignores `distribution`, so hyperparameters start the launcher."
)


class Code(str):
    """A Python expression."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Snippet:
    """Code that starts a job, and warnings about the job."""

    code: str
    sdk: str
    """One of `SDKS`, or of `cluster_forms.FORMS`."""
    warnings: tuple[RuleViolation, ...] = ()


def snippet(
    record: ReleaseRecord,
    job: JobSpec | None = None,
    catalog: Catalog | None = None,
    recipe: Recipe | None = None,
    form: str = "",
) -> Snippet:
    """Return code that starts a training job with a release, by default the job of its smoke test.

    `form` is one of `cluster_forms.FORMS`; empty means SageMaker. Raises UsageError with all errors in the
    job.
    """
    transport = f" ({record.transport})" if record.transport != "none" else ""
    tested = f"smoke-tested{transport}" if record.tested else "NOT smoke-tested"
    image = launch_image(record, catalog, recipe)
    state = f"published {record.date}, {tested}"
    return _snippet(image, job or JobSpec(), catalog, record.registry, state, form)


def preview(image: LaunchImage, job: JobSpec, catalog: Catalog, repository: str, form: str = "") -> Snippet:
    """Return code that will start a training job with an image that is not released.

    `repository` is a placeholder for its repository. Raises UsageError with all errors in the job.
    """
    marked = replace(image, uri=f"{repository}:NOT-RELEASED")
    state = "NOT RELEASED: its URI is a placeholder"
    return _snippet(marked, job, catalog, repository.partition("/")[0], state, form)


def _snippet(
    image: LaunchImage, job: JobSpec, catalog: Catalog | None, registry: str, state: str, form: str
) -> Snippet:
    job = with_tested_settings(image, job)
    if form:
        if is_loopback(registry):
            state += f"; {registry} is a registry on this machine"
        text, warnings = cluster_job(form, image, job, catalog, state)
        return Snippet(text, form, warnings)
    # Without a source directory, the directory that the code will run in is unknown.
    checked = valid_job(image, job, catalog, code_root=Path() if job.source_dir else None)
    request = checked.request
    lines = _comments(registry, state, image, checked, job)
    # Job names cannot contain dots. The SDK would derive them from the image URI, which contains `@`.
    base_name = re.sub("[._]", "-", image.name)
    if checked.sdk == "boto3":
        lines += _boto3_code(request, image, job, base_name, registry)
    elif checked.sdk == "v3":
        lines += _trainer_code(request, image, job, base_name)
    else:
        lines += _estimator_code(request, image, job, base_name)
    ignored = code_archive.IGNORED_BY_V3 if checked.sdk == "v3" else ()
    warnings = (*checked.warnings, *code_archive.sdk_findings(job.source_dir, ignored))
    return Snippet("\n".join(lines) + "\n", checked.sdk, warnings)


def _comments(registry: str, state: str, image: LaunchImage, checked: CheckedJob, job: JobSpec) -> list[str]:
    sdk, request = checked.sdk, checked.request
    comments = [f"{image.name}, {state}; for {SDKS[sdk]}", _INSTALL[sdk]]
    if checked.reason:
        comments.append(f"Not for version 3: {checked.reason}.")
    if job.origin:
        comments.append(f"Missing settings come from {job.origin}.")
    unset = [name for name, uri in job.inputs.items() if uri.startswith(PLACEHOLDER)]
    if unset:
        uris = "the S3 URI of the channel" if len(unset) == 1 else "the S3 URIs of the channels"
        comments.append(f"Set {uris} {format_names(unset, ' and ')}.")
    if is_loopback(registry):
        comments.append(f"{registry} is a registry on this machine: SageMaker pulls from Amazon ECR.")
    if not job.role:
        comments.append(_NO_ROLE[sdk])
    name = request.sender
    if name == "ModelTrainer" and not job.source_dir:
        message = f'The SDK uploads the whole directory "{request.source_dir}".'
        comments.append(f"{message} Set source_dir to a directory with code only.")
    if name == "ModelTrainer" and job.source_dir.startswith(S3):
        argument = f'requirements="{REQUIREMENTS}"'
        comments.append(f"If the archive contains {REQUIREMENTS}, add {argument} to SourceCode.")
    if sdk == "v2" and image.entry_point:
        comments.append(_GENERIC)
    elif sdk == "v2" and name.lower() not in image.versions:
        comments.append(f"The class {name} passes `distribution` on; the image needs no {name}.")
    if sdk == "v2" and COMPILER in request.hyperparameters and not image.entry_point:
        reason = "the SDK has no `compiler_config` for this image"
        comments.append(f"Hyperparameters enable the compiler: {reason}.")
    if request.compiler or request.hyperparameters.get(COMPILER) is True:
        comments.append(_compiler_advice(request))
    if image.smp and job.distribution is None and not job.launcher:
        comments.append("The degrees of parallelism are examples: set those of your model.")
    # Line breaks in a ledger's values must not end the comment.
    return [f"# {' '.join(comment.split())}" for comment in comments]


def _compiler_advice(request: TrainingRequest) -> str:
    """Return advice for the compiler, from the examples of AWS's training-compiler-enable-pytorch.html."""
    is_one_gpu = [(group.gpus, group.count) for group in request.groups] == [(1, 1)]
    factor = "" if is_one_gpu else " * num_gpus * instance_count"
    rate = f"learning_rate_native / batch_size_native * batch_size{factor}"
    return f"The compiler saves memory: use the largest batch_size that fits, and learning_rate = {rate}."


def _estimator_code(request: TrainingRequest, image: LaunchImage, job: JobSpec, base_name: str) -> list[str]:
    """Return an estimator of SDK v2."""
    role = job.role
    name = "Estimator" if image.entry_point else request.sender
    arguments: dict[str, object] = {"image_uri": image.uri}
    if not image.entry_point:
        arguments["entry_point"] = request.entry_point
        if request.source_dir:
            arguments["source_dir"] = request.source_dir
    arguments["role"] = role or Code("sagemaker.get_execution_role()")
    imports = [] if role else ["import sagemaker"]
    before: list[str] = []
    distribution = dict(request.distribution)
    if request.groups[0].name:
        imports.append("from sagemaker.instance_group import InstanceGroup")
        groups = {
            group.name: _call("InstanceGroup", group.name, group.instance_type, group.count)
            for group in request.groups
        }
        before = _block("groups", groups)
        arguments["instance_groups"] = Code("list(groups.values())")
        names = distribution.get("instance_groups")
        if isinstance(names, list):
            distribution["instance_groups"] = [Code(f"groups[{_literal(name)}]") for name in names]
    else:
        arguments["instance_type"] = request.groups[0].instance_type
        arguments["instance_count"] = request.groups[0].count
    if image.entry_point:
        # The generic class sends strings unchanged, but the toolkit expects JSON.
        arguments |= _unless_empty(
            "hyperparameters", {key: json.dumps(value) for key, value in request.hyperparameters.items()}
        )
    else:
        arguments |= _unless_empty("distribution", distribution) | _unless_empty(
            "hyperparameters", request.hyperparameters
        )
    arguments |= _unless_empty("environment", request.environment)
    if request.compiler:
        arguments["compiler_config"] = Code("TrainingCompilerConfig()")
    if request.keep_alive is not None:
        arguments["keep_alive_period_in_seconds"] = request.keep_alive
    if name == "TensorFlow":
        # Without the version, the SDK rejects its own strategy. Without model_dir=False, the script gets an
        # argument that it may not support.
        # An image of unknown content has no known version, and the SDK needs none with an image
        arguments |= {"framework_version": request.framework_version} if request.framework_version else {}
        arguments["model_dir"] = False
    if job.max_run is not None:
        arguments["max_run"] = job.max_run
    arguments |= {
        estimator_argument(field.path): field.value for field in job.sdk_fields if field.path != CHANNELS
    }
    arguments["base_job_name"] = base_name
    inputs: dict[str, object] = dict(job.inputs)
    for channel, names_of_groups in request.channels.items():
        if names_of_groups and channel in inputs:
            inputs[channel] = _call("TrainingInput", inputs[channel], instance_groups=list(names_of_groups))
            imports.append("from sagemaker.inputs import TrainingInput")
    if any(field.path == CHANNELS for field in job.sdk_fields):
        given = channel_inputs(input_channels(request, job)) or {}
        inputs = {channel: _object(value) for channel, value in given.items()}
        imports += [f"from sagemaker.inputs import {value.name}" for value in given.values()]
    config = ", TrainingCompilerConfig" if request.compiler else ""
    imports.append(f"from sagemaker.{name.lower()} import {name}{config}")
    lines = [f"    {key}={_literal(value)}," for key, value in arguments.items()]
    fit = f"estimator.fit({_literal(inputs) if inputs else ''})"
    return [*dict.fromkeys(imports), "", *before, f"estimator = {name}(", *lines, ")", fit]


def _trainer_code(request: TrainingRequest, image: LaunchImage, job: JobSpec, base_name: str) -> list[str]:
    """Return a ModelTrainer of SDK v3. The toolkit starts code in the image and expects JSON."""
    configs = ["Compute"]
    compute: dict[str, object] = {}
    if request.groups[0].name:
        configs.append("InstanceGroup")
        compute["instance_groups"] = [
            _call(
                "InstanceGroup",
                instance_group_name=group.name,
                instance_type=group.instance_type,
                instance_count=group.count,
            )
            for group in request.groups
        ]
    elif not has_preferences(job):
        compute = {
            "instance_type": request.groups[0].instance_type,
            "instance_count": request.groups[0].count,
        }
    if request.keep_alive is not None:
        compute["keep_alive_period_in_seconds"] = request.keep_alive
    arguments: dict[str, object] = {"training_image": image.uri} | _unless_empty("role", job.role)
    imports = ["from sagemaker.train import ModelTrainer"]
    parameters = sent_by_trainer(request, bool(image.entry_point))
    if not image.entry_point:
        configs.append("SourceCode")
        arguments["source_code"] = _call(
            "SourceCode",
            source_dir=request.source_dir,
            entry_script=request.entry_point,
            **_unless_empty("requirements", request.requirements),
        )
        for driver, settings in request.distribution.items():
            assert isinstance(settings, Mapping)
            kinds, values = [driver], dict(settings)
            if isinstance(values.get("smp"), Mapping):
                kinds, values["smp"] = ["SMP", driver], _call("SMP", **values["smp"])
            imports.append(f"from sagemaker.train.distributed import {', '.join(kinds)}")
            arguments["distributed"] = _call(driver, **values)
    # The default of the time limit is one hour.
    own: dict[str, dict[str, object]] = {
        "compute": compute,
        "stopping_condition": {"max_runtime_in_seconds": job.time_limit},
    }
    values, shapes = {}, []
    for field in job.sdk_fields:
        if field.path == CHANNELS:
            continue
        structure, _, name = trainer_argument(field.path).partition(".")
        if name == "instance_preferences" and isinstance(field.value, list):
            shapes.append("InstancePreference")
            preferences = [_call("InstancePreference", **_snake_case(item)) for item in field.value]
            own.setdefault(structure, {})[name] = preferences
        elif name:
            own.setdefault(structure, {})[name] = field.value
        else:
            values[structure] = _snake_case(field.value)
    arguments |= {name: _call(_CONFIGS[name], **settings) for name, settings in own.items()}
    configs += [_CONFIGS[name] for name in own if _CONFIGS[name] not in configs]
    if "tags" in values and isinstance(values["tags"], list):
        configs.append("Tag")
        values["tags"] = [_call("Tag", **tag) for tag in values["tags"]]
    arguments |= values
    arguments |= _unless_empty("hyperparameters", parameters) | _unless_empty(
        "environment", request.environment
    )
    arguments["base_job_name"] = base_name
    channels = []
    for channel, uri in job.inputs.items():
        source: object = uri
        if groups := request.channels.get(channel):
            configs.append("S3DataSource")
            source = _call(
                "S3DataSource", s3_data_type="S3Prefix", s3_uri=uri, instance_group_names=list(groups)
            )
        configs.append("InputData")
        channels.append(_call("InputData", channel_name=channel, data_source=source))
    if any(field.path == CHANNELS for field in job.sdk_fields):
        given = channel_objects(input_channels(request, job)) or []
        configs += [name for channel in given for name in channel.names]
        channels = [_object(channel) for channel in given]
    if shapes:
        imports.insert(0, "from sagemaker.core.shapes import InstancePreference")
    imports.insert(0, f"from sagemaker.core.training.configs import {', '.join(dict.fromkeys(configs))}")
    lines = [f"    {key}={_literal(value)}," for key, value in arguments.items()]
    train = f"trainer.train({f'input_data_config={_literal(channels)}' if channels else ''})"
    return [*imports, "", "trainer = ModelTrainer(", *lines, ")", train]


def _snake_case(value: object) -> Any:
    """Return a value of the API with the names of SDK v3."""
    if isinstance(value, Mapping):
        return {member_name(name, snake_case=True): _snake_case(item) for name, item in value.items()}
    return [_snake_case(item) for item in value] if isinstance(value, list) else value


def _unless_empty(name: str, value: Mapping[str, object] | str) -> dict[str, object]:
    """Return an argument, or none if its value is empty."""
    return {name: value} if value else {}


def _boto3_code(
    request: TrainingRequest, image: LaunchImage, job: JobSpec, name: str, registry: str
) -> list[str]:
    """Return a `create_training_job` request, after an upload of the training script if there is one."""
    registry_region = region_of(registry)
    region = _literal(registry_region or Code("boto3.Session().region_name"))
    sends = bool(request.entry_point)
    uploads = sends and not request.source_dir.startswith("s3://")
    hyperparameters: dict[str, object] = dict(request.hyperparameters)
    start = [
        f"region = {region}",
        'account = boto3.client("sts", region).get_caller_identity()["Account"]',
        "# The SageMaker SDK creates and uses this bucket. Any other bucket in the region works too.",
        'bucket = f"sagemaker-{region}-{account}"',
        f'name = {_literal(name)} + time.strftime("-%Y%m%d-%H%M%S")',
        's3 = boto3.client("s3", region)',
        "try:",
        "    # Another account may have created a bucket of that name.",
        "    s3.head_bucket(Bucket=bucket, ExpectedBucketOwner=account)",
        "except s3.exceptions.ClientError as error:",
        '    if error.response["Error"]["Code"] != "404":',
        "        raise",
        f"    s3.create_bucket(Bucket=bucket{_location(registry_region)})",
    ]
    if sends:
        archive = Code('f"s3://{bucket}/{key}"') if uploads else request.source_dir
        hyperparameters |= toolkit_parameters(
            request, archive=archive, name=Code("name"), region=Code("region")
        )
    arguments = api_request(
        request,
        image,
        job,
        name=Code("name"),
        hyperparameters=Code("{key: json.dumps(value) for key, value in hyperparameters.items()}"),
        output=job.output or Code('f"s3://{bucket}/"'),
    )
    imports = ["import io", "import json", "import tarfile", "import time"]
    return [
        *(imports if uploads else ["import json", "import time"]),
        "",
        "import boto3",
        "",
        *start,
        *(_upload(request) if uploads else ()),
        *_block("hyperparameters", hyperparameters),
        *_block("request", arguments),
        'boto3.client("sagemaker", region).create_training_job(**request)',
    ]


def _upload(request: TrainingRequest) -> list[str]:
    path, name = request.source_dir, "."
    if not path:
        path, name = request.entry_point, script_path(request)
    return [
        'key = f"{name}/source/sourcedir.tar.gz"',
        "packed = io.BytesIO()",
        'with tarfile.open(fileobj=packed, mode="w:gz", dereference=True) as archive:',
        f"    archive.add({_literal(path)}, arcname={_literal(name)})",
        "s3.put_object(Bucket=bucket, Key=key, Body=packed.getvalue(), ExpectedBucketOwner=account)",
    ]


def _location(region: str) -> str:
    """Return the argument for the region of a bucket. S3 does not allow it for us-east-1."""
    if region == "us-east-1":
        return ""
    argument = 'CreateBucketConfiguration={"LocationConstraint": region}'
    return f", {argument}" if region else f', **({{}} if region == "us-east-1" else dict({argument}))'


def _block(name: str, values: Mapping[str, object]) -> list[str]:
    return [
        f"{name} = {{",
        *(f"    {_literal(key)}: {_literal(value)}," for key, value in values.items()),
        "}",
    ]


def _literal(value: object) -> str:
    """Return a value as Python code."""
    if isinstance(value, Code):
        return str(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_literal(key)}: {_literal(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_literal(item) for item in value) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return json.dumps(value) if isinstance(value, str) else repr(value)


def _object(value: SdkObject) -> Code:
    """Return the call that makes an object of an SDK."""
    arguments = {
        key: _object(item) if isinstance(item, SdkObject) else item for key, item in value.arguments.items()
    }
    return _call(value.name, **arguments)


def _call(name: str, *positional: object, **named: object) -> Code:
    """Return a call with its arguments."""
    arguments = [*map(_literal, positional), *(f"{key}={_literal(value)}" for key, value in named.items())]
    return Code(f"{name}({', '.join(arguments)})")
