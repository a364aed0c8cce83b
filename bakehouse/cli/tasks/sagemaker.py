"""Tasks for jobs on SageMaker: code that starts them, launching, logs, choice of instances."""

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from bakehouse.cli import diagnostics
from bakehouse.cli.tasks import job_arguments
from bakehouse.cli.tasks.declare import (
    JSON,
    Context,
    Exit,
    bake_task,
    job_callbacks,
    open_project,
    report,
    show,
)
from bakehouse.errors import UndecidedError, UsageError
from bakehouse.util.format import format_count

if TYPE_CHECKING:
    from bakehouse.jobs.job_spec import JobSpec
    from bakehouse.ledger.releases import ReleaseRecord
    from bakehouse.plan.workspace import Workspace
    from bakehouse.sagemaker.launch_report import LaunchReport

_IMAGE = "one image, or `pytorch` or `tensorflow` for the best for the type; default: that of --job"


def _finish(result: "LaunchReport") -> None:
    """Report how a job on SageMaker ended, and exit with its code."""
    from bakehouse.sagemaker import launch_report

    show(launch_report.text(result))
    if result.exit_code:
        raise Exit(code=result.exit_code)


@bake_task(
    "image",
    iterable=job_arguments.lists(job_arguments.SAGEMAKER),
    help={
        **job_arguments.help_of(job_arguments.SAGEMAKER),
        "image": _IMAGE,
        "sdk": "v3, v2 or boto3: the library of the code; default: v3, or v2 for jobs that v3 cannot start",
        "for": "kubernetes, kubeflow, hyperpod or slurm: print a job for such a cluster instead of code",
        "region": "only a release in this AWS region, with its URI there",
        "preview": "the image as its recipe resolves now, with a placeholder for its URI",
    },
)
@job_arguments.with_job(job_arguments.SAGEMAKER)
def estimator(
    context: Context,
    line: "JobSpec",
    job: str,
    image: str = "",
    sdk: str = "",
    for_: str = "",
    region: str = "",
    preview: bool = False,
) -> None:
    """
    Validate a job's settings and print Python code that starts it.

    With --for, print the job for another cluster instead.

    bake estimator pytorch-cpu
    bake estimator --job nightly
    bake estimator pytorch-cu130 --instance-type ml.p4d.24xlarge --instance-count 4 --sdk v2
    bake estimator pytorch-cu130 --instance-type p5.48xlarge --instance-count 2 --for kubernetes
    bake estimator mpi-cpu --group data=ml.c5.18xlarge:2 --group train=ml.c5.2xlarge:1 \\
        --distribution '{"mpi": {"enabled": true}, "instance_groups": ["train"]}'
    """
    from bakehouse.jobs import snippets
    from bakehouse.jobs.cluster_forms import sagemaker_type
    from bakehouse.jobs.given_job import find_job, read_job, require_job
    from bakehouse.jobs.job_images import find_image, find_release, placeholder

    if for_ and sdk:
        raise UsageError("`--for` cannot be combined with `--sdk`", hint="remove one of them")
    workspace = open_project(image or None)
    given = read_job(workspace, image, job or find_job(workspace, image), replace(line, sdk=sdk))
    require_job(given, "estimator")
    instance_type = sagemaker_type(given.spec.instance_type) if for_ else given.spec.instance_type
    if preview:
        unreleased = find_image(workspace, given.image, instance_type)
        repository = placeholder(workspace, unreleased.name, region)
        snippet = snippets.preview(unreleased, given.spec, workspace.catalog, repository, for_)
    else:
        record = find_release(workspace, given.image, instance_type, region)
        recipe = workspace.recipes.get(record.image)
        snippet = snippets.snippet(record, given.spec, workspace.catalog, recipe, for_)
    project = workspace.project
    if (project.policy or "policy" in project.unconfirmed) and not preview:
        # Most projects have none, and its checks take long to import.
        from bakehouse.trust import policy

        policy.require(project, record, report)
    diagnostics.write_warnings((finding.diagnostic for finding in snippet.warnings), sys.stderr)
    _report_known(workspace, given.image if preview else record.image, None if preview else record)
    show(snippet.code)


