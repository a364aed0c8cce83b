"""The tasks of `./bake`, in the pipeline's order: each reads its words and calls the workflow."""

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from invoke.context import Context
from invoke.exceptions import Exit
from invoke.tasks import task

from bakehouse.cli import diagnostics, image_table, tables
from bakehouse.errors import BakehouseError, SmokeError
from bakehouse.plan.workspace import (
    check_rendered,
    open_workspace,
    orphans,
    plan_images,
    plan_recipes,
    render_images,
    resolve_all,
    select,
    select_kept,
)
from bakehouse.util import terminal

if TYPE_CHECKING:
    from bakehouse.sagemaker.job_spec import JobSpec
    from bakehouse.sagemaker.launch import JobCallbacks
    from bakehouse.sagemaker.launch_report import LaunchReport

_IMAGES = "names or globs, `a,b` or `a b`; none means all"
_ATTEST = "attach to each digest what is in the image and how it came to be"
_JSON = "progress as JSON lines on standard error"


def _command(function: Callable[..., None]) -> Callable[..., None]:
    """Tell a failure in our words and exit with its code, also under plain `invoke`."""

    @functools.wraps(function)
    def run(*arguments: Any, **options: Any) -> None:
        try:
            function(*arguments, **options)
        except BakehouseError as error:
            diagnostics.write_failure(error, sys.stderr)
            raise Exit(code=error.exit_code) from error

    return run


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _patterns(images: str) -> list[str]:
    return [word for word in images.split(",") if word]


@task(
    name="list",
    positional=["images"],
    help={"images": _IMAGES, "json": "one object an image, for programs"},
)
@_command
def list_images(context: Context, images: str, json: bool = False) -> None:
    """
    List the images that can be built, each with whom it is for.

    ./bake list
    ./bake list 'pytorch-2.9-*' --json
    """
    print(tables.listing(open_workspace(), _patterns(images), as_json=json), end="")


@task(
    positional=["images"],
    iterable=["with_"],
    help={
        "images": _IMAGES,
        "with": "would this fit: name=versions, name=variant, instance=type, driver=version; repeatable",
    },
)
@_command
def resolve(context: Context, images: str, with_: list[str]) -> None:
    """
    Show the version of every part of images, or tell whether something would fit, and if not, what would.

    ./bake resolve pytorch-cpu
    ./bake resolve pytorch-cu130 --with python=3.12
    ./bake resolve --with cuda=12.4 --with pytorch=2.9 --with instance=ml.p4d.24xlarge --with driver=550.54
    """
    workspace = open_workspace()
    if with_:
        print(tables.fit(workspace, _patterns(images), with_), end="")
        return
    recipes = select(workspace, _patterns(images))
    print(tables.resolution_table(resolve_all(workspace, recipes)), end="")


@task(
    positional=["image"],
    help={"image": "one image", "part": "one of its parts, or what one brings; `explain a nccl` works too"},
)
@_command
def explain(context: Context, image: str, part: str = "") -> None:
    """
    Tell why each version of an image was chosen: who asked for it, and what keeps newer ones out.

    ./bake explain pytorch-cu130
    ./bake explain pytorch-cu130 nccl
    """
    print(tables.explanation(open_workspace(), image, part or None), end="")


@task(
    positional=["image"],
    help={
        "image": "an image; with --from also a family or a glob",
        "other": "the image to compare it with; `diff a b` works too",
        "from": "a commit: compare what the images were there",
        "to": "with what they were at this commit, instead of now",
    },
)
@_command
def diff(context: Context, image: str, other: str = "", from_: str = "", to: str = "") -> None:
    """
    Compare the parts of two images, or of the same images at two commits.

    ./bake diff pytorch-cpu pytorch-cu130
    ./bake diff 'pytorch-*' --from HEAD~1
    """
    print(tables.difference(open_workspace(), image, other, from_, to), end="")


@task(positional=["images"], help={"images": _IMAGES})
@_command
def outdated(context: Context, images: str) -> None:
    """
    List the parts of images that have a newer release in the catalogue, and what holds each back.

    ./bake outdated
    ./bake outdated pytorch-cpu
    """
    print(tables.outdated_parts(open_workspace(), _patterns(images)), end="")


@task(positional=["images"], help={"images": _IMAGES})
@_command
def plan(context: Context, images: str) -> None:
    """
    Show the stages of images by key, and which images share them.

    ./bake plan
    """
    workspace = open_workspace()
    print(tables.plan_table(plan_images(workspace, _patterns(images))), end="")


