"""Tasks of a checkout of Bakehouse. The installed package contains neither them nor `bakehouse.maintain`."""

import sys

from bakehouse.cli.tasks.declare import (
    IMAGES,
    JSON,
    JSON_BUILD,
    Context,
    Exit,
    bake_task,
    open_project,
    report,
    select_images,
    show,
    split,
)
from bakehouse.errors import UsageError


@bake_task(
    help={
        "pure": "only the tests that need no engine",
        "release": "only the tests before a release: campaigns, projects, commands of the guides",
        "record": "write the seconds of slow tests to tests/seconds.json",
    }
)
def test(
    context: Context,
    pure: bool = False,  # noqa: PT028 (a task)
    release: bool = False,  # noqa: PT028
    record: bool = False,  # noqa: PT028
) -> None:
    """
    Run the linters, the type checker and the tests of Bakehouse.

    bake test
    bake test --pure
    bake test --record
    bake test --release
    """
    from bakehouse.cli import diagnostics
    from bakehouse.maintain import selftest

    summary = selftest.run(report, pure=pure, release=release, record=record)
    if summary.failed:
        error = selftest.SelfTestError("failed: " + ", ".join(summary.failed))
        # Not raised: the numbers of tests are the last line.
        diagnostics.write_failure(error, sys.stderr)
    show(summary.text())
    if summary.failed:
        raise Exit(code=selftest.SelfTestError.exit_code)


@bake_task(
    "images",
    help={
        "images": IMAGES,
        "real-packages": "download every Python package of the locks, also those over 20 MB",
        "json": JSON_BUILD,
    },
)
def rehearse(context: Context, images: str, real_packages: bool = False, json: bool = False) -> None:
    """
    Run the build steps of images that never ran, with stubs for files that are unavailable.

    A rehearsed image is not a build: `smoke`, `push` and `uri` refuse it.

    bake rehearse pytorch-2.10-cu128-py312-efa
    bake rehearse '*'
    """
    from bakehouse.maintain import rehearse as rehearsing
    from bakehouse.maintain import reports

    outcome = rehearsing.rehearse(select_images(images), report, real_packages=real_packages, json=json)
    show(reports.rehearsed(outcome.rehearsed) if json else reports.rehearsal_table(outcome.rehearsed))
    outcome.require_all()


@bake_task(
    "images",
    help={
        "images": "names, families or globs of images",
        "sign": "sign that the published image was built again, equal, with `signing_key`",
        "json": JSON,
    },
)
def reproduce(context: Context, images: str, sign: bool = False, json: bool = False) -> None:
    """
    Build images again on a new engine and list the layers that differ.

    bake reproduce pytorch-cpu
    bake reproduce mpi-cpu --sign
    """
    from bakehouse.maintain import reports
    from bakehouse.maintain import reproduce as reproducing
    from bakehouse.plan.workspace import select
    from bakehouse.publish.signing import require_bundler

    workspace = open_project(images)
    bundler = require_bundler(workspace.project) if sign else None
    if not images:
        raise UsageError("`reproduce` needs at least one image", hint="such as `bake reproduce pytorch-cpu`")
    results = reproducing.reproduce(select(workspace, split(images)), report)
    show(reports.reproductions(results) if json else reproducing.table(results))
    reproducing.require_same(results)
    if bundler:
        reproducing.sign(workspace, results, bundler, report)
