"""Selection of the images, components and packages to lock."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from bakehouse.catalog.component import Component
from bakehouse.catalog.project import HOME
from bakehouse.catalog.recipe import Recipe
from bakehouse.errors import Diagnostic, Problems, RecipeError, UsageError
from bakehouse.plan.workspace import (
    Workspace,
    is_own,
    leave_out,
    leave_out_broken,
    nearest_name,
    require_project,
    require_valid,
    selected_broken,
)


@dataclass(frozen=True, slots=True)
class LockSelection:
    """Images, components and packages to lock."""

    recipes: tuple[Recipe, ...]
    components: tuple[Component, ...]
    packages: tuple[str, ...]
    """The selected Debian packages."""
    is_all: bool
    """The selection has images or a bootstrapped base, whose Debian packages are selected as well."""


def select_locked(workspace: Workspace, patterns: Sequence[str], *, upgrade: bool = False) -> LockSelection:
    """Return the matches of names or globs; without patterns, everything that the project owns.

    Components of Bakehouse are locked only in its checkout. Raises UsageError if a pattern has no match.
    """
    if not patterns:
        require_project(workspace)
    locked = sorted({deb.name for deb in workspace.apt_locks.debs})
    recipes, components = workspace.recipes.values(), workspace.catalog.components
    own = {name for name, component in components.items() if is_own(workspace, component.location.path)}
    families = {recipe.family for recipe in recipes}
    # The packages of a project are in a lock of its own, also those on a base of Bakehouse
    bootstrapped = {name for name, component in components.items() if _is_bootstrapped(component)}
    names = {*workspace.recipes, *families, *own, *(broken.name for broken in workspace.catalog.broken)}
    problems = Problems()
    for pattern in patterns:
        if any(fnmatchcase(name, pattern) for name in names) or selected_broken(workspace, [pattern]):
            continue
        foreign = [name for name in components if fnmatchcase(name, pattern)]
        if upgrade and pattern in bootstrapped:
            continue
        if foreign:
            problems.add(_not_own(foreign[0], upgrade=upgrade))
        elif not any(fnmatchcase(name, pattern) for name in locked):
            message = f"no image, component or locked package matches `{pattern}`"
            hint = nearest_name(pattern, (*workspace.recipes, *components, *locked))
            hint = hint or "run `bake list` for the images; components are directories in recipes/components"
            problems.add(Diagnostic(message, hint=hint))
        elif not upgrade:
            message = f"`{pattern}` is a locked package, not an image or component"
            problems.add(Diagnostic(message, hint=f"run `bake lock --upgrade {pattern}` to lock it again"))
    if len(workspace.project.recipe_roots) == 1 and workspace.project.root != HOME and not problems:
        hint = "run `bake init` to create one"
        problems.add(Diagnostic("this project has no recipe directory for locks", hint=hint))
    problems.raise_as(UsageError)
    broken = [
        component
        for component in workspace.catalog.broken
        if (_matches(component.name, patterns) if patterns else is_own(workspace, component.directory))
    ]
    if broken:
        error = RecipeError.of(*(mistake for component in broken for mistake in component.mistakes))
        if {component.name for component in broken} & {*patterns}:
            raise error
        leave_out(workspace, error)
    require_valid(workspace, patterns, only_named=True)
    leave_out_broken(workspace, patterns)
    selected_recipes = tuple(
        recipe
        for recipe in recipes
        if _matches(recipe.name, patterns)
        or (recipe.family in patterns and recipe.family not in workspace.recipes)
        or (not patterns and is_own(workspace, recipe.location.path))
    )
    selected_components = tuple(
        components[name] for name in components if name in own and (not patterns or _matches(name, patterns))
    )
    packages = tuple(name for name in locked if _matches(name, patterns))
    is_all = bool(selected_recipes) or any(_matches(name, patterns or ["*"]) for name in bootstrapped)
    return LockSelection(selected_recipes, selected_components, packages, is_all)


def _not_own(component: str, *, upgrade: bool) -> Diagnostic:
    message = f"`{component}` is a component of Bakehouse, which is not changed from a project"
    hint = f"copy its directory to `components/{component}` of your recipes to lock it there"
    if upgrade:
        hint = f"install a newer Bakehouse, which may have newer packages of `{component}`, or {hint}"
    return Diagnostic(message, hint=hint)


def _is_bootstrapped(component: Component) -> bool:
    """Return whether a component is a bootstrapped base."""
    specs = [variant.spec for release in component.releases for variant in release.variants]
    return any(spec.base and spec.base.suite for spec in specs)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