@task(
    positional=["images"],
    help={
        "images": "names or globs, `a,b` or `a b`; none means those that are kept",
        "check": "write nothing; fail with a diff where files are stale",
    },
)
@_command
def render(context: Context, images: str, check: bool = False) -> None:
    """
    Write the Dockerfiles and bake files of images below images/, to be committed.

    Without images: those of the project's own recipes, less what `commit` leaves out of a matrix, and what
    was rendered below images/ already.

    ./bake render
    ./bake render --check
    ./bake render 'pytorch-2.9-*'
    """
    workspace = open_workspace()
    patterns = _patterns(images)
    planned = plan_recipes(workspace, select_kept(workspace, patterns))
    gone = () if patterns else orphans(workspace)
    told = f"{len(planned.images)} image{'' if len(planned.images) == 1 else 's'}"
    if not planned.images:
        _say("no images are kept here: `./bake render IMAGE` keeps one of Bakehouse's")
    if check:
        count = check_rendered(workspace, planned, gone)
        if not patterns:
            image_table.check_table(workspace)
        print(f"{count} files of {told} are up to date")
    else:
        files = render_images(workspace, planned, _say, gone)
        if not patterns and image_table.write_table(workspace):
            _say("wrote docs/images.md")
        print(f"{len(files)} files of {told}")


@task(
    positional=["images"],
    help={"images": _IMAGES, "to": "the folder that gets every file, to be carried elsewhere"},
)
@_command
def fetch(context: Context, images: str, to: str = "") -> None:
    """
    Fetch every file that images are built from: into the cache, or into a folder that is a mirror then.

    ./bake fetch pytorch-cpu
    ./bake fetch '*' --to /media/disk
    """
    from bakehouse.cli import fetch as fetch_task

    print(fetch_task.run(open_workspace(), _patterns(images), _say, sys.stderr, to), end="")


@task(
    positional=["images"],
    auto_shortflags=False,
    help={
        "images": _IMAGES,
        "offline": "ask no network: every file has to be in the cache, in --from or in a mirror's folder",
        "from": "a folder that `fetch --to` has filled, or another mirror, to look into first",
        "json": _JSON,
    },
)
@_command
def build(context: Context, images: str, offline: bool = False, from_: str = "", json: bool = False) -> None:
    """
    Build images, all in one graph, and compare what is installed in them with what was declared.

    ./bake build pytorch-cpu
    ./bake build mpi-cpu 'pytorch-*-cpu'
    ./bake build pytorch-cpu --offline --from /media/disk
    """
    from bakehouse.cli import workflow

    workspace = open_workspace()
    print(tables.warnings(workspace, _patterns(images)), end="", file=sys.stderr)
    wishes = workflow.Wishes(json=json, offline=offline, source=from_)
    built = workflow.build_images(workspace, _patterns(images), _say, wishes)
    print(tables.built_table(built), end="")


@task(
    positional=["images"],
    help={
        "images": "names or globs",
        "store": "build again on an engine that keeps images so: overlay2, containerd; both",
    },
)
@_command
def reproduce(context: Context, images: str, store: str = "overlay2,containerd") -> None:
    """
    Build images a second time, on an engine of its own under another clock, and name the files that differ.

    ./bake reproduce pytorch-cpu
    ./bake reproduce mpi-cpu --store overlay2
    """
    from bakehouse.analysis import compare
    from bakehouse.cli import reproduce as reproducing

    found = reproducing.reproduce(open_workspace(), _patterns(images), _say, _patterns(store))
    print(compare.table(found), end="")
    reproducing.require_same(found)


@task(
    name="size-report",
    positional=["images"],
    help={
        "images": "names or globs; of a glob, those that are built",
        "top": "how many folders, copies and shared layers to tell",
        "against": "`release` for the image's last release, or another image: what differs, part by part",
        "json": "one object, for programs",
    },
)
@_command
def size_report(context: Context, images: str, top: int = 15, against: str = "", json: bool = False) -> None:
    """
    Tell where the bytes of built images lie: parts, layers, folders, copies, and what several images share.

    ./bake size-report pytorch-cpu
    ./bake size-report pytorch-cpu --against mpi-cpu
    ./bake size-report '*' --json
    """
    from bakehouse.cli import size_report as size_reporting

    told = size_reporting.run(open_workspace(), _patterns(images), _say, top=top, against=against, json=json)
    print(told, end="")


