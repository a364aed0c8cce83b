"""Tasks that render, download and build images."""

import sys

from bakehouse.cli.tasks.declare import (
    BUILD_CACHE,
    BUILDER,
    IMAGES,
    JSON,
    JSON_BUILD,
    Context,
    bake_task,
    failures,
    open_project,
    report,
    report_fallback,
    select_images,
    show,
    split,
)
from bakehouse.errors import UsageError


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
    show((rendering.check if check else rendering.write)(selection, report))


@bake_task("images", help={"images": IMAGES, "to": "download into this directory; it can serve as a mirror"})
def fetch(context: Context, images: str, to: str = "") -> None:
    """
    Download the files that images are built from, into the cache or a directory.

    bake fetch pytorch-cpu
    bake fetch '*' --to /media/disk
    """
    from bakehouse.cli import fetch as download

    show(download.run(select_images(images), report, sys.stderr, to))


@bake_task("name", help={"name": "a base that Bakehouse makes, such as debian-12"})
def base(context: Context, name: str) -> None:
    """
    Make a base image from Debian packages, unless the engine has it.

    `build` makes the bases that it needs. A plain `docker build` needs this first.

    bake base debian-12
    """
    from bakehouse.pipeline.build import make_base

    show(f"{make_base(open_project(), name, report).reference}\n")


@bake_task(
    "images",
    help={
        "images": IMAGES,
        "offline": "use no network: every file must be in the cache, in --from or in a mirror directory",
        "from": "a directory filled by `fetch --to`, or another mirror, to search first",
        "builder": BUILDER,
        "build-cache": BUILD_CACHE,
        "json": JSON_BUILD,
    },
)
def build(
    context: Context,
    images: str,
    offline: bool = False,
    from_: str = "",
    builder: str = "",
    build_cache: str = "",
    json: bool = False,
) -> None:
    """
    Build images as one graph and compare installed with declared versions.

    bake build pytorch-cpu
    bake build mpi-cpu 'pytorch-*-cpu'
    bake build pytorch-cpu --offline --from /media/disk
    bake build pytorch-cpu --builder build-farm
    """
    from bakehouse.builder.build_context import BuildOptions
    from bakehouse.cli import json_report, tables
    from bakehouse.pipeline import build as pipeline

    options = BuildOptions(from_, offline, tuple(split(builder)), build_cache)
    built = pipeline.build(select_images(images), report, options, json=json)
    show(json_report.built(built) if json else tables.built_table(built))


@bake_task(
    "images",
    help={
        "images": IMAGES,
        "real-packages": "download every Python package of the locks, also those over 20 MB",
        "json": JSON_BUILD,
    },
    in_checkout=True,
)
def rehearse(context: Context, images: str, real_packages: bool = False, json: bool = False) -> None:
    """
    Run every build step of images, with stubs for files that are unavailable.

    A rehearsed image is not a build: `smoke`, `push` and `uri` refuse it.

    bake rehearse pytorch-2.10-cu128-py312-efa
    bake rehearse '*-smp2'
    """
    from bakehouse.cli import json_report, tables
    from bakehouse.maintain import rehearse as rehearsing

    outcome = rehearsing.rehearse(select_images(images), report, real_packages=real_packages, json=json)
    show(json_report.rehearsed(outcome.rehearsed) if json else tables.rehearsal_table(outcome.rehearsed))
    outcome.require_all()


@bake_task(
    "images",
    help={
        "images": "names, families or globs of images",
        "image-store": "image stores to build on again: overlay2, containerd; default: both",
        "sign": "sign that the published image was built again, equal, with `signing_key`",
        "json": JSON,
    },
    in_checkout=True,
)
def reproduce(
    context: Context,
    images: str,
    image_store: str = "overlay2,containerd",
    sign: bool = False,
    json: bool = False,
) -> None:
    """
    Build images again on a new engine and list the files that differ.

    bake reproduce pytorch-cpu
    bake reproduce mpi-cpu --image-store overlay2
    bake reproduce mpi-cpu --sign
    """
    from bakehouse.analysis import compare
    from bakehouse.cli import json_report
    from bakehouse.maintain import reproduce as reproducing
    from bakehouse.plan.workspace import select
    from bakehouse.publish.signing import require_bundler

    workspace = open_project(images)
    bundler = require_bundler(workspace.project) if sign else None
    stores = split(image_store)
    reproducing.require_stores(stores)
    if not images:
        raise UsageError("`reproduce` needs at least one image", hint="such as `bake reproduce pytorch-cpu`")
    results = reproducing.reproduce(select(workspace, split(images)), report, stores)
    show(json_report.reproductions(results) if json else compare.table(results))
    reproducing.require_same(results)
    if bundler:
        reproducing.sign(workspace, results, bundler, report)


@bake_task(
    "images",
    help={
        "images": "names, families or globs of images; of a glob, only those that are built",
        "json": JSON,
    },
)
def digest(context: Context, images: str, json: bool = False) -> None:
    """
    Show the digests that built images have in any registry.

    bake digest pytorch-cpu
    """
    from bakehouse.cli import json_report, tables
    from bakehouse.pipeline.build import manifest_digests

    digests = manifest_digests(select_images(images), report)
    show(json_report.digests(digests) if json else tables.digests(digests))


@bake_task(
    "images",
    help={
        "images": "names, families or globs of images; of a glob, only those that are built",
        "limit": "number of directories, duplicates and shared layers to list",
        "against": "`release` for the image's last release, or another image: show the differences",
        "json": JSON,
    },
)
def sizes(context: Context, images: str, limit: int = 15, against: str = "", json: bool = False) -> None:
    """
    Show where the bytes of built images are.

    bake sizes pytorch-cpu
    bake sizes pytorch-cpu --against mpi-cpu
    bake sizes '*' --json
    """
    from bakehouse.cli import size_report

    show(size_report.run(select_images(images), report, limit=limit, against=against, json=json))


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
        # These files are changed, whatever failed later
        show("".join(f"{line}\n" for line in changes))
        raise
    show("".join(f"{line}\n" for line in lines))
