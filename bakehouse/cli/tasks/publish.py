"""Tasks that push images and look up what was published."""

from collections.abc import Iterable
from functools import partial
from pathlib import Path

from bakehouse.cli.tasks import job_arguments
from bakehouse.cli.tasks.declare import (
    ALL,
    ATTEST,
    FAIL_ON,
    IMAGES,
    JSON,
    JSON_BUILD,
    Context,
    bake_task,
    confirmed,
    open_project,
    report,
    select_images,
    show,
    split,
)
from bakehouse.errors import UsageError

_REGISTRY = "`local`, `ecr`, HOST/PREFIX or a registry of the settings; default: the project's registry"
_CREATE = "create missing ECR repositories"


@bake_task(
    "images",
    help={
        "images": IMAGES,
        "registry": _REGISTRY,
        "create": _CREATE,
        "candidate": "publish candidates, tested or not; `promote` releases them",
        "attest": ATTEST,
        "fail-on": FAIL_ON,
    },
)
def push(
    context: Context,
    images: str,
    registry: str = "",
    create: bool = False,
    candidate: bool = False,
    attest: bool = False,
    fail_on: str = "",
) -> None:
    """
    Push images that passed their required checks.

    Bakehouse records each release in images/<image>/releases.json.

    bake push pytorch-cpu
    bake push pytorch-cpu --registry 123456789012.dkr.ecr.eu-west-1.amazonaws.com/team --create
    bake push pytorch-cu130 --candidate
    """
    from bakehouse.cli import tables
    from bakehouse.pipeline import publish as pipeline
    from bakehouse.publish import ecr_scan
    from bakehouse.publish.options import PublishOptions

    level = ecr_scan.level(fail_on)
    options = PublishOptions(
        registry=registry, create=create, candidate=candidate, attest=attest, fail_on=level
    )
    show(tables.uris(pipeline.push(select_images(images), report, options)))


@bake_task(
    "image",
    iterable=["report_"],
    help={
        "image": "one image; with --registry, also a glob",
        "image-uri": "promote the candidate with this URI, or copy only the release with it",
        "registry": "copy releases to this registry: `local`, `ecr`, HOST/PREFIX or one of the settings",
        "create": _CREATE,
        "report": "results that `smoke --report` wrote on another machine; repeatable",
        "rollback": "make this earlier release the latest again: its image URI, tag, or digest",
        "move-tag": "move the tag that is the image's name to this release",
        "fail-on": FAIL_ON,
    },
)
def promote(
    context: Context,
    image: str,
    report_: list[str],
    image_uri: str = "",
    registry: str = "",
    create: bool = False,
    rollback: str = "",
    move_tag: bool = False,
    fail_on: str = "",
) -> None:
    """
    Release an image's newest candidate by giving its digest a release tag.

    `promote` needs no engine. With `--rollback`, look-ups return an earlier release again, and an existing
    tag with the image's name moves to it. With `--registry`, releases are copied there with their
    attached documents, and recorded in the ledger.

    bake promote pytorch-cu130 --report results.json
    bake promote pytorch-cpu --move-tag
    bake promote pytorch-cpu --rollback sha256:4f1c09d2a7be
    bake promote '*' --registry team
    """
    from bakehouse.catalog.project import find
    from bakehouse.cli import tables
    from bakehouse.pipeline import publish as pipeline
    from bakehouse.publish import ecr_scan
    from bakehouse.publish.options import PublishOptions
    from bakehouse.publish.release_copy import copy_releases
    from bakehouse.publish.rollback import roll_back

    if registry:
        if rollback or report_ or fail_on or move_tag:
            raise UsageError(
                "`--registry` can only be combined with `--image-uri` and `--create`",
                hint="the other options are for candidates and roll-backs",
            )
        options = PublishOptions(registry=registry, create=create, image_uri=image_uri)
        show(tables.uris(copy_releases(find(Path.cwd()), split(image), report, options)))
        return
    if rollback:
        if image_uri or report_ or fail_on or create:
            raise UsageError(
                "`--rollback` can only be combined with `--move-tag`",
                hint="the other options are for candidates",
            )
        options = PublishOptions(move_tag=move_tag)
        show(tables.uris(roll_back(find(Path.cwd()), image, rollback, report, options)))
        return

    options = PublishOptions(
        create=create,
        move_tag=move_tag,
        image_uri=image_uri,
        reports=tuple(Path(file) for file in report_),
        fail_on=ecr_scan.level(fail_on),
    )
    show(tables.uris([pipeline.promote(select_images(image), report, options)]))