@task(
    positional=["images"],
    help={
        "images": _IMAGES,
        "real": "fetch every Python package of the locks, also those of more than 20 MB",
        "json": _JSON,
    },
)
@_command
def rehearse(context: Context, images: str, real: bool = False, json: bool = False) -> None:
    """
    Execute every step of images, with stand-ins for what can't be had here: rehearsed, not built.

    ./bake rehearse pytorch-2.10-cu128-py312-efa
    ./bake rehearse '*-smp2'
    """
    from bakehouse.cli import workflow

    wishes = workflow.Wishes(json=json, real=real)
    outcome = workflow.rehearse_images(open_workspace(), _patterns(images), _say, wishes)
    print(tables.rehearsal_table(outcome.rehearsed), end="")
    outcome.require_all()


@task(
    positional=["images"],
    help={
        "images": _IMAGES,
        "check": "only checks of this name, `a,b` for several",
        "gpus": "GPUs to hand to the containers; the ranks then talk through NCCL",
        "timeout": "seconds for each check, instead of its own deadline",
        "image-uri": "try what was pulled under this address: a candidate that another machine published",
        "report": "also write what was seen into this file, for `promote` on another machine",
    },
)
@_command
def smoke(
    context: Context,
    images: str,
    check: str = "",
    gpus: int = 0,
    timeout: int = 0,
    image_uri: str = "",
    report: str = "",
) -> None:
    """
    Try images as SageMaker would start them: checks of the parts, ranks on one host, a job of two hosts.

    ./bake smoke pytorch-cpu
    ./bake smoke mpi-cpu --check mpi_2x2
    ./bake smoke pytorch-cu130 --gpus 8 --image-uri HOST/bakehouse/pytorch-cu130@sha256:... --report seen.json
    """
    from bakehouse.cli import workflow

    workspace, patterns = open_workspace(), _patterns(images)
    wishes = workflow.Wishes(
        only=tuple(_patterns(check)),
        gpus=gpus,
        deadline=float(timeout) or None,
        report=Path(report) if report else None,
    )
    if image_uri:
        tried = [workflow.pulled_image(workspace, images, image_uri, _say)]
    else:
        tried = [*workflow.built_images(workspace, patterns, _say)]
    print(tables.smoke_table(workflow.smoke_images(workspace, tried, _say, wishes)), end="")


