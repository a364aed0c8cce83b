"""Tasks that run images: smoke tests and local training jobs."""

import functools
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from invoke.context import Context
from invoke.exceptions import Exit

from bakehouse.cli.tasks.declare import (
    IMAGES,
    JSON,
    bake_task,
    job_callbacks,
    open_project,
    report,
    select_images,
    show,
    split,
)
from bakehouse.errors import SmokeError, UsageError
from bakehouse.util import terminal
from bakehouse.util.files import display_path
from bakehouse.util.format import format_names

if TYPE_CHECKING:
    from bakehouse.pipeline.smoke import SmokeOptions
    from bakehouse.plan.workspace import Selection


@bake_task(
    "images",
    help={
        "images": IMAGES,
        "check": "run only checks of this name; separate several with commas",
        "gpus": "number of GPUs for the containers; ranks then communicate through NCCL",
        "timeout": "seconds for each check, instead of the check's own limit",
        "image-uri": "test the image pulled under this URI: a candidate from another machine",
        "report": "also write the results to this file, for `promote` on another machine",
        "on": "where to test the newest candidate: sagemaker, ssh://HOST, slurm, kubernetes or batch",
        "results": "results or log of a job that --on printed",
        "instance-type": "of --on sagemaker, such as ml.g6.12xlarge",
        "instance-count": "number of hosts of --on sagemaker",
        "role": "ARN of the execution role of --on sagemaker",
        "spot": "use Spot instances of --on sagemaker",
        "max-run": "seconds until the job of --on is stopped",
        "output": "S3 location of --on sagemaker; default: the bucket of SageMaker's SDK",
        "json": JSON,
    },
)
def smoke(
    context: Context,
    images: str,
    check: str = "",
    gpus: int = 0,
    timeout: int = 0,
    image_uri: str = "",
    report_: str = "",
    on: str = "",
    instance_type: str = "",
    instance_count: int = 1,
    role: str = "",
    spot: bool = False,
    max_run: int = 3600,
    output: str = "",
    results: str = "",
    json: bool = False,
) -> None:
    """
    Smoke-test images as SageMaker starts them.

    The tests are component checks, ranks on one host, a job on two hosts, and the recipe's own test.

    bake smoke pytorch-cpu
    bake smoke mpi-cpu --check mpi_2x2
    bake smoke pytorch-cu130 --gpus 8 --image-uri HOST/NAME@sha256:... --report results.json
    bake smoke pytorch-cu130 --on sagemaker --instance-type ml.g6.12xlarge --instance-count 2 --role ARN
    """
    from bakehouse.cli import json_report, tables
    from bakehouse.jobs.job_spec import JobSpec
    from bakehouse.pipeline import smoke as pipeline
    from bakehouse.sagemaker import launch_report

    if on == "sagemaker":
        _refuse({"--gpus": gpus, "--results": results}, "cannot be combined with `--on sagemaker`")
    else:
        hosts = {"--instance-type": instance_type, "--instance-count": instance_count != 1, "--role": role}
        _refuse({**hosts, "--spot": spot, "--output": output}, "needs `--on sagemaker`")
    if results and not on:
        _refuse({"--results": results}, "needs `--on` with the runner of the job")
    selection = select_images(images)
    options = pipeline.SmokeOptions(
        only=tuple(split(check)),
        gpus=gpus,
        deadline=float(timeout) or None,
        report_file=Path(report_) if report_ else None,
        image_uri=image_uri,
    )
    if on:
        if on != "sagemaker":
            _smoke_elsewhere(selection, on, max_run, results, options, json)
            return
        job = JobSpec(
            role=role,
            instance_type=instance_type,
            instance_count=instance_count,
            spot=spot,
            max_run=max_run,
            output=output,
        )
        launched, result = pipeline.smoke_on_sagemaker(selection, job, job_callbacks(), options)
        report(launch_report.text(launched).rstrip())
        if result:
            show(json_report.smoke([result]) if json else tables.smoke_table([result]))
        if launched.exit_code:
            raise Exit(code=launched.exit_code)
        return
    reports = pipeline.smoke(selection, report, options)
    show(json_report.smoke(reports) if json else tables.smoke_table(reports))


def _refuse(options: Mapping[str, object], reason: str) -> None:
    """Raise UsageError for the first option that has a value."""
    for name in (name for name, value in options.items() if value):
        raise UsageError(f"`{name}` {reason}")


def _smoke_elsewhere(
    selection: "Selection", runner: str, seconds: int, results: str, options: "SmokeOptions", json: bool
) -> None:
    from bakehouse.cli import json_report, tables
    from bakehouse.cluster import smoke_runners
    from bakehouse.pipeline.smoke import smoke_elsewhere

    if runner not in smoke_runners.PRINTED and not runner.startswith(smoke_runners.SSH):
        raise UsageError(
            f"unknown runner `{runner}`",
            hint=f"use `sagemaker`, `ssh://HOST`, {format_names(smoke_runners.PRINTED)}",
        )
    if results and not Path(results).is_file():
        raise UsageError(f"the file `{results}` does not exist")
    path = Path(results) if results else None
    result = smoke_elsewhere(selection, runner, seconds, path, report, options)
    if isinstance(result, smoke_runners.PrintedJob):
        show(result.path.read_text())
        for line in ("run:", *(f"  {command}" for command in result.commands)):
            report(line)
        report("then:")
        report(f"  {_results_command(selection.image.name, runner, result.results, options)}")
        return
    show(json_report.smoke([result]) if json else tables.smoke_table([result]))
    if result.unfinished:
        raise Exit(code=SmokeError.exit_code)


