"""Images as `list --json` prints them, with values that are kept for the next process.

How far an image was made is that of its committed keys, so that a list renders nothing.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from bakehouse.catalog import cache
from bakehouse.catalog.project import HOME, ProjectSettings
from bakehouse.catalog.recipe import Recipe, by_purpose
from bakehouse.catalog.support import notice_day
from bakehouse.evidence.image_state import ImageState, image_state, known_layers, state_of
from bakehouse.evidence.step_layers import check_file
from bakehouse.plan import image_keys
from bakehouse.plan.image_layer import KEY_DIGITS
from bakehouse.plan.workspace import Workspace, plan_resolutions, select_own
from bakehouse.util.files import is_file, read_text
from bakehouse.util.format import format_count, format_table
from bakehouse.util.hashing import key_of
from bakehouse.util.oci import ContentId

Json = dict[str, Any]
Facts = dict[str, tuple[Json, bool]]
"""Values that follow from the recipe of each image, and whether versions satisfy it."""


def report(workspace: Workspace, recipes: Sequence[Recipe]) -> list[Json]:
    """Return the images of recipes as JSON values."""
    project, facts = workspace.project, _kept_facts(workspace, recipes)
    possible = [recipe for recipe in recipes if facts[recipe.name][1]]
    states = image_states(workspace, possible)
    tested = _tested(workspace, possible)
    return [
        {
            **facts[recipe.name][0],
            "committed": project.commits(recipe.name),
            "run": states[recipe.name].level.value if recipe.name in states else None,
            "tested": tested.get(recipe.name) or None,
            "reproducible": not states[recipe.name].differ if recipe.name in states else None,
        }
        for recipe in recipes
    ]


def _kept_facts(workspace: Workspace, recipes: Sequence[Recipe]) -> Facts:
    if not workspace.kept or len(recipes) != len(workspace.recipes):
        return _facts(workspace, recipes)
    settings = (workspace.kept.digest, str(workspace.project.region))
    return cache.derived("images", settings, lambda: _facts(workspace, recipes), _below(workspace.project))


def _tested(workspace: Workspace, recipes: Sequence[Recipe]) -> dict[str, str]:
    """Return the results of checks of images that may have some, as text; only these are planned."""
    project, layers = workspace.project, known_layers(workspace.project)
    committed = project.images / "checks.txt"
    text = read_text(committed, errors="replace") if is_file(committed) else ""
    named = {line.partition(" ")[0] for line in text.splitlines()}
    keys = image_keys.read(project.images) if layers else {}
    own = {recipe.name for recipe in select_own(workspace).recipes} if layers else ()
    kept: dict[str, list[str]] = {}
    for recipe in recipes:
        known = keys.get(recipe.name)
        rows = layers.get((known.key[:KEY_DIGITS], recipe.platform), ()) if known else ()
        paths = [check_file(project.state, ContentId(row.digest)) for row in rows]
        results = [read_text(path, errors="replace") for path in paths if is_file(path)]
        # The key of an own image without a committed one is that of the plan
        if results or (rows and recipe.name in named) or (not known and recipe.name in own):
            kept[recipe.name] = results

    def compute() -> dict[str, str]:
        from bakehouse.evidence import page_rows
        from bakehouse.pipeline.image_docs import resolved

        checks = page_rows.read(project)
        resolutions = [*filter(None, (resolved(workspace.recipes[name], workspace) for name in kept))]
        return {
            image.name: page_rows.page_checks(project, image, layers, checks, committed=False).summary
            for image in plan_resolutions(workspace, resolutions).images
        }

    if not kept:
        return {}
    if not workspace.kept:
        return compute()
    inputs = key_of(text, kept, sorted(map(repr, layers.items())))
    settings = (workspace.kept.digest, str(project.region), inputs)
    return cache.derived("tested", settings, compute, [*_below(project), project.state / "checks"])


def _below(project: ProjectSettings) -> list[Path]:
    """Return the directories that plans depend on, apart from recipes and components."""
    locks = (root / name for root in project.recipe_roots for name in ("apt", "bases"))
    return [HOME / "templates", *locks]


def listing(
    workspace: Workspace, recipes: Sequence[Recipe], differ: Collection[str] = (), *, archive: bool
) -> str:
    """Format a line for each image: the own ones, those of Bakehouse by purpose, and its archive if asked.

    Those in `differ` are not reproducible.
    """
    facts, day = _kept_facts(workspace, recipes), notice_day()
    archived = [recipe for recipe in recipes if facts[recipe.name][0]["archived"]]
    others = by_purpose(recipe for recipe in recipes if recipe not in archived)
    groups = {"": others.pop("", []), **others, "Archive, without claims": archived if archive else []}
    lines = {}
    for recipe in recipes:
        marks = [*_marks(facts[recipe.name][0], day), *["not reproducible"] * (recipe.name in differ)]
        lines[recipe.name] = recipe.summary + (f" ({'; '.join(marks)})" if marks else "")
    table = iter(
        format_table(
            row
            for group in groups.values()
            for row in ((recipe.name, lines[recipe.name]) for recipe in group)
        ).splitlines(keepends=True)
    )
    parts = [
        (title and f"{title}:\n") + "".join(islice(table, len(group)))
        for title, group in groups.items()
        if group
    ]
    if archived and not archive:
        parts.append(f"{format_count(len(archived), 'more image')} in the archive: `bake list --all`\n")
    return "\n".join(parts)


def _marks(facts: Json, day: str) -> Iterator[str]:
    """Yield the facts against an image, in a few words."""
    if any(warning["component"] for warning in facts["warnings"]):
        yield "known problem"
    if facts["not_pinned"]:
        yield "not pinned"
    for end in facts["support"]:
        if end["until"] and end["until"] < day[: len(end["until"])]:
            yield f"{end['name']} {end['version']} supported until {end['until']}"


def image_states(workspace: Workspace, recipes: Sequence[Recipe]) -> dict[str, ImageState]:
    """Return the states of images by their committed keys; own images without them are planned."""
    rows = known_layers(workspace.project)
    keys = image_keys.read(workspace.project.images) if rows else {}
    states = {recipe.name: ImageState(0) for recipe in recipes}
    for recipe in recipes:
        if known := keys.get(recipe.name):
            states[recipe.name] = image_state([known.key], known.layers, recipe.platform, rows)
    own = {recipe.name for recipe in select_own(workspace).recipes if recipe.name not in keys} if rows else ()
    if planned := [recipe for recipe in recipes if recipe.name in own]:
        from bakehouse.pipeline.image_docs import resolved

        resolutions = [*filter(None, (resolved(recipe, workspace) for recipe in planned))]
        images = plan_resolutions(workspace, resolutions).images if resolutions else ()
        states |= {image.name: state_of(image, rows) for image in images}
    return states


def _facts(workspace: Workspace, recipes: Sequence[Recipe]) -> Facts:
    from bakehouse.cli.json_report import warnings
    from bakehouse.pipeline.image_docs import resolved
    from bakehouse.plan.known_facts import NOTHING, known_facts

    facts: Facts = {}
    for recipe in recipes:
        resolution = resolved(recipe, workspace)
        parts = [str(choice.candidate) for choice in resolution.all_choices] if resolution else []
        known = known_facts(resolution) if resolution else NOTHING
        facts[recipe.name] = (
            {
                "image": recipe.name,
                "family": recipe.family,
                "purpose": recipe.purpose or None,
                "archived": recipe.is_archived,
                "summary": recipe.summary,
                "base": parts[0] if parts else None,
                "components": parts,
                "versions": dict(sorted(resolution.versions.items())) if resolution else None,
                "warnings": warnings(resolution) if resolution else [],
                "not_pinned": list(known.unpinned),
                "support": [asdict(item) for item in known.support],
            },
            resolution is not None,
        )
    return facts
