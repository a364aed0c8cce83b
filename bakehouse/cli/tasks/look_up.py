"""Tasks that look up images and versions. They need no engine and no network."""

import contextlib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bakehouse.cli.tasks.declare import IMAGES, JSON, Context, bake_task, failures, open_project, show, split
from bakehouse.errors import BakehouseError, UsageError
from bakehouse.util.suggest import suggestion

if TYPE_CHECKING:
    from bakehouse.plan.model import Image
    from bakehouse.resolve.resolver import Resolution

_RELEASE, _CANDIDATE = "release", "candidate"


@bake_task(
    "images",
    name="list",
    help={
        "images": "names, families or globs of images; default: all",
        "all": "also the archive of Bakehouse",
        "json": JSON,
    },
)
def list_images(context: Context, images: str, all: bool = False, json: bool = False) -> None:
    """
    List the images that can be built: those of the project, and Bakehouse's by purpose.

    bake list
    bake list 'pytorch-2.10-*' --json
    """
    from bakehouse.plan.workspace import is_own, select

    patterns = split(images)
    # Only a recipe that is named must be valid.
    named = [pattern for pattern in patterns if not set("*?[") & set(pattern)]
    workspace = open_project(",".join(named) or None)
    recipes = select(workspace, patterns or ["*"], skip_broken=True).recipes
    from bakehouse.cli import listed_images, tables

    if json:
        own = [recipe for recipe in recipes if is_own(workspace, recipe.location.path)]
        show(listed_images.report(workspace, [*own, *(recipe for recipe in recipes if recipe not in own)]))
    else:
        states = listed_images.image_states(workspace, recipes)
        differ = {name for name, state in states.items() if state.differ}
        listing = listed_images.listing(workspace, recipes, differ, archive=all or bool(patterns))
        show(listing + tables.left_out(recipes, patterns))


@bake_task(
    "images",
    iterable=["assume"],
    help={
        "images": IMAGES,
        "assume": "check whether NAME=VERSIONS, NAME=VARIANT, instance=TYPE or driver=VERSION fits",
        "json": JSON,
    },
)
def resolve(context: Context, images: str, assume: list[str], json: bool = False) -> None:
    """
    Show the versions of all components, or check whether a combination fits.

    bake resolve pytorch-cpu
    bake resolve pytorch-cu130 --assume python=3.12
    bake resolve --assume cuda=12.4 --assume pytorch=2.9 --assume instance=ml.p4d.24xlarge
    """
    from bakehouse.cli import json_report, tables
    from bakehouse.plan.workspace import select
    from bakehouse.resolve import what_if

    workspace = open_project(images)
    patterns = split(images)
    if not assume:
        resolutions = select(workspace, patterns).resolutions
        text = tables.resolution_table(resolutions) + tables.left_out(workspace.recipes.values(), patterns)
        show(json_report.resolutions(resolutions) if json else text)
        return
    assumptions = what_if.parse_assumptions(assume, workspace.catalog)
    if not patterns:
        fits = what_if.resolve_on_bases(assumptions, workspace.catalog)
        answer = assumptions, fits.resolutions, fits.undecided
        show(json_report.fit(*answer) if json else tables.fit(*answer))
        return
    recipes = select(workspace, patterns).recipes
    if len(recipes) == 1:
        resolutions = (what_if.resolve_assuming(recipes[0], assumptions, workspace.catalog),)
        show(json_report.fit(assumptions, resolutions) if json else tables.fit(assumptions, resolutions))
    else:
        answers = what_if.summarize_images(recipes, assumptions, workspace.catalog)
        show(json_report.image_fits(assumptions, answers) if json else tables.image_fits(answers))


@bake_task(
    "image",
    "component",
    help={
        "image": "one image",
        "component": "a component, something a component provides, or a Python or distribution package",
        "json": JSON,
    },
)
def explain(context: Context, image: str, component: str = "", json: bool = False) -> None:
    """
    Explain why each version was chosen and what keeps newer versions out.

    bake explain pytorch-cu130
    bake explain pytorch-cu130 nccl
    bake explain pytorch-cpu numpy
    """
    from bakehouse.cli import json_report
    from bakehouse.plan import explain_package
    from bakehouse.plan.workspace import Selection, select
    from bakehouse.resolve import explain as explanation
    from bakehouse.resolve.phrases import warnings_text

    workspace = open_project(image)
    recipe = select(workspace, [image]).recipes[0]
    [resolution] = Selection(workspace, (recipe,)).resolutions
    names = explanation.explainable_names(resolution)
    if component and component not in names:
        origins = explain_package.explain_package(resolution, workspace.apt_locks, component)
        if not origins:
            names = (*names, *explain_package.package_names(resolution, workspace.apt_locks))
            raise UsageError(
                f"image `{recipe.name}` has no component or package `{component}`",
                hint=suggestion(component, names)
                or f"run `bake explain {recipe.name}` to list its components",
            )
        lines = explanation.lines_text(explain_package.report(origins))
        show(json_report.packages(recipe.name, origins) if json else lines)
        return
    explanations = (
        (explanation.explain_name(resolution, workspace.catalog, component),)
        if component
        else explanation.explain_all(resolution, workspace.catalog)
    )
    if json:
        show(json_report.explanation(resolution, explanations))
    elif component:
        show(explanation.name_report(resolution, explanations[0]) + warnings_text([resolution], component))
    else:
        show(explanation.overview(resolution, explanations) + warnings_text([resolution]))
    if not json:
        from bakehouse.jobs.distribution import keras_findings

        named = {item.name for item in explanations}
        for finding in keras_findings(resolution.version_of, named, dict(recipe.content.environment)):
            show(f"warning: {finding.message}\n  hint: {finding.hint}\n  source: {finding.rule.source}\n")