@bake_task(
    "image",
    iterable=job_arguments.lists(job_arguments.LOCAL),
    help={
        **job_arguments.help_of(job_arguments.LOCAL),
        "image": "an image, as its recipe resolves now, or the URI of any; default: that of --job",
        "sdk": "v3 or v2: the version of the SageMaker SDK that sends the job; default: as for `estimator`",
        "json": JSON,
    },
)
@job_arguments.with_job(job_arguments.LOCAL)
def validate(
    context: Context, line: "JobSpec", job: str, image: str = "", sdk: str = "", json: bool = False
) -> None:
    """
    Validate a job's settings for an image, released or not.

    The file of --job may also be a CreateTrainingJob request, the answer of DescribeTrainingJob,
    or the arguments of an estimator or ModelTrainer.

    bake validate pytorch-cpu --instance-type ml.c5.2xlarge --distribution mpi
    bake validate --job nightly
    bake validate --job request.json --json
    """
    from bakehouse.cli import json_report
    from bakehouse.jobs import job_check
    from bakehouse.jobs.given_job import find_job, read_job

    workspace = open_project(image or None)
    given = read_job(workspace, image, job or find_job(workspace, image), replace(line, sdk=sdk))
    result = job_check.check_settings(workspace, given)
    errors, warnings = result.errors, [warning.diagnostic for warning in result.warnings]
    if json:
        show(json_report.job_check(result))
        if errors:
            raise Exit(code=UsageError.exit_code)
    else:
        diagnostics.write_warnings(warnings, sys.stderr)
        if errors:
            raise UsageError.of(*(error.diagnostic for error in errors))
        _report_known(workspace, given.image)
        counts = f", {format_count(len(warnings), 'warning')}" if warnings else ""
        verdict = "the job is valid" if result.is_known else "it is not known whether the job is valid"
        show(f"{result.title}: {verdict}{counts}\n")
    if not result.is_known:
        raise Exit(code=UndecidedError.exit_code)


@bake_task(
    "image",
    iterable=job_arguments.lists(job_arguments.SAGEMAKER),
    help={
        **job_arguments.help_of(job_arguments.SAGEMAKER),
        "image": _IMAGE,
        "job-name": "default: made of the image name and the time",
        "region": "AWS region of the job and the image; default: that of the newest release",
        "detach": "do not follow the job",
        "follow": "name of a training job: follow it from its first log line, and start none",
        "stop-on-interrupt": "Ctrl-C also stops the job",
    },
)
@job_arguments.with_job(job_arguments.SAGEMAKER)
def launch(
    context: Context,
    line: "JobSpec",
    job: str,
    image: str = "",
    job_name: str = "",
    region: str = "",
    detach: bool = False,
    follow: str = "",
    stop_on_interrupt: bool = False,
) -> None:
    """
    Start a training job on SageMaker and follow it to its end.

    Bakehouse validates the settings first and sends nothing if they are invalid.
    Ctrl-C does not stop the job.

    bake launch pytorch-cpu --role arn:aws:iam::123456789012:role/SageMakerRole \\
        --instance-type ml.c5.2xlarge --instance-count 2 --source-dir src --entry-point train.py
    bake launch --job nightly --hyperparameter epochs=3
    bake launch --follow pytorch-cpu-2026-11-20-09-41-12-345 --region eu-west-1
    """
    from bakehouse.jobs.given_job import find_job, read_job, require_job
    from bakehouse.jobs.job_spec import JobSpec
    from bakehouse.sagemaker import launch as launching

    workspace = open_project()
    callbacks = job_callbacks()
    if follow:
        if image or job or job_name or detach or line != JobSpec():
            raise UsageError(
                "`--follow` does not start a job, so it takes no job settings",
                hint="use it with `--region` and `--stop-on-interrupt` only",
            )
        job_region = region or launching.default_region(workspace)
        _finish(
            launching.follow_job(
                workspace, follow, job_region, callbacks, stop_on_interrupt=stop_on_interrupt
            )
        )
        return
    given = read_job(workspace, image, job or find_job(workspace, image), replace(line, name=job_name))
    require_job(given, "launch")
    _finish(
        launching.launch(
            workspace,
            given.image,
            given.spec,
            callbacks,
            region=region,
            detach=detach,
            stop_on_interrupt=stop_on_interrupt,
        )
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
    gpus: int = job_arguments.UNSET,
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
    count = job_arguments.given(gpus)
    if count is None:
        count = find_instance(instance_types, instance).accelerators or 0
    need = sizing.Need(count, vcpu_per_gpu, batch)
    seconds = sizing.read_step_seconds(step_seconds or ())
    result = sizing.recommend(need, instance, instance_types, helper or (), workspace.project.prices, seconds)
    show(json_report.sizing(result) if json else sizing.text(result))


def _report_known(workspace: "Workspace", image: str, record: "ReleaseRecord | None" = None) -> None:
    """Print the facts against the image of a job."""
    from bakehouse.jobs.job_images import known_lines

    for line in known_lines(workspace, image, record):
        report(line)