def _results_command(image: str, runner: str, results: Path, options: "SmokeOptions") -> str:
    """Return the command that evaluates the results of a job, with the options that its checks depend on."""
    words = ["bake", "smoke", image, "--on", runner, "--results", display_path(results)]
    if options.only:
        words += ["--check", ",".join(options.only)]
    if options.gpus:
        words += ["--gpus", str(options.gpus)]
    if options.deadline:
        words += ["--timeout", f"{options.deadline:g}"]
    if options.image_uri:
        words += ["--image-uri", options.image_uri]
    if options.report_file:
        words += ["--report", str(options.report_file)]
    return shlex.join(words)


@bake_task(
    "image",
    name="run",
    iterable=[
        "group",
        "cpus",
        "hyperparameter",
        "channel",
        "channel_group",
        "environment",
        "kill",
        "partition",
    ],
    help={
        "image": "an image of a recipe, or any image that the engine has",
        "source-dir": "directory of the training code; default: the code in the image",
        "entry-point": "the script, relative to --source-dir",
        "hosts": "number of hosts of one type",
        "instance-type": "instance type that the hosts report, such as ml.p4d.24xlarge",
        "group": "instance group of a heterogeneous cluster, `name=type:count`; repeatable",
        "command": "command that every host runs instead of the SageMaker Training Toolkit, in /opt/ml/code",
        "distribution": "`distribution` of the estimator or ModelTrainer: a launcher, JSON or a JSON file",
        "sdk": "directory with version 3 of the SageMaker SDK, for the `Torchrun` and `MPI` of ModelTrainer",
        "hyperparameter": "`name=value`; repeatable",
        "channel": "`name=directory`, mounted at /opt/ml/input/data/<name>; repeatable",
        "channel_group": "instance groups of a channel, `name=group,group`; default: all; repeatable",
        "processes-per-host": "ranks on each host; default: as in --distribution, else one per GPU, else one",
        "environment": "`NAME=value`; repeatable",
        "gpus": "GPUs of this machine for each host; no GPU is shared",
        "cpus": "`group=cores` for each host of the group; repeatable",
        "memory": "memory limit of each host, such as 2g",
        "timeout": "seconds until the job is stopped, like MaxRuntimeInSeconds",
        "stop-after": "seconds until the job is stopped like StopTrainingJob: SIGTERM, then SIGKILL",
        "stop-grace": "seconds between SIGTERM and SIGKILL",
        "kill": "`algo-2@10s`, or once a text is in the log `algo-2@/TEXT/`: kill this host; repeatable",
        "partition": "`data,dnn@10s`: drop all packets between these groups or hosts; repeatable",
        "netem": "delay and loss on each host's network, such as 'delay 100ms loss 1%'",
        "volume-size": "size limit of /opt/ml/model, output and checkpoints, such as 1g",
        "seed": "assign hosts to groups as an earlier run did",
        "json": JSON,
    },
)
def run_training_job(
    context: Context,
    image: str,
    group: list[str],
    cpus: list[str],
    hyperparameter: list[str],
    channel: list[str],
    channel_group: list[str],
    environment: list[str],
    kill: list[str],
    partition: list[str],
    source_dir: str = "",
    entry_point: str = "",
    hosts: int = 0,
    instance_type: str = "",
    command: str = "",
    distribution: str = "",
    sdk: str = "",
    processes_per_host: int = 0,
    gpus: int = 0,
    memory: str = "",
    timeout: int = 3600,
    stop_after: int = 0,
    stop_grace: int = 120,
    netem: str = "",
    volume_size: str = "",
    seed: int = 0,
    json: bool = False,
) -> None:
    """
    Run a training job in local containers set up like SageMaker hosts.

    The report predicts the status that SageMaker would give the job.

    bake run pytorch-cpu --source-dir src --entry-point train.py --hosts 2
    bake run tensorflow-cpu --source-dir src --entry-point train.py \\
        --group data=ml.c5.18xlarge:2 --group dnn=ml.p4d.24xlarge:1
    bake run mpi-cpu --source-dir src --entry-point train.py --hosts 2 --kill algo-2@10s
    """
    from bakehouse.cli import job_options
    from bakehouse.cluster import job_report, log_stream
    from bakehouse.cluster.job import TrainingJob
    from bakehouse.pipeline import run as pipeline
    from bakehouse.sagemaker.local_job import RunRequest

    workspace = open_project(image)
    channels = job_options.channels(channel)
    channel_groups = job_options.channel_groups(channels, channel_group, "--channel")
    job = TrainingJob(
        groups=job_options.cluster(group, hosts, instance_type, cpus, gpus),
        entry_point=entry_point,
        command=job_options.command(command, entry_point),
        hyperparameters=job_options.hyperparameters(hyperparameter),
        environment=job_options.pairs(environment, "--environment"),
        channel_directories=channels,
        channel_groups={name: groups for name, groups in channel_groups.items() if groups},
        memory=job_options.size(memory, "--memory"),
        deadline=float(timeout),
        stop_after=float(stop_after) if stop_after else None,
        stop_grace=float(stop_grace),
        kills=job_options.kills(kill),
        partitions=job_options.partitions(partition),
        netem=netem,
        volume_bytes=job_options.size(volume_size, "--volume-size"),
        seed=seed or None,
    )
    request = RunRequest(
        job,
        job_options.code(source_dir, entry_point, command),
        job_options.distribution(distribution) or {},
        job_options.sdk(sdk),
        processes_per_host,
    )
    colour = terminal.in_colour(sys.stderr)
    verbose = terminal.is_verbose()
    listen = functools.partial(log_stream.open_log_stream, write=report, colour=colour, verbose=verbose)
    result = pipeline.run_job(workspace, image, request, report, listen)
    show(job_report.as_json(result) if json else job_report.text(result))
    if not result.passed:
        raise Exit(code=SmokeError.exit_code)