@task(
    name="run",
    positional=["image"],
    auto_shortflags=False,
    iterable=["group", "cpus", "hyperparameter", "channel", "environment", "kill", "cut"],
    help={
        "image": "an image of a recipe, or any that the engine has",
        "source-dir": "the folder of the training code; without it, the code that the image holds",
        "entry-point": "the script, a path below --source-dir",
        "hosts": "hosts of one type",
        "instance-type": "what the hosts are told they are, such as ml.p4d.24xlarge",
        "group": "hosts of a heterogeneous cluster, `name=type:count`; repeatable",
        "command": "what every host runs instead of the toolkit, the code at /opt/ml/code",
        "distribution": "as the estimator's or ModelTrainer's, JSON or a file that holds it",
        "sdk": "where version 3 of the SageMaker SDK is installed, for ModelTrainer's `Torchrun` and `MPI`",
        "hyperparameter": "`name=value`; repeatable",
        "channel": "`name=folder`, to be read at /opt/ml/input/data/<name>; repeatable",
        "processes": "ranks on each host; 0 is what the distribution says, else one for each GPU, else one",
        "environment": "`NAME=value`; repeatable",
        "gpus": "GPUs of this machine for each host, none of them for two",
        "cpus": "`group=cores` that each of its hosts may use; repeatable",
        "memory": "what each host may use, such as 2g",
        "timeout": "seconds until the job is stopped, as MaxRuntimeInSeconds",
        "stop-after": "seconds until it is stopped, as StopTrainingJob does: SIGTERM, then SIGKILL",
        "stop-grace": "seconds between the two",
        "kill": "`algo-2@10s`: a host that dies; repeatable",
        "cut": "`data,dnn@10s`: groups or hosts between which no packet passes any more; repeatable",
        "netem": "delay and loss on every host's network, such as 'delay 100ms loss 1%'",
        "volume-size": "what /opt/ml/model, output and checkpoints of a host hold each, such as 1g",
        "seed": "deals hosts to groups as an earlier run did",
        "json": "the report as one object on standard output",
        "verbose": "also what the toolkit prints of its environment; it is in the logs anyway",
    },
)
@_command
def run_training_job(
    context: Context,
    image: str,
    group: list[str],
    cpus: list[str],
    hyperparameter: list[str],
    channel: list[str],
    environment: list[str],
    kill: list[str],
    cut: list[str],
    source_dir: str = "",
    entry_point: str = "",
    hosts: int = 0,
    instance_type: str = "",
    command: str = "",
    distribution: str = "",
    sdk: str = "",
    processes: int = 0,
    gpus: int = 0,
    memory: str = "",
    timeout: int = 3600,
    stop_after: int = 0,
    stop_grace: int = 120,
    netem: str = "",
    volume_size: str = "",
    seed: int = 0,
    json: bool = False,
    verbose: bool = False,
) -> None:
    """
    Run a training job on this machine as SageMaker runs it, and tell what SageMaker would have said.

    ./bake run pytorch-cpu --source-dir src --entry-point train.py --hosts 2
    ./bake run tensorflow-cpu --source-dir src --entry-point train.py
        --group data=ml.c5.18xlarge:2 --group dnn=ml.p4d.24xlarge:1
    ./bake run mpi-cpu --source-dir src --entry-point train.py --hosts 2 --kill algo-2@10s
    """
    from bakehouse.cli import job_options, workflow
    from bakehouse.cluster import job_report, log_stream
    from bakehouse.sagemaker.local_job import RunRequest

    workspace = open_workspace()
    request = RunRequest(
        groups=job_options.cluster(group, hosts, instance_type, cpus, gpus),
        source_dir=job_options.code(source_dir, entry_point, command),
        entry_point=entry_point,
        command=job_options.command(command, entry_point),
        distribution=job_options.distribution(distribution),
        sdk=job_options.sdk(sdk),
        processes_per_host=processes,
        hyperparameters=job_options.hyperparameters(hyperparameter),
        environment=job_options.environment(environment),
        channels=job_options.channels(channel),
        memory=job_options.size(memory, "--memory"),
        deadline=float(timeout),
        stop_after=float(stop_after) if stop_after else None,
        stop_grace=float(stop_grace),
        kills=job_options.kills(kill),
        partitions=job_options.cuts(cut),
        netem=netem,
        volume_bytes=job_options.size(volume_size, "--volume-size"),
        seed=seed or None,
    )
    listen = functools.partial(
        log_stream.open_log_stream, write=_say, colour=terminal.in_colour(sys.stderr), verbose=verbose
    )
    found = workflow.run_job(workspace, image, request, _say, listen)
    print(job_report.as_json(found) if json else job_report.text(found), end="")
    if not found.passed:
        raise Exit(code=SmokeError.exit_code)


@task(
    iterable=["helper", "price", "step_seconds"],
    auto_shortflags=False,
    help={
        "instance": "the type that trains",
        "gpus": "how many GPUs the job has in all; none: those of one instance",
        "vcpu_per_gpu": "how many vCPUs keep one GPU busy",
        "helper": "a type without GPUs to add, instead of c5; several times for several",
        "price": "TYPE=NUMBER for an hour; also [tool.bakehouse.prices]",
        "step_seconds": "seconds of a step as measured; of a mix: `ml.p4d.24xlarge+2*ml.c5.18xlarge=1`",
        "batch": "examples that one replica takes in a step",
    },
)
@_command
def size(
    context: Context,
    instance: str,
    vcpu_per_gpu: float = 0.0,
    gpus: int = 0,
    helper: list[str] | None = None,
    price: list[str] | None = None,
    step_seconds: list[str] | None = None,
    batch: int = 0,
) -> None:
    """
    Which instances keep the GPUs busy: a larger type of the family, or others that preprocess the data.

    ./bake size ml.p4d.24xlarge --gpus 8 --vcpu-per-gpu 20
    ./bake size ml.p4d.24xlarge --vcpu-per-gpu 20 --helper ml.c5.18xlarge --step-seconds 0.192
    """
    from bakehouse.catalog.instance_types import find_instance, instances
    from bakehouse.sagemaker import sizing

    workspace = open_workspace()
    known = instances(workspace.catalog)
    need = sizing.Need(gpus or find_instance(known, instance).gpus or 0, vcpu_per_gpu, batch)
    prices = {**workspace.project.prices, **sizing.read_numbers(price or (), "--price")}
    seconds = sizing.read_numbers(step_seconds or (), "--step-seconds", is_named=False)
    print(sizing.text(sizing.size(need, instance, known, helper or (), prices, seconds)), end="")


