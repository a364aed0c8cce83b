"""Tasks for this machine and for Bakehouse itself."""

import sys
from collections.abc import Sequence
from pathlib import Path

from bakehouse.cli.tasks.declare import IMAGES, JSON, Context, bake_task, open_project, report, show, split


@bake_task(
    "name",
    help={
        "name": "name of the image; default: the name of the directory",
        "from-dockerfile": "propose the recipe from this Dockerfile, and account for each instruction",
        "base": "image that the catalogue lacks: ask it for its versions, and describe it as a component",
        "context": "directory of the build context; default: the nearest one with the sources of COPY",
        "target": "stage of the Dockerfile; default: the last one",
        "build-arg": "NAME=VALUE of a build argument; repeatable",
        "compare": "build the Dockerfile and the recipe, and list how the images differ",
    },
    iterable=["build_arg"],
)
def init(
    context: Context,
    name: str = "",
    from_dockerfile: str = "",
    base: str = "",
    context_: str = "",
    target: str = "",
    build_arg: Sequence[str] = (),
    compare: bool = False,
) -> None:
    """
    Make this repository a Bakehouse project: settings, a recipe, .gitignore.

    Existing files are kept. `init` only adds lines to pyproject.toml and .gitignore.

    bake init
    bake init churn
    bake init --from-dockerfile Dockerfile churn
    bake init --base registry.example/team/pytorch:2.5 churn
    """
    from bakehouse.commands.dockerfile_import import base_settings
    from bakehouse.commands.dockerfile_import import compare as comparing
    from bakehouse.commands.dockerfile_import import init as initializing
    from bakehouse.lock import base_description
    from bakehouse.plan.workspace import open_workspace, select

    def describe(image: str) -> tuple[str, str]:
        return base_description.describe(open_workspace(), image, report, lambda _: None)

    def ask(image: str) -> base_settings.BaseSettings | None:
        return base_settings.ask(image, open_workspace().project, report)

    options = initializing.build_options(context_, target, build_arg)
    if compare:
        comparing.require_allowed(from_dockerfile)
    created = initializing.run(Path.cwd(), name, from_dockerfile, base, describe, options, ask)
    try:
        initializing.prove(created, Path.cwd(), report)
        if compare and (build := created.build):
            selection = select(open_workspace(), [created.name])
            created.compared = comparing.compare(selection, build, report)
    finally:
        # The files are written, even if their requirements cannot be locked yet.
        show(created.text)


@bake_task()
def demo(context: Context) -> None:
    """
    Take pytorch-cpu from its recipe to an image URI in a local registry.

    bake demo
    """
    from bakehouse.cli import demo as main_job

    show(main_job.run(open_project(), report))


@bake_task(
    "components",
    help={
        "components": "names or globs; default: those of the project; `'*'` means all",
        "write": "add the entries and their locks to the components",
        "json": JSON,
    },
)
def update(context: Context, components: str = "", write: bool = False, json: bool = False) -> None:
    """
    Propose entries for new upstream releases of components, with their evidence.

    `update` asks package indexes and the hosts that `upstream` of each component names. An entry is proposed
    only if the catalogue can be read with it, and all images can be resolved and rendered.

    bake update
    bake update torchvision --write
    """
    from bakehouse.commands.update import update as updating

    updates = updating.run(open_project(), split(components), report, write=write)
    show(updating.as_json(updates) if json else updating.text(updates, written=write))
    updating.raise_failures(updates)


@bake_task(
    "images",
    iterable=["import_"],
    help={
        "images": IMAGES,
        "import": "a scanner's report of a published image: JSON of Trivy, Grype or ECR",
        "fix": "lock the fixed versions, and print the text of a pull request",
        "json": JSON,
    },
)
def security(
    context: Context, images: str, import_: list[str] | None = None, fix: bool = False, json: bool = False
) -> None:
    """
    List the findings of scanners, with the affected steps and images.

    It ends with exit code 14 for open findings, and with 15 if something that can be was not scanned.

    bake security pytorch-cpu --import trivy.json
    bake security --import trivy.json --import grype.json --json
    bake security --import trivy.json --fix > pull-request.md
    """
    from bakehouse.cli import diagnostics
    from bakehouse.commands.security import findings
    from bakehouse.commands.security import fix as fixing
    from bakehouse.commands.security import report as reporting
    from bakehouse.errors import UsageError
    from bakehouse.ledger.store import open_ledger
    from bakehouse.plan.workspace import select

    if json and fix:
        raise UsageError("`--fix` cannot be combined with `--json`")
    workspace = open_project(images)
    planned = select(workspace, split(images)).plan.images
    reports = [Path(name) for name in import_ or ()]
    builds_of = open_ledger(workspace.project).records
    made = reporting.make_report(workspace, planned, builds_of, reports, is_whole=not split(images))
    diagnostics.write_warnings(made.warnings, sys.stderr)
    if not fix or not made.open_findings:
        show(reporting.as_json(made) if json else reporting.text(made))
        findings.require_clean(made, hint="add `--fix` to lock the fixed versions")
        return
    result = fixing.fix(workspace, split(images), planned, made, report)
    show(fixing.message(result))
    findings.require_clean(result.remaining)