@bake_task(
    "images",
    help={
        "images": IMAGES,
        "registry": _REGISTRY,
        "create": _CREATE,
        "fail-on": FAIL_ON,
        "gpus": "number of GPUs for the smoke tests, or some as `device=0,2`",
        "attest": ATTEST,
        "all": ALL,
        "json": JSON_BUILD,
    },
)
def release(
    context: Context,
    images: str,
    registry: str = "",
    create: bool = False,
    attest: bool = False,
    fail_on: str = "",
    gpus: str = "",
    all: bool = False,
    json: bool = False,
) -> None:
    """
    Build images, smoke-test those not tested yet, and push them.

    bake release pytorch-cpu
    bake release 'pytorch-*-cpu' --registry team
    """
    from dataclasses import asdict

    from bakehouse.cli import tables
    from bakehouse.pipeline import publish as pipeline
    from bakehouse.pipeline.smoke import SmokeOptions
    from bakehouse.publish import ecr_scan
    from bakehouse.publish.options import PublishOptions

    level = ecr_scan.level(fail_on)
    options = PublishOptions(registry=registry, create=create, attest=attest, fail_on=level)
    smoke = SmokeOptions(gpus=job_arguments.gpu_ids(gpus))
    selection = confirmed(select_images(images), images, all=all)
    records = pipeline.release(selection, report, options, smoke, json=json)
    show([asdict(record) for record in records] if json else tables.uris(records))


@bake_task(
    "images",
    help={
        "images": IMAGES,
        "verify": "check each digest and its tags in the registries; fail if one is missing",
        "notes": "print the newest release of each image as Markdown, with its changes",
        "json": JSON,
    },
)
def releases(
    context: Context, images: str, verify: bool = False, notes: bool = False, json: bool = False
) -> None:
    """
    List published releases and candidates with their tags, digests and commits.

    bake releases
    bake releases 'pytorch-*' --verify
    bake releases pytorch-cpu --notes
    """
    from bakehouse.catalog.project import find
    from bakehouse.cli import json_report, tables
    from bakehouse.ledger.releases import clock_warning
    from bakehouse.ledger.store import open_ledger, select_images
    from bakehouse.plan.diff import changes_between
    from bakehouse.plan.workspace import conflict_text
    from bakehouse.publish.verify import require_all, verify_releases

    project = find(Path.cwd())
    ledger = open_ledger(project)
    names = select_images(ledger, split(images))
    records = [record for name in names for record in ledger.records(name)]
    if not records:
        report("nothing is published yet; `bake release IMAGE` builds, tests and pushes an image")
    for warning in dict.fromkeys(filter(None, map(clock_warning, records))):
        report(warning)
    if notes:
        between = partial(changes_between, project, conflict_text)
        show("".join(tables.release_notes(ledger.records(name), between) for name in names))
    else:
        show(json_report.releases(records) if json else tables.released(records))
    if verify:
        verified = verify_releases(project, records, report)
        report(f"{sum(not result.missing for result in verified)} of {len(verified)} match the ledger")
        require_all(verified)


@bake_task(
    "image",
    help={
        "image": "one image, or `pytorch` or `tensorflow` for the best that fits",
        "registry": "instead of the project's registry: `local`, `ecr`, a host or one of the settings",
        "region": "only releases in this AWS region",
        "version": "framework version, or its first numbers",
        "py-version": "Python version, such as py311",
        "instance-type": "instance type that the image must support, such as ml.p4d.24xlarge",
        "candidate": "the newest candidate, for a test on another machine",
        "built": "the URI that the built image will have in the registry",
    },
)
def uri(
    context: Context,
    image: str,
    registry: str = "",
    region: str = "",
    version: str = "",
    py_version: str = "",
    instance_type: str = "",
    candidate: bool = False,
    built: bool = False,
) -> None:
    """
    Print the image URI, by digest, of an image's newest release.

    bake uri pytorch-cpu
    bake uri pytorch --version 2.10 --instance-type ml.p4d.24xlarge --region eu-west-1
    bake uri pytorch-cpu --built
    """
    from bakehouse.catalog.instance_gpus import find_gpus
    from bakehouse.ledger import image_uris
    from bakehouse.ledger.releases import clock_warning

    if built:
        if region or version or py_version or instance_type or candidate:
            raise UsageError(
                "`--built` can only be combined with `--registry`", hint="the other options select a release"
            )
        from bakehouse.pipeline.publish import built_uris

        show("".join(f"{uri}\n" for uri in built_uris(select_images(image), report, registry)))
        return
    instance = find_gpus(instance_type) if instance_type else None

    def names() -> Iterable[str]:
        # Most look-ups find a release
        from bakehouse.plan.workspace import image_names

        return image_names(open_project(image), image)

    with image_uris.open_images(None, image) as images:
        project = image_uris.owner(images)
        if registry and project:
            from bakehouse.registry.destination import check_known

            check_known(project, registry.partition("/")[0])
        query = image_uris.ImageQuery(region, version, py_version, registry, instance, project)
        if candidate:
            record = image_uris.candidate(images, image, query)
        else:
            record = image_uris.find(images, image, query, names)
    if warning := clock_warning(record):
        report(warning)
    if record.tested_on_gpus is False:
        report(f"warning: {record.image} is for GPUs, but this release was tested without GPUs")
    show(f"{record.image_uri}\n")