@task(
    positional=["images"],
    help={
        "images": _IMAGES,
        "to": "where to, instead of the project's registry: `local`, `ecr`, HOST/PREFIX, one of the settings",
        "create": "make an ECR repository that is not there",
        "stage": "publish candidates, tested or not: `promote` releases them",
        "attest": _ATTEST,
        "deadline": "seconds after which nothing is tried any more; 0 is six hours",
        "scan": "wait for Amazon ECR's scan first; findings of --severity keep an image from being released",
        "severity": "CRITICAL, HIGH (the default), MEDIUM, LOW, INFORMATIONAL or UNDEFINED; asks for a scan",
    },
)
@_command
def push(
    context: Context,
    images: str,
    to: str = "",
    create: bool = False,
    stage: bool = False,
    attest: bool = False,
    scan: bool = False,
    severity: str = "",
    deadline: float = 0.0,
) -> None:
    """
    Push images that passed what has to be passed, and write them into images/<image>/releases.json.

    ./bake push pytorch-cpu
    ./bake push pytorch-cpu --to 123456789012.dkr.ecr.eu-west-1.amazonaws.com/team --create
    ./bake push pytorch-cu130 --stage
    """
    from bakehouse.cli import workflow
    from bakehouse.publish import ecr_scan
    from bakehouse.publish.publish import PublishOptions
    from bakehouse.registry import destination

    workspace = open_workspace()
    destination.check(workspace.project, to)
    level = ecr_scan.level(severity, is_asked=scan)
    terms = PublishOptions(
        registry=to, create=create, candidate=stage, attest=attest, fail_on=level, deadline=deadline
    )
    wishes = workflow.Wishes(terms=terms)
    built = workflow.built_images(workspace, _patterns(images), _say)
    print(tables.uris(workflow.push_images(workspace, built, _say, wishes)), end="")


@task(
    positional=["image"],
    iterable=["report"],
    help={
        "image": "one image",
        "registry": "only candidates in this registry: `local`, `ecr` or an address",
        "image-uri": "the candidate at this address, instead of the newest",
        "report": "what `smoke --report` wrote on another machine; repeatable",
        "alias": "let the tag that is the image's name move to it",
        "scan": "wait for Amazon ECR's scan first; findings of --severity keep an image from being released",
        "severity": "CRITICAL, HIGH (the default), MEDIUM, LOW, INFORMATIONAL or UNDEFINED; asks for a scan",
    },
)
@_command
def promote(
    context: Context,
    image: str,
    report: list[str],
    registry: str = "",
    image_uri: str = "",
    alias: bool = False,
    scan: bool = False,
    severity: str = "",
) -> None:
    """
    Release an image's newest candidate: the same digest gets its release tag. Needs no engine.

    ./bake promote pytorch-cu130 --report seen.json
    ./bake promote pytorch-cpu --alias
    """
    from bakehouse.cli import workflow
    from bakehouse.publish import ecr_scan
    from bakehouse.publish.publish import PublishOptions

    level = ecr_scan.level(severity, is_asked=scan)
    reports = tuple(Path(file) for file in report)
    terms = PublishOptions(
        registry=registry, move_tag=alias, image_uri=image_uri, reports=reports, fail_on=level
    )
    wishes = workflow.Wishes(terms=terms)
    print(tables.uris([workflow.promote_image(open_workspace(), image, _say, wishes)]), end="")


@task(
    positional=["image"],
    auto_shortflags=False,
    help={
        "image": "one image, or `pytorch` or `tensorflow` for the best that fits",
        "registry": "only releases in this registry: `local`, `ecr` or an address",
        "region": "only releases in this region of AWS",
        "version": "of the framework, or its first numbers",
        "py-version": "such as py311",
        "instance-type": "what it has to run on, such as ml.p4d.24xlarge",
        "candidate": "the newest candidate instead, to be tried elsewhere",
    },
)
@_command
def uri(
    context: Context,
    image: str,
    registry: str = "",
    region: str = "",
    version: str = "",
    py_version: str = "",
    instance_type: str = "",
    candidate: bool = False,
) -> None:
    """
    Print the digest-pinned image_uri of an image's newest release.

    ./bake uri pytorch-cpu
    ./bake uri pytorch --version 2.9 --instance-type ml.p4d.24xlarge --region eu-west-1
    """
    from bakehouse.catalog import project
    from bakehouse.catalog.instance_gpus import find_gpus
    from bakehouse.publish import image_uris

    if candidate:
        instance = find_gpus(instance_type) if instance_type else None
        wanted = image_uris.ImageQuery(region, version, py_version, registry, instance)
        print(image_uris.candidate(project.images_folder(Path.cwd()), image, wanted).image_uri)
        return
    print(
        image_uris.retrieve(
            image,
            region=region or None,
            version=version or None,
            py_version=py_version or None,
            instance_type=instance_type or None,
            registry=registry or None,
        )
    )


