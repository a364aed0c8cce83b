"""Tasks for jobs on SageMaker: code that starts them, launching, logs, choice of instances."""

import functools
import inspect
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from invoke.context import Context
from invoke.exceptions import Exit

from bakehouse.cli import diagnostics
from bakehouse.cli.tasks.declare import JSON, bake_task, job_callbacks, open_project, report, show
from bakehouse.errors import UsageError
from bakehouse.util.format import format_count

if TYPE_CHECKING:
    from bakehouse.jobs.job_spec import JobSpec
    from bakehouse.sagemaker.launch_report import LaunchReport

_JOB_HELP = {
    "image": "one image, or `pytorch` or `tensorflow` for the best that fits the instance type",
    "instance-type": "such as ml.p4d.24xlarge",
    "instance-count": "number of hosts",
    "group": "instance group `name=type:count`, instead of one type and count; repeatable",
    "launcher": "torchrun, mpirun or tensorflow",
    "distribution": "`distribution` of the estimator or ModelTrainer: a launcher, JSON or a JSON file",
    "entry-point": "the script to upload",
    "source-dir": "directory to upload that contains the script, or an archive in S3",
    "processes-per-host": "ranks on each host, for `mpirun`, or for `torchrun` of SDK v3",
    "hyperparameter": "`name=value`; repeatable",
    "environment": "`NAME=value`; repeatable",
    "keep-alive": "seconds to keep the instances for the next job",
}
_INPUT = "channel `name=s3://bucket/data`; repeatable"
_INPUT_GROUP = "instance groups of a channel, `name=group,group`; default: all; repeatable"
_JOB_LISTS = ["group", "hyperparameter", "environment"]
_FOLLOW_HELP = {
    "stop-on-interrupt": "Ctrl-C also stops the job",
}


def _job_of(
    group: list[str],
    hyperparameter: list[str],
    environment: list[str],
    instance_type: str = "",
    instance_count: int = 0,
    launcher: str = "",
    distribution: str = "",
    entry_point: str = "train.py",
    source_dir: str = "",
    processes_per_host: int = 0,
    keep_alive: int = 0,
) -> "JobSpec":
    """Return the job that the common options describe."""
    from bakehouse.cli import job_options
    from bakehouse.jobs.job_spec import JobSpec

    return JobSpec(
        groups=job_options.named_groups(group),
        hyperparameters=job_options.hyperparameters(hyperparameter),
        environment=job_options.pairs(environment, "--environment"),
        distribution=job_options.distribution(distribution),
        entry_point=entry_point,
        source_dir=source_dir,
        instance_type=instance_type,
        instance_count=instance_count,
        launcher=launcher,
        processes_per_host=processes_per_host,
        keep_alive=keep_alive,
    )