@bake_task(
    "image",
    "other",
    help={
        "image": "an image; with --from also a family or a glob, default: the project's own images",
        "other": "the image to compare it with",
        "from": "a commit: compare images with their state there",
        "to": "a commit to compare with, instead of the work tree",
        "json": JSON,
    },
)
def diff(
    context: Context, image: str = "", other: str = "", from_: str = "", to: str = "", json: bool = False
) -> None:
    """
    Compare two images, or two commits: components, packages and recipes.

    bake diff --from HEAD
    bake diff pytorch-cpu pytorch-cu130
    bake diff 'pytorch-*' --from HEAD~1
    """
    from bakehouse.catalog import git_history
    from bakehouse.cli import json_report, tables
    from bakehouse.plan import diff as comparison
    from bakehouse.plan.workspace import Selection, conflict_text, is_own, require_valid, select

    workspace = open_project(",".join(filter(None, (image, other))))
    if bool(other) == bool(from_):
        raise UsageError(
            "`diff` compares with another image or with a commit",
            hint="name a second image, or a commit with `--from`",
        )
    if other:
        recipes = [select(workspace, [name]).recipes[0] for name in (image, other)]
        before, after = (Selection(workspace, (recipe,)).resolutions[0] for recipe in recipes)
        locks = workspace.apt_locks
        if json:
            show(json_report.comparison(before, after, (locks, locks)))
        else:
            show(tables.comparison(before, after, locks))
        return
    require_valid(workspace, split(image))
    with contextlib.ExitStack() as stack:
        past = partial(git_history.past, workspace.project, image=image or "*", refusal_of=conflict_text)
        old = stack.enter_context(past(from_))
        new = stack.enter_context(past(to)) if to else workspace
        if image:
            names = comparison.names_at(old, new, image)
        else:
            both = (*old.recipes.values(), *new.recipes.values())
            own = (recipe for recipe in both if is_own(workspace, recipe.location.path))
            selected = {recipe.name for recipe in (*own, *select(workspace, []).recipes)}
            names = tuple(sorted(selected))
        unread = {**old.unread, **(new.unread if isinstance(new, git_history.Past) else {})}
        history = comparison.history(old, new, names, unread)
        show(json_report.history(history) if json else comparison.history_text(history))


@bake_task("images", help={"images": IMAGES, "json": JSON})
def outdated(context: Context, images: str, json: bool = False) -> None:
    """
    List components with newer releases and what holds each back.

    bake outdated
    bake outdated pytorch-cpu
    """
    from bakehouse.cli import json_report, tables
    from bakehouse.plan import known_facts
    from bakehouse.plan.workspace import Selection, select
    from bakehouse.resolve import outdated as comparison

    workspace = open_project(images)
    selection = select(workspace, split(images))
    if not images:
        shown = (recipe for recipe in selection.recipes if not recipe.is_archived)
        selection = Selection(workspace, tuple(shown))
    resolutions = selection.resolutions
    if not json and len(resolutions) > tables.FEW:
        show(tables.outdated_counts(resolutions, comparison.count_outdated(resolutions, workspace.catalog)))
        show(known_facts.ending(resolutions))
        return
    components = {
        resolution.recipe.name: comparison.find_outdated(resolution, workspace.catalog)
        for resolution in resolutions
    }
    if json:
        show(json_report.outdated_components(components))
    else:
        show("\n".join(comparison.table(*item) for item in components.items()))
        show(known_facts.ending(resolutions))