@task(
    positional=["images"],
    help={
        "images": "names or globs of images; none means all",
        "verify": "ask the registries for each digest and its tags, and fail where one is missing",
        "json": "the records as they stand in the ledger",
    },
)
@_command
def releases(context: Context, images: str, verify: bool = False, json: bool = False) -> None:
    """
    List what was published: releases and candidates, with their tags, digests and commits.

    ./bake releases
    ./bake releases 'pytorch-*' --verify
    """
    from bakehouse.publish import publish
    from bakehouse.publish import verify as verification
    from bakehouse.publish.ledger import open_ledger, select_images
    from bakehouse.publish.releases import text_of

    project = open_workspace().project
    ledger = open_ledger(project)
    records = [record for name in select_images(ledger, _patterns(images)) for record in ledger.records(name)]
    print(text_of(records) if json else tables.released(records), end="")
    if verify:
        verified = publish.verify(project, records, _say)
        _say(f"{sum(not one.missing for one in verified)} of {len(verified)} are as the ledger says")
        verification.require_all(verified)


_JOB_HELP = {
    "image": "one image, or `pytorch` or `tensorflow` for the best that fits the instance type",
    "instance-type": "such as ml.p4d.24xlarge",
    "instance-count": "hosts of the job",
    "group": "`name=type:count`, in place of one type and count; repeatable",
    "launcher": "torchrun, mpirun or tensorflow",
    "distribution": "in place of a launcher, as the estimator's or ModelTrainer's, JSON or a file",
    "entry-point": "the script to send along",
    "source-dir": "the folder that is sent along, and holds the script; or an archive in S3",
    "processes-per-host": "ranks on each host, for `mpirun`",
    "hyperparameter": "`name=value`; repeatable",
    "environment": "`NAME=value`; repeatable",
    "keep-alive": "seconds that the instances are kept for the next job",
}
_JOB_LISTS = ["group", "hyperparameter", "environment"]


def _asked_job(
    group: list[str], hyperparameter: list[str], environment: list[str], distribution: str, **others: Any
) -> "JobSpec":
    """The job that `estimator` and `launch` are told of."""
    from bakehouse.cli import job_options
    from bakehouse.sagemaker import job_spec

    return job_spec.job_spec_from_options(
        groups=job_options.named_groups(group),
        hyperparameters=job_options.hyperparameters(hyperparameter),
        environment=job_options.environment(environment),
        distribution=job_options.distribution(distribution),
        **others,
    )


@task(
    positional=["image"],
    auto_shortflags=False,
    iterable=_JOB_LISTS,
    help={
        **_JOB_HELP,
        "sdk": "v2, v3 or boto3: what the code is for",
        "role": "the execution role's ARN, where the code doesn't run within SageMaker",
        "region": "only a release in this region of AWS, under its address there",
    },
)
@_command
def estimator(
    context: Context,
    image: str,
    group: list[str],
    hyperparameter: list[str],
    environment: list[str],
    sdk: str = "v2",
    instance_type: str = "",
    instance_count: int = 0,
    launcher: str = "",
    distribution: str = "",
    entry_point: str = "train.py",
    source_dir: str = "",
    role: str = "",
    processes_per_host: int = 0,
    keep_alive: int = 0,
    region: str = "",
) -> None:
    """
    Print Python code that starts a SageMaker training job with an image's newest release.

    What is wrong with the job is told before: it is not printed then.

    ./bake estimator pytorch-cpu
    ./bake estimator pytorch-cu130 --instance-type ml.p4d.24xlarge --instance-count 4 --sdk v3
    ./bake estimator mpi-cpu --group data=ml.c5.18xlarge:2 --group train=ml.c5.2xlarge:1 \\
        --distribution '{"mpi": {"enabled": true}, "instance_groups": ["train"]}'
    """
    from bakehouse.catalog.instance_gpus import find_gpus
    from bakehouse.publish import image_uris
    from bakehouse.sagemaker import snippets

    workspace = open_workspace()
    is_framework = bool(instance_type) and image in image_uris.FRAMEWORKS
    wanted = image_uris.ImageQuery(region=region, instance=find_gpus(instance_type) if is_framework else None)
    record = image_uris.find(workspace.project.images, image, wanted)
    job = _asked_job(
        group,
        hyperparameter,
        environment,
        distribution,
        sdk=sdk,
        entry_point=entry_point,
        source_dir=source_dir,
        role=role,
        instance_type=instance_type,
        instance_count=instance_count,
        launcher=launcher,
        processes_per_host=processes_per_host,
        keep_alive=keep_alive,
    )
    found = snippets.snippet(record, job, workspace.catalog)
    diagnostics.write_warnings((one.diagnostic for one in found.warnings), sys.stderr)
    print(found.code, end="")


