"""The tasks of `./bake`, in the pipeline's order. Each reads its words and makes one call into bakehouse.workflow."""

import functools
import sys
from collections.abc import Callable
from typing import Any

from invoke.context import Context
from invoke.exceptions import Exit
from invoke.tasks import task

from bakehouse import report, workflow
from bakehouse.errors import BakehouseError

_IMAGES = "names or globs, `a,b` or `a b`; none means all"


def _command(function: Callable[..., None]) -> Callable[..., None]:
    """Tell a failure in our words and exit with its code, also under plain `invoke`."""

    @functools.wraps(function)
    def run(*arguments: Any, **options: Any) -> None:
        try:
            function(*arguments, **options)
        except BakehouseError as error:
            report.write_failure(error, sys.stderr)
            raise Exit(code=error.exit_code) from error

    return run


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _patterns(images: str) -> list[str]:
    return [word for word in images.split(",") if word]


@task(name="list", help={"json": "one object an image, for programs"})
@_command
def list_images(context: Context, json: bool = False) -> None:
    """
    List the images that can be built, each with whom it is for.

    ./bake list
    ./bake list --json
    """
    print(workflow.listing(workflow.open_workspace(), as_json=json), end="")


@task(positional=["images"], help={"images": _IMAGES})
@_command
def resolve(context: Context, images: str) -> None:
    """
    Show the version of every part of images.

    ./bake resolve pytorch-cpu
    ./bake resolve 'pytorch-*'
    """
    workspace = workflow.open_workspace()
    recipes = workflow.select(workspace, _patterns(images))
    print(workflow.resolution_table(workflow.resolve_all(workspace, recipes)), end="")


@task(
    positional=["image"],
    help={"image": "one image", "part": "one of its parts, or what one brings; `explain a nccl` works too"},
)
@_command
def explain(context: Context, image: str, part: str = "") -> None:
    """
    Tell why each version of an image was chosen: who asked for it, and why it is not a newer one.

    ./bake explain pytorch-cu130
    ./bake explain pytorch-cu130 nccl
    """
    print(workflow.explanation(workflow.open_workspace(), image, part or None), end="")


@task(positional=["images"], help={"images": _IMAGES})
@_command
def plan(context: Context, images: str) -> None:
    """
    Show the stages of images by key, and which images share them.

    ./bake plan
    """
    workspace = workflow.open_workspace()
    print(workflow.plan_table(workflow.plan_images(workspace, _patterns(images))), end="")


@task(
    positional=["images"],
    help={"images": _IMAGES, "check": "write nothing; fail with a diff where files are stale"},
)
@_command
def render(context: Context, images: str, check: bool = False) -> None:
    """
    Write the Dockerfiles and bake files of images below images/, to be committed.

    ./bake render
    ./bake render --check
    """
    workspace = workflow.open_workspace()
    planned = workflow.plan_images(workspace, _patterns(images))
    if check:
        count = workflow.check_rendered(workspace, planned)
        print(f"{count} files of {len(planned.images)} images are up to date")
    else:
        files = workflow.render_images(workspace, planned, _say)
        print(f"{len(files)} files of {len(planned.images)} images")