def _with_job(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options of `_job_of` to a task, which receives their job as its argument `job`."""
    common = inspect.signature(_job_of).parameters

    @functools.wraps(function)
    def run(context: Context, **values: Any) -> None:
        job = _job_of(**{name: values.pop(name) for name in common})
        function(context, job=job, **values)

    own = inspect.signature(function).parameters
    parameters = [parameter for name, parameter in own.items() if name != "job"] + [*common.values()]
    parameters.sort(key=lambda parameter: parameter.default is not parameter.empty)
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def _add_channels(job: "JobSpec", input: list[str], input_group: list[str]) -> "JobSpec":
    """Return the job with the channels of `--input` and `--input-group`."""
    from bakehouse.cli import job_options

    inputs = job_options.pairs(input, "--input")
    return replace(job, inputs=inputs, channels=job_options.channel_groups(inputs, input_group))


def _finish(result: "LaunchReport") -> None:
    """Report how a job on SageMaker ended, and exit with its code."""
    from bakehouse.sagemaker import launch_report

    show(launch_report.text(result))
    if result.exit_code:
        raise Exit(code=result.exit_code)


@bake_task(
    "image",
    iterable=_JOB_LISTS,
    help={
        **_JOB_HELP,
        "sdk": "v3, v2 or boto3: the library of the code; default: v3, or v2 for jobs that v3 cannot start",
        "role": "ARN of the execution role, where the code does not run within SageMaker",
        "region": "only a release in this AWS region, with its URI there",
    },
)
@_with_job
def estimator(
    context: Context, image: str, job: "JobSpec", sdk: str = "", role: str = "", region: str = ""
) -> None:
    """
    Validate a job's settings and print Python code that starts it.

    bake estimator pytorch-cpu
    bake estimator pytorch-cu130 --instance-type ml.p4d.24xlarge --instance-count 4 --sdk v2
    bake estimator mpi-cpu --group data=ml.c5.18xlarge:2 --group train=ml.c5.2xlarge:1 \\
        --distribution '{"mpi": {"enabled": true}, "instance_groups": ["train"]}'
    """
    from bakehouse.catalog.instance_gpus import find_gpus
    from bakehouse.jobs import snippets
    from bakehouse.ledger import image_uris
    from bakehouse.trust import policy

    workspace = open_project()
    is_framework = bool(job.instance_type) and image in image_uris.FRAMEWORKS
    instance = find_gpus(job.instance_type) if is_framework else None
    query = image_uris.ImageQuery(region=region, instance=instance)
    record = image_uris.find(workspace.project.images, image, query, lambda: workspace.recipes)
    snippet = snippets.snippet(record, replace(job, sdk=sdk, role=role), workspace.catalog)
    policy.require(workspace.project, record, report)
    diagnostics.write_warnings((finding.diagnostic for finding in snippet.warnings), sys.stderr)
    show(snippet.code)


@bake_task(
    "image",
    iterable=[*_JOB_LISTS, "input", "input_group"],
    help={
        **_JOB_HELP,
        "image": "one image, as its recipe resolves now; or the URI of a release or of an image of AWS",
        "sdk": "v3 or v2: the version of the SageMaker SDK that sends the job; default: as for `estimator`",
        "input": _INPUT,
        "input_group": _INPUT_GROUP,
        "file": "JSON: the arguments of an estimator or ModelTrainer, or a CreateTrainingJob request",
        "json": JSON,
    },
)
@_with_job
def validate(
    context: Context,
    job: "JobSpec",
    input: list[str],
    input_group: list[str],
    image: str = "",
    file: str = "",
    sdk: str = "",
    json: bool = False,
) -> None:
    """
    Validate a job's settings for an image, released or not.

    With --file, it checks the job in the file, with the image in it unless you name another.

    bake validate pytorch-cpu --instance-type ml.c5.2xlarge --distribution mpi
    bake validate pytorch-cu130 --group train=ml.p4d.24xlarge:2 --input training=s3://our-data/flowers \\
        --input-group training=train
    bake validate --file request.json --json
    """
    from bakehouse.cli import json_report
    from bakehouse.jobs import job_check

    job = _add_channels(replace(job, sdk=sdk), input, input_group)
    result = job_check.check_settings(open_project(image or None), image, job, file)
    errors, warnings = result.errors, [warning.diagnostic for warning in result.warnings]
    if json:
        show(json_report.job_check(result.image, result.findings))
        if errors:
            raise Exit(code=UsageError.exit_code)
        return
    diagnostics.write_warnings(warnings, sys.stderr)
    if errors:
        raise UsageError.of(*(error.diagnostic for error in errors))
    counts = f", {format_count(len(warnings), 'warning')}" if warnings else ""
    show(f"{result.title}: the job is valid{counts}\n")


@bake_task(
    "image",
    iterable=[*_JOB_LISTS, "input", "input_group"],
    help={
        **_JOB_HELP,
        **_FOLLOW_HELP,
        "role": "ARN of the execution role of the job",
        "input": _INPUT,
        "input_group": _INPUT_GROUP,
        "output": "S3 location of the model and the code; default: the bucket of SageMaker's SDK",
        "job-name": "default: made of the image name and the time",
        "max-run": "seconds until SageMaker stops the job",
        "volume-size": "disk of each host, such as 100g",
        "region": "AWS region of the job and the image; default: that of the newest release",
        "detach": "do not follow the job",
    },
)
@_with_job
def launch(
    context: Context,
    image: str,
    job: "JobSpec",
    input: list[str],
    input_group: list[str],
    role: str = "",
    output: str = "",
    job_name: str = "",
    max_run: int = 86400,
    volume_size: str = "30g",
    region: str = "",
    detach: bool = False,
    stop_on_interrupt: bool = False,
) -> None:
    """
    Start a training job on SageMaker and follow it to its end.

    Bakehouse validates the settings first and sends nothing if they are invalid.
    Ctrl-C does not stop the job.

    bake launch pytorch-cpu --role arn:aws:iam::123456789012:role/SageMakerRole \\
        --instance-type ml.c5.2xlarge --instance-count 2 --source-dir src --entry-point train.py
    """
    from bakehouse.cli import job_options
    from bakehouse.sagemaker import launch as launching

    job = replace(
        _add_channels(job, input, input_group),
        sdk="boto3",
        role=role,
        instance_count=job.instance_count or (0 if job.groups else 1),
        output=output,
        name=job_name,
        max_run=max_run,
        volume_gib=-(-(job_options.size(volume_size, "--volume-size") or 0) // 2**30),
    )
    _finish(
        launching.launch(
            open_project(),
            image,
            job,
            job_callbacks(),
            region=region,
            detach=detach,
            stop_on_interrupt=stop_on_interrupt,
        )
    )


@bake_task("job", help={**_FOLLOW_HELP, "job": "name of a training job", "region": "AWS region of the job"})
def follow(context: Context, job: str, region: str = "", stop_on_interrupt: bool = False) -> None:
    """
    Follow a training job that was started before, from its first log line.

    bake follow pytorch-cpu-2026-11-20-09-41-12-345 --region eu-west-1
    """
    from bakehouse.sagemaker import launch as launching

    workspace = open_project()
    job_region = region or launching.default_region(workspace)
    _finish(
        launching.follow_job(workspace, job, job_region, job_callbacks(), stop_on_interrupt=stop_on_interrupt)
    )


@bake_task(
    "instance",
    iterable=["helper", "step_seconds"],
    help={
        "instance": "the instance type that trains",
        "gpus": "GPUs or NeuronCores of the job; default: those of one instance",
        "vcpu_per_gpu": "vCPUs that keep one GPU or NeuronCore busy",
        "helper": "instance type without GPUs to add, instead of c5; repeatable",
        "step_seconds": "measured seconds of a step: `0.2`, or `ml.p4d.24xlarge+2*ml.c5.18xlarge=0.1`",
        "batch": "examples per replica and step",
        "json": JSON,
    },
)
def recommend_instances(
    context: Context,
    instance: str,
    vcpu_per_gpu: float = 0.0,
    gpus: int = 0,
    helper: list[str] | None = None,
    step_seconds: list[str] | None = None,
    batch: int = 0,
    json: bool = False,
) -> None:
    """
    Recommend instances that keep the GPUs busy.

    It tries a larger type of the family, then adds instances that preprocess data.

    bake recommend-instances ml.p4d.24xlarge --gpus 8 --vcpu-per-gpu 20
    bake recommend-instances ml.p4d.24xlarge --vcpu-per-gpu 20 --helper ml.c5.18xlarge --step-seconds 0.192
    """
    from bakehouse.catalog.instance_types import find_instance, instances
    from bakehouse.cli import json_report
    from bakehouse.jobs import sizing

    workspace = open_project()
    instance_types = instances(workspace.catalog)
    need = sizing.Need(gpus or find_instance(instance_types, instance).accelerators or 0, vcpu_per_gpu, batch)
    seconds = sizing.read_step_seconds(step_seconds or ())
    result = sizing.recommend(need, instance, instance_types, helper or (), workspace.project.prices, seconds)
    show(json_report.sizing(result) if json else sizing.text(result))
