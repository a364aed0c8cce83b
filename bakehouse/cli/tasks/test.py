"""Tasks that run images: smoke tests and local training jobs."""

import functools
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from bakehouse.cli.tasks import job_arguments
from bakehouse.cli.tasks.declare import (
    ALL,
    IMAGES,
    JSON,
    PROGRAM,
    Context,
    Exit,
    bake_task,
    confirmed,
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
    from bakehouse.cluster.smoke_report import SmokeReport
    from bakehouse.jobs.job_spec import JobSpec
    from bakehouse.pipeline.smoke import SmokeOptions
    from bakehouse.plan.workspace import Selection

_TIME_LIMIT = 3600
"""Seconds until a job that smoke-tests an image is stopped."""
_JOB_HELP = job_arguments.help_of(job_arguments.SMOKE)


@bake_task(
    "images",
    help={
        "images": IMAGES,
        "check": "run only checks of this name; separate several with commas",
        "gpus": "number of GPUs, or some as `device=0,2`; ranks then communicate through NCCL",
        "timeout": "seconds for each check, instead of the check's own limit",
        "image-uri": "test the image pulled under this URI: a candidate from another machine",
        "report": "also write the results to this file, for `promote` on another machine",
        "on": "where to test the newest candidate: sagemaker, ssh://HOST, slurm, kubernetes or bare",
        "results": "results or log of a job that --on printed, or of its script",
        **{name: f"{text}; with --on sagemaker" for name, text in _JOB_HELP.items()},
        "job": f"{_JOB_HELP['job']}; of another --on, `max_run` only",
        "all": ALL,
        "json": JSON,
    },
)
@job_arguments.with_job(job_arguments.SMOKE)
def smoke(
    context: Context,
    line: "JobSpec",
    job: str,
    images: str,
    check: str = "",
    gpus: str = "",
    timeout: int = job_arguments.UNSET,
    image_uri: str = "",
    report_: str = "",
    on: str = "",
    results: str = "",
    all: bool = False,
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
    from bakehouse.jobs.given_job import read_job, require_job
    from bakehouse.jobs.job_spec import JobSpec
    from bakehouse.pipeline import smoke as pipeline
    from bakehouse.sagemaker import launch_report

    if on == "sagemaker":
        _refuse({"--gpus": gpus, "--results": results}, "cannot be combined with `--on sagemaker`")
    else:
        others = {"--instance-type": line.instance_type, "--instance-count": line.instance_count is not None}
        _refuse({**others, "--role": line.role}, "needs `--on sagemaker`")
    if not on:
        _refuse({"--results": results, "--job": job}, "needs `--on` with the runner of the job")
    selection = confirmed(select_images(images), images, all=all)
    seconds = job_arguments.given(timeout)
    options = pipeline.SmokeOptions(
        only=tuple(split(check)),
        gpus=job_arguments.gpu_ids(gpus),
        deadline=None if seconds is None else float(seconds),
        report_file=Path(report_) if report_ else None,
        image_uri=image_uri,
    )
    if on:
        given = read_job(selection.workspace, images, job, line)
        spec = given.spec
        seconds = _TIME_LIMIT if spec.max_run is None else spec.max_run
        if on != "sagemaker":
            if spec != JobSpec(max_run=spec.max_run):
                raise UsageError(
                    f"a job of `--on {on}` has only the setting `max_run`",
                    hint="remove the other settings; the runner selects the hosts",
                )
            _smoke_elsewhere(selection, on, seconds, results, options, json)
            return
        require_job(given, "smoke")
        hosts = 1 if spec.instance_count is None else spec.instance_count
        spec = replace(spec, instance_count=hosts, max_run=seconds)
        launched, result = pipeline.smoke_on_sagemaker(selection, spec, job_callbacks(), options)
        report(launch_report.text(launched).rstrip())
        if result:
            _show_results(selection, [result], json=json)
        if launched.exit_code:
            raise Exit(code=launched.exit_code)
        return
    reports = pipeline.smoke(selection, report, options)
    _show_results(selection, reports, json=json)


def _show_results(selection: "Selection", reports: "Sequence[SmokeReport]", *, json: bool) -> None:
    """Print what ran now, and as text also the results of earlier runs."""
    from bakehouse.cli import json_report, tables
    from bakehouse.evidence.known_checks import known_checks

    if json:
        show(json_report.smoke(reports))
        return
    project, images = selection.workspace.project, {image.name: image for image in selection.plan.images}
    known = [known_checks(project, images[report.image], report.content) for report in reports]
    show(tables.smoke_table(reports, known))


def _refuse(options: Mapping[str, object], reason: str) -> None:
    """Raise UsageError for the first option that has a value."""
    for name in (name for name, value in options.items() if value):
        raise UsageError(f"`{name}` {reason}")


def _smoke_elsewhere(
    selection: "Selection", runner: str, seconds: int, results: str, options: "SmokeOptions", json: bool
) -> None:
    from bakehouse.cluster import smoke_runners
    from bakehouse.pipeline.smoke import smoke_elsewhere

    written = (*smoke_runners.PRINTED, smoke_runners.BARE)
    if runner not in written and not runner.startswith(smoke_runners.SSH):
        raise UsageError(
            f"unknown runner `{runner}`", hint=f"use `sagemaker`, `ssh://HOST`, {format_names(written)}"
        )
    if results and not Path(results).is_file():
        raise UsageError(f"the file `{results}` does not exist")
    path = Path(results) if results else None
    result = smoke_elsewhere(selection, runner, seconds, path, report, options)
    if isinstance(result, smoke_runners.PrintedJob):
        show(result.text)
        for line in ("run:", *(f"  {command}" for command in result.commands)):
            report(line)
        report("then:")
        report(f"  {_results_command(selection.image.name, runner, result.results, options)}")
        return
    _show_results(selection, [result], json=json)
    if result.unfinished:
        raise Exit(code=SmokeError.exit_code)


def _results_command(image: str, runner: str, results: Path, options: "SmokeOptions") -> str:
    """Return the command that evaluates the results of a job, with the options that its checks depend on."""
    words = ["bake", "smoke", image, "--on", runner, "--results", display_path(results)]
    if options.only:
        words += ["--check", ",".join(options.only)]
    if options.gpus:
        words += ["--gpus", str(len(options.gpus))]
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
    iterable=[*job_arguments.lists(job_arguments.LOCAL), "kill"],
    help={
        **job_arguments.help_of(job_arguments.LOCAL),
        "image": "an image of a recipe, or any image that the engine has; default: that of --job",
        "command": "command that every host runs instead of the SageMaker Training Toolkit, in /opt/ml/code",
        "gpus": "GPUs of this machine for each host, or some to deal out as `device=0,2`; no GPU is shared",
        "stop-after": "seconds until the job is stopped like StopTrainingJob: SIGTERM, then SIGKILL",
        "kill": "`algo-2@10s`, or once a text is in the log `algo-2@/TEXT/`: kill this host; repeatable",
        "seed": "assign hosts to groups as an earlier run did",
        "log": "log of the failed job of --job: a file, an export of CloudWatch, or - for standard input",
        "json": JSON,
    },
)
@job_arguments.with_job(job_arguments.LOCAL)
def run_training_job(
    context: Context,
    line: "JobSpec",
    job: str,
    kill: list[str],
    image: str = "",
    command: str = "",
    gpus: str = "",
    stop_after: int = job_arguments.UNSET,
    seed: int = job_arguments.UNSET,
    log: str = "",
    json: bool = False,
) -> None:
    """
    Run a training job in local containers set up like SageMaker hosts.

    The report predicts the status that SageMaker would give the job. A job that SageMaker ran is
    repeated with the answer of `aws sagemaker describe-training-job`. The exit code of one that failed
    is 6 if it failed here in the same way, 18 if in another, and 0 if it completed.

    bake run pytorch-cpu --source-dir src --entry-point train.py --instance-count 2
    bake run --job failed.json --channel training=data --log log.json
    bake run tensorflow-cpu --source-dir src --entry-point train.py \\
        --group data=ml.c5.18xlarge:2 --group dnn=ml.p4d.24xlarge:1
    bake run mpi-cpu --source-dir src --entry-point train.py --instance-count 2 --kill algo-2@10s
    """
    from bakehouse.cli import job_options
    from bakehouse.cluster import job_report, log_stream
    from bakehouse.cluster.job import TrainingJob
    from bakehouse.jobs.given_job import read_job, require_job
    from bakehouse.pipeline import replay
    from bakehouse.pipeline import run as pipeline
    from bakehouse.sagemaker.local_request import local_request

    workspace = open_project(image)
    given = read_job(workspace, image, job, line)
    require_job(given, "run")
    seconds = job_arguments.given(stop_after)
    ids = job_arguments.gpu_ids(gpus)
    faults = TrainingJob(
        gpu_ids=ids if gpus.startswith("device=") else (),
        command=job_options.command(command, line.entry_point),
        stop_after=None if seconds is None else float(seconds),
        kills=job_options.kills(kill),
        seed=job_arguments.given(seed),
    )
    request = local_request(given, faults, 0 if faults.gpu_ids else len(ids))
    failed = replay.open_failure(workspace, given, log, report)
    colour = terminal.in_colour(sys.stderr)
    verbose = terminal.is_verbose()
    listen = functools.partial(log_stream.open_log_stream, write=report, colour=colour, verbose=verbose)
    result = pipeline.run_job(workspace, given.image, request, report, listen)
    show(job_report.as_json(result) if json else job_report.text(result))
    code = 0 if result.passed else SmokeError.exit_code
    if failed:
        code = replay.conclude(workspace, given, failed, result, report)
    if code:
        raise Exit(code=code)


@bake_task(
    "image",
    PROGRAM,
    iterable=[PROGRAM],
    help={
        "image": "a built image of a recipe, or any image that the engine has",
        PROGRAM: "run this command instead of a shell; its exit code is that of `bake shell`",
    },
)
def shell(context: Context, image: str, program: list[str]) -> None:
    """
    Open a shell in an image as SageMaker starts it. Without a terminal, name a command.

    bake shell mpi-cpu
    bake shell mpi-cpu -- python3 -c 'import mpi4py'
    """
    from bakehouse.pipeline import shell as pipeline

    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if not program and not terminal:
        raise UsageError(
            "`shell` needs a terminal, or a command",
            hint=f"write the command after `--`: `bake shell {image} -- ls -l /opt/ml`",
        )
    if terminal:
        # A closed window cleans up like Ctrl-C
        signal.signal(signal.SIGHUP, signal.default_int_handler)
    command = pipeline.ContainerCommand(tuple(program), terminal)
    workspace = open_project(image)
    code = pipeline.open_shell(workspace, image, command, report)
    if code:
        raise Exit(code)
