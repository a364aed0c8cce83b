"""Tasks that render, download and build images."""

import sys

from bakehouse.cli.tasks.declare import (
    ALL,
    BUILDER,
    IMAGES,
    JSON,
    JSON_BUILD,
    Context,
    bake_task,
    confirmed,
    failures,
    open_project,
    report,
    report_fallback,
    select_images,
    show,
    split,
)


@bake_task(
    "images",
    help={
        "images": "names, families or globs of images; default: those rendered below images/",
        "check": "write nothing; fail with a diff if files are stale",
    },
)
def render(context: Context, images: str, check: bool = False) -> None:
    """
    Write the Dockerfiles and bake files of images below images/.

    Without IMAGE, `render` updates the images of the project's own recipes and every image already
    rendered. The setting `commit` of the project selects some of its own.

    bake render
    bake render --check
    bake render 'pytorch-2.10-*'
    """
    from bakehouse.pipeline import render as rendering
    from bakehouse.plan.workspace import select_kept

    selection = select_kept(open_project(images), split(images))
    if check:
        show(rendering.check(selection, report))
    else:
        show(rendering.summary(selection, rendering.write(selection, report)))


@bake_task(
    "images",
    help={
        "images": f"{IMAGES}; also bases that Bakehouse makes, such as debian-12",
        "offline": "use no network: every file must be in the cache, in --from or in a mirror directory",
        "from": "a directory filled by `--download-only --to`, or another mirror, to search first",
        "builder": BUILDER,
        "download-only": "download the files that the images are built from, and build nothing",
        "to": "with --download-only, the directory to download to, which can be a mirror; default: the cache",
        "all": ALL,
        "json": JSON_BUILD,
    },
)
def build(
    context: Context,
    images: str,
    offline: bool = False,
    from_: str = "",
    builder: str = "",
    download_only: bool = False,
    to: str = "",
    all: bool = False,
    json: bool = False,
) -> None:
    """
    Build images as one graph and compare installed with declared versions.

    It makes the bases that they need from Debian packages. Name a base for a plain `docker build`.

    bake build pytorch-cpu
    bake build mpi-cpu 'pytorch-*-cpu'
    bake build pytorch-cpu --offline --from /media/disk
    bake build pytorch-cpu --builder build-farm
    bake build debian-12
    bake build '*' --download-only --to /media/disk
    """
    from bakehouse.builder.build_context import BuildOptions
    from bakehouse.cli import download, json_report, tables
    from bakehouse.errors import UsageError
    from bakehouse.pipeline import build as pipeline
    from bakehouse.plan.workspace import select

    if to and not download_only:
        raise UsageError("`--to` needs `--download-only`")
    if download_only:
        show(download.run(confirmed(select_images(images), images, all=all), report, sys.stderr, to))
        return
    options = BuildOptions(from_, offline, tuple(split(builder)))
    workspace, words = open_project(images), split(images)
    bases = pipeline.named_bases(workspace, words)
    patterns = [word for word in words if word not in bases]
    selection = confirmed(select(workspace, patterns), images, all=all) if patterns or not bases else None
    pipeline.make_bases(workspace.project, bases, report, options)
    built = pipeline.build(selection, report, options, json=json) if selection else ()
    show(json_report.built(built, bases) if json else tables.built_table(built, bases))


@bake_task(
    "images",
    help={"images": "names, families or globs of images; of a glob, only those that are built", "json": JSON},
)
def sizes(context: Context, images: str, json: bool = False) -> None:
    """
    Show where the bytes of built images are.

    Lists have at most 15 items without --verbose.

    bake sizes pytorch-cpu
    bake sizes pytorch-cpu mpi-cpu
    bake sizes '*' --json
    """
    from bakehouse.cli import size_report

    show(size_report.run(select_images(images), report, json=json))


@bake_task(
    "images",
    help={
        "images": "images and components, with --upgrade also Debian packages; default: the project's own",
        "upgrade": "lock the newest versions that fit",
        "check": "change nothing; report what is not locked and what is newer than its lock",
        "json": "print the report of --check as JSON",
    },
)
def lock(
    context: Context, images: str, upgrade: bool = False, check: bool = False, json: bool = False
) -> None:
    """
    Record the files of a build: packages, unknown checksums and digests.

    bake lock
    bake lock pytorch-cu130
    bake lock --check
    bake lock pytorch --upgrade
    bake lock --upgrade openssh-server
    """
    from pathlib import Path

    from bakehouse.builder.progress import Progress
    from bakehouse.catalog import project
    from bakehouse.cli import json_report
    from bakehouse.errors import BakehouseError
    from bakehouse.lock import drift, locking

    report_fallback(project.find(Path.cwd()))
    if check:
        with Progress.on(sys.stderr) as progress:
            differences = locking.check_locks(Path.cwd(), split(images), progress.report, progress, failures)
        show(json_report.drift(differences) if json else drift.table(differences))
        locking.require_locked(differences)
        return
    changes: list[str] = []
    try:
        with Progress.on(sys.stderr) as progress:
            scope = locking.LockScope(upgrade)
            names = split(images)
            lines = locking.run(Path.cwd(), names, progress.report, progress, failures, changes, scope)
    except BakehouseError:
        # These files were changed, even if a later step failed
        show("".join(f"{line}\n" for line in changes))
        raise
    show("".join(f"{line}\n" for line in lines))