@bake_task(
    "images",
    help={
        "images": IMAGES,
        "from": "a commit: only images whose build key differs from the one committed there",
        "missing": "only images whose build key has no `release`, or no release and no `candidate`",
        "shard": "only one of several shares of equal work, such as 2/4",
        "names": "print only the names of the images, one on each line",
        "json": JSON,
    },
)
def plan(
    context: Context,
    images: str,
    from_: str = "",
    missing: str = "",
    shard: str = "",
    names: bool = False,
    json: bool = False,
) -> None:
    """
    Show the stages of images by build key and the images that share them.

    bake plan
    bake plan pytorch-cpu --json
    bake plan --from origin/main --names
    bake plan --missing release --shard 2/4 --names
    """
    from bakehouse.cli import json_report, tables
    from bakehouse.plan import affected
    from bakehouse.plan.model import Plan
    from bakehouse.plan.workspace import select

    if missing not in ("", _RELEASE, _CANDIDATE):
        raise UsageError(f"invalid value `--missing {missing}`", hint=f"use `{_RELEASE}` or `{_CANDIDATE}`")
    share = affected.parse_shard(shard) if shard else (1, 1)
    workspace = open_project(images)
    selected = select(workspace, split(images)).plan.images
    change: affected.ChangedImages | None = None
    if from_ and names:
        selected = affected.changed_since(workspace.project, selected, from_)
    elif from_:
        change = affected.compare(workspace, selected, from_)
        selected = change.images
    # Before the ledger is read: the shares must not change while other jobs publish theirs.
    selected = affected.shard(selected, *share)
    if missing:
        from bakehouse.ledger.store import open_ledger, unreleased_images

        has_candidates = missing == _CANDIDATE
        project = workspace.project
        selected = unreleased_images(project, open_ledger(project), selected, candidates=has_candidates)
    planned = Plan(selected)
    if names:
        show("".join(f"{image.name}\n" for image in planned.images))
    else:
        show(json_report.plan(planned, change) if json else tables.plan_table(planned, change))


@bake_task(
    "images",
    name="report",
    help={
        "images": IMAGES,
        "to": "directory or s3:// URL to write the page to; default: build/report",
        "from": "a commit: also show what changed since then",
    },
)
def fleet_report(context: Context, images: str, to: str = "", from_: str = "") -> None:
    """
    Write one static page about the fleet, for a browser.

    It shows each image's progress, versions with their reasons, tests, releases, bytes and the last builds.

    bake report
    bake report '*' --to public
    bake report --to s3://our-bucket/report
    bake report --from v1.2
    """
    from bakehouse.commands.report import output, page
    from bakehouse.commands.report.fleet import read_fleet

    workspace = open_project(images)
    html = page.render(read_fleet(workspace, split(images), from_))
    destination = to or str(workspace.project.output / "report")
    show(f"{output.write(html, destination, workspace.project.region)}\n")


@bake_task(
    "images",
    help={"images": IMAGES, "sarif": "also write the findings to this file, as SARIF for CI systems"},
)
def lint(context: Context, images: str, sarif: str = "") -> None:
    """
    Check settings, recipes, components and locks, and report all mistakes.

    It also searches the files that recipes copy for secrets.

    bake lint
    bake lint --sarif build/lint.sarif
    """
    from bakehouse.catalog.requirements_lock import is_format_1
    from bakehouse.cli import diagnostics
    from bakehouse.lock import locking
    from bakehouse.plan import known_facts
    from bakehouse.plan.unpinned import unpinned_lines
    from bakehouse.plan.workspace import left_out_lines, plan_resolutions, select
    from bakehouse.resolve.phrases import warnings_text
    from bakehouse.util.files import write_whole
    from bakehouse.util.format import format_count

    resolutions: tuple[Resolution, ...] = ()
    planned: tuple[Image, ...] = ()
    try:
        workspace = open_project(images)
        resolutions = select(workspace, split(images)).resolutions
        planned = plan_resolutions(workspace, resolutions).images
        locking.require_known_hosts(workspace, resolutions)
    except BakehouseError as error:
        failures.append(error)
    if sarif:
        write_whole(Path(sarif), diagnostics.sarif_text(failures, resolutions))
    show(warnings_text(resolutions) + known_facts.passed(resolutions))
    if not failures:
        searched = sum(len(image.content.own_files) for image in planned)
        allowed = sum(len(image.content.allowed) for image in planned)
        files = f"; searched {format_count(searched, 'file')} for secrets" if searched else ""
        files += f", allowed {format_count(allowed, 'file')}" if allowed else ""
        show(f"{format_count(len(resolutions), 'image')} without mistakes{files}\n")
        show("".join(f"{line}\n" for line in (*left_out_lines(planned), *unpinned_lines(planned))))
        locks = (each.recipe.requirements.lock for each in resolutions if each.recipe.requirements)
        show(
            "".join(
                f"`{lock.name}` has the format of Bakehouse 0.1.0; `bake lock` writes the present one\n"
                for lock in dict.fromkeys(locks)
                if is_format_1(lock)
            )
        )