def _telling(verbose: bool) -> "JobCallbacks":
    from bakehouse.sagemaker.launch import JobCallbacks

    return JobCallbacks(
        report=_say,
        output=_say,
        warn=lambda one: diagnostics.write_warnings([one.diagnostic], sys.stderr),
        colour=terminal.in_colour(sys.stderr),
        verbose=verbose,
    )


def _end_job(found: "LaunchReport") -> None:
    """Tell how a job on SageMaker ended, and exit as it did."""
    from bakehouse.sagemaker import launch_report

    print(launch_report.text(found), end="", flush=True)
    if found.exit_code:
        raise Exit(code=found.exit_code)


_FOLLOW_HELP = {
    "stop-on-interrupt": "Ctrl-C stops the job, and doesn't only end this",
    "verbose": "also what the toolkit prints of its environment",
}


@task(
    positional=["image"],
    auto_shortflags=False,
    iterable=[*_JOB_LISTS, "input"],
    help={
        **_JOB_HELP,
        **_FOLLOW_HELP,
        "role": "the ARN of the execution role that the job runs as",
        "input": "`name=s3://bucket/data`, a channel of the job; repeatable",
        "output": "where in S3 the model goes, and the code; else the bucket that SageMaker's SDK uses",
        "job-name": "instead of one of the image and the time",
        "max-run": "seconds until SageMaker stops the job",
        "volume-size": "the disk of each host, such as 100g",
        "region": "where the job runs, and the image is; without it, where the newest release is",
        "detach": "only send it",
    },
)
@_command
def launch(
    context: Context,
    image: str,
    group: list[str],
    hyperparameter: list[str],
    environment: list[str],
    input: list[str],
    role: str = "",
    instance_type: str = "",
    instance_count: int = 0,
    launcher: str = "",
    distribution: str = "",
    entry_point: str = "train.py",
    source_dir: str = "",
    processes_per_host: int = 0,
    keep_alive: int = 0,
    output: str = "",
    job_name: str = "",
    max_run: int = 86400,
    volume_size: str = "30g",
    region: str = "",
    detach: bool = False,
    stop_on_interrupt: bool = False,
    verbose: bool = False,
) -> None:
    """
    Send a training job with an image's newest release to SageMaker, and follow it to its end.

    What is wrong with the job is told before: nothing is sent then. Ctrl-C leaves the job alone.

    ./bake launch pytorch-cpu --role arn:aws:iam::123456789012:role/SageMakerRole \\
        --instance-type ml.c5.2xlarge --instance-count 2 --source-dir src --entry-point train.py
    """
    from bakehouse.cli import job_options
    from bakehouse.sagemaker import launch as launching

    job = _asked_job(
        group,
        hyperparameter,
        environment,
        distribution,
        sdk="boto3",
        entry_point=entry_point,
        source_dir=source_dir,
        role=role,
        instance_type=instance_type,
        instance_count=instance_count or (0 if group else 1),
        launcher=launcher,
        processes_per_host=processes_per_host,
        keep_alive=keep_alive,
    )
    wanted = launching.LaunchRequest(
        image,
        job,
        name=job_name,
        region=region,
        inputs=job_options.inputs(input),
        output=output,
        max_run=max_run,
        volume_gib=-(-(job_options.size(volume_size, "--volume-size") or 0) // 2**30),
        detach=detach,
        stop_on_interrupt=stop_on_interrupt,
    )
    _end_job(launching.launch(open_workspace(), wanted, _telling(verbose)))


@task(
    positional=["job"],
    auto_shortflags=False,
    help={**_FOLLOW_HELP, "job": "the name of a training job", "region": "where it was sent"},
)
@_command
def follow(
    context: Context, job: str, region: str = "", stop_on_interrupt: bool = False, verbose: bool = False
) -> None:
    """
    Follow a training job on SageMaker that was sent before, from its first line to its end.

    ./bake follow pytorch-cpu-2026-11-20-09-41-12-345 --region eu-west-1
    """
    from bakehouse.sagemaker import launch as launching

    workspace = open_workspace()
    where = region or launching.default_region(workspace)
    _end_job(
        launching.follow_job(workspace, job, where, _telling(verbose), stop_on_interrupt=stop_on_interrupt)
    )


@task(
    positional=["images"],
    help={
        "images": _IMAGES,
        "to": "where to, instead of the project's registry: `local`, `ecr`, HOST/PREFIX, one of the settings",
        "create": "make an ECR repository that is not there",
        "scan": "wait for Amazon ECR's scan first; findings of --severity keep an image from being released",
        "severity": "CRITICAL, HIGH (the default), MEDIUM, LOW, INFORMATIONAL or UNDEFINED; asks for a scan",
        "gpus": "GPUs to hand to the smoke tests",
        "attest": _ATTEST,
        "deadline": "seconds that pushing may take; 0 is six hours",
        "json": _JSON,
    },
)
@_command
def release(
    context: Context,
    images: str,
    to: str = "",
    create: bool = False,
    attest: bool = False,
    scan: bool = False,
    severity: str = "",
    gpus: int = 0,
    deadline: float = 0.0,
    json: bool = False,
) -> None:
    """
    Build images, smoke-test those that were not tested yet, and push them.

    ./bake release pytorch-cpu
    ./bake release 'pytorch-*-cpu' --to team
    """
    from bakehouse.cli import workflow
    from bakehouse.publish import ecr_scan
    from bakehouse.publish.publish import PublishOptions

    level = ecr_scan.level(severity, is_asked=scan)
    terms = PublishOptions(registry=to, create=create, attest=attest, fail_on=level, deadline=deadline)
    wishes = workflow.Wishes(json=json, gpus=gpus, terms=terms)
    print(tables.uris(workflow.release_images(open_workspace(), _patterns(images), _say, wishes)), end="")


@task
@_command
def demo(context: Context) -> None:
    """
    Run the main job: pytorch-cpu from its recipe to an address, and tell how the time was spent.

    ./bake demo
    """
    from bakehouse.cli import demo as main_job

    print(main_job.run(open_workspace(), _say), end="")


@task(help={"pure": "only the tests that need no engine"})
@_command
def test(context: Context, pure: bool = False) -> None:  # noqa: PT028 (a task, not a test)
    """
    Run ruff, mypy and the tests; those that need an engine get one.

    ./bake test
    ./bake test --pure
    """
    from bakehouse.cli import selftest

    selftest.run(_say, pure=pure)


@task
@_command
def doctor(context: Context) -> None:
    """
    Tell what this machine has for building, testing and pushing, and what each lack costs you.

    ./bake doctor
    """
    from bakehouse.cli import doctor as examination
    from bakehouse.registry import ecr

    project = open_workspace().project
    findings = examination.examine(
        project.root, ecr.EcrRegistry(region=project.region).principal, ca=project.ca
    )
    print(examination.text(findings), end="")


@task(
    positional=["images"],
    help={
        "images": "images and components to lock, with --upgrade also packages of Debian; none means all",
        "upgrade": "lock them anew, as the newest that fits",
        "check": "change nothing: tell what is not locked, and what is newer than its lock",
    },
)
@_command
def lock(context: Context, images: str, upgrade: bool = False, check: bool = False) -> None:
    """
    Write down each file that a build takes: packages of Python and of Debian, checksums that were `unknown`.

    ./bake lock
    ./bake lock pytorch-cu130
    ./bake lock --check
    ./bake lock pytorch --upgrade
    ./bake lock --upgrade openssh-server
    """
    from bakehouse.build.progress import Progress
    from bakehouse.lock import drift
    from bakehouse.lock import lock as locking

    with Progress.on(sys.stderr) as progress:
        if check:
            found = locking.check(Path.cwd(), _patterns(images), progress.report, progress)
        else:
            lines = locking.run(Path.cwd(), _patterns(images), progress.report, progress, upgrade=upgrade)
    if check:
        print(drift.table(found), end="")
        locking.require_locked(found)
    else:
        print("".join(f"{line}\n" for line in lines), end="")


@task(
    help={
        "all": "also images, bases and everything below build/",
        "cache": "also the files that were fetched for builds, of all projects",
    }
)
@_command
def clean(context: Context, all: bool = False, cache: bool = False) -> None:
    """
    Remove what Bakehouse left in the engine: containers and networks of dead runs, images of older recipes.

    ./bake clean
    ./bake clean --all
    ./bake clean --cache
    """
    from bakehouse.cli import clean as cleaning

    print(cleaning.run(open_workspace(), _say, everything=all, cache=cache), end="")