@bake_task(
    help={
        "strict": "exit with code 10 if anything is missing, such as GPUs",
        "builder": "check these builders of buildx instead of this machine",
        "json": JSON,
    }
)
def doctor(context: Context, strict: bool = False, builder: str = "", json: bool = False) -> None:
    """
    List what this machine lacks, and the features that need it.

    `doctor` asks the engine, the project's registry, AWS, mirrors and package indexes. It exits with code 10
    if something that the project needs is missing.

    bake doctor
    bake doctor --strict
    bake doctor --builder build-farm
    """
    from bakehouse.catalog import project
    from bakehouse.cli import doctor as examination
    from bakehouse.cli import json_report

    names = split(builder)
    findings = examination.examine_builders(names) if names else examination.examine(project.find(Path.cwd()))
    show(json_report.doctor(findings) if json else examination.text(findings))
    examination.require_complete(findings, strict=strict)


@bake_task("action", help={"action": "`start`, `stop` or `status`; default: `status`", "json": JSON})
def registry(context: Context, action: str = "status", json: bool = False) -> None:
    """
    Start, stop or show the local registry, which all projects of a user share.

    `push`, `release` and `demo` start it, and let it run for pulls. Only this machine can reach it.

    bake registry
    bake registry stop
    """
    from dataclasses import asdict

    from bakehouse.catalog import project
    from bakehouse.registry.destination import manage_local

    status = manage_local(project.find(Path.cwd()), action, report)
    show(asdict(status) if json else status.text)


@bake_task(
    "system",
    help={
        "system": "`github`, `gitlab` or `codebuild`",
        "check": "write nothing; fail with a diff if files are stale",
    },
)
def ci(context: Context, system: str, check: bool = False) -> None:
    """
    Write the CI pipeline of the project, from its recipes and settings.

    bake ci github
    bake ci gitlab --check
    """
    from bakehouse.commands.ci import pipeline, render
    from bakehouse.errors import UsageError
    from bakehouse.plan.workspace import select
    from bakehouse.util.format import format_count
    from bakehouse.util.suggest import suggestion

    if system not in render.SYSTEMS:
        raise UsageError(f"unknown CI system `{system}`", hint=suggestion(system, render.SYSTEMS))
    workspace = open_project("")
    project = workspace.project
    planned = select(workspace, project.ci.images if project.ci else ()).plan
    made = pipeline.make_pipeline(workspace, planned.images)
    files = render.render(system, made)
    if made.publishing is None:
        report("nothing publishes: `registry` is not a table of [tool.bakehouse.registries] with `account`")
    if check:
        render.check_files(system, files, project.root)
        show(f"{format_count(len(files), 'file')} are up to date\n")
    else:
        render.write(system, files, project.root, report)
        show(f"{format_count(len(files), 'file')} of the pipeline\n")


@bake_task(
    help={
        "all": "also images of current recipes and of deleted directories, the project's state and build/",
        "cache": "also the downloaded files and compressed layers of all projects",
        "build-cache": "also stages in the build cache of a registry that no image of the project has",
        "engine": "only the engine that Bakehouse installed on this machine, with its data; asks first",
    }
)
def clean(
    context: Context, all: bool = False, cache: bool = False, build_cache: bool = False, engine: bool = False
) -> None:
    """
    Remove containers and networks of ended runs, and images of older recipes.

    Images that another project or clone built are kept.

    bake clean
    bake clean --all
    bake clean --cache
    bake clean --build-cache
    bake clean --engine
    """
    from bakehouse.cli import clean as cleaning
    from bakehouse.engine import engine_removal, provision

    if engine:
        show(engine_removal.remove(provision.ask_at_terminal, report))
        return

    show(cleaning.run(open_project(), report, everything=all, cache=cache, build_cache=build_cache))
