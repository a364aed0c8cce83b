"""Answers `would this fit?`: what the command line asks for, in an image or on any base of the catalogue."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.component import DRIVER, INSTANCE, Component, Requirement
from bakehouse.catalog.recipe import Content, Recipe, Targets, check_instance, is_driver
from bakehouse.catalog.spec_reader import requirement
from bakehouse.errors import ConflictError, Diagnostic, Location, Problems, Table, UsageError
from bakehouse.resolve import conflict_report
from bakehouse.resolve.alternatives import EFFORT, Alternative, Alternatives, AlternativeSearch
from bakehouse.resolve.candidate import Conflict
from bakehouse.resolve.explain import describe_changes
from bakehouse.resolve.phrases import requirement_text
from bakehouse.resolve.relaxation import COMMAND
from bakehouse.resolve.resolver import Resolution
from bakehouse.util.suggest import suggestion
from bakehouse.util.yaml_reader import Scalar

CALLS = 300
"""How often the resolver is asked for combinations that do fit."""
CALLS_FOR_EACH = 60
"""The same for each of several images."""
_MOST = 5
_MOST_SEARCHED = 40
_WORD = re.compile(r"(?P<name>[A-Za-z0-9_-]+)(?P<sign>[=<>!~]?)(?P<rest>.*)", re.DOTALL)


_NO_TARGETS = Targets()


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What `--assume` asks for."""

    parts: tuple[Requirement, ...] = ()
    variants: tuple[tuple[str, Scalar], ...] = ()
    targets: Targets = _NO_TARGETS

    def __str__(self) -> str:
        told = [requirement_text(one) for one in self.parts]
        told += [f"variant {glob.text} of {name}" for name, glob in self.variants]
        told += [one.text for one in self.targets.instances]
        told += [f"driver {one.text}" for one in [self.targets.driver] if one]
        return f"{', '.join(told[:-1])} and {told[-1]}" if len(told) > 1 else told[0]


def parse_assumptions(words: Sequence[str], catalog: Catalog) -> Assumptions:
    """`name=versions`, `name>=version`, `name=variant` or `instance=type`, each with its place.

    Raises UsageError with every mistake.
    """
    problems = Problems()
    found = Assumptions()
    for word in words:
        match = _WORD.fullmatch(word)
        place = Location(Path(f"--assume {word}"), COMMAND, COMMAND)
        if match is None:
            problems.add(
                Diagnostic(
                    f"`{word}` names nothing to ask about",
                    place,
                    hint="write `name=versions`, such as `cuda=12.4`",
                )
            )
            continue
        text = (
            match["rest"]
            if match["sign"] == "=" and match["rest"][:1] != "="
            else match["sign"] + match["rest"]
        )
        found = _with(found, Scalar(match["name"], place), Scalar(text or "*", place), catalog, problems)
    problems.raise_as(UsageError)
    return found


def _with(
    found: Assumptions, name: Scalar, value: Scalar, catalog: Catalog, problems: Problems
) -> Assumptions:
    targets = found.targets
    if name.text == INSTANCE:
        check_instance(value, catalog, problems)
        return replace(found, targets=replace(targets, instances=(*targets.instances, value)))
    if name.text == DRIVER:
        is_driver(value, problems)
        return replace(found, targets=replace(targets, driver=value))
    if name.text not in catalog.provided_names:
        hint = (
            suggestion(name.text, catalog.provided_names) or "components are folders under recipes/components"
        )
        problems.add(Diagnostic(f"unknown component `{name.text}`", name.location, hint=hint))
    elif names := _variants(name.text, value.text, catalog):
        if not any(fnmatchcase(one, value.text) for one in names):
            message = f"no variant of {name.text} is called `{value.text}`"
            problems.add(Diagnostic(message, value.location, hint=suggestion(value.text, names)))
        return replace(found, variants=(*found.variants, (name.text, value)))
    elif one := requirement(name, value, problems):
        return replace(found, parts=(*found.parts, one))
    return found


def _variants(name: str, value: str, catalog: Catalog) -> tuple[str, ...]:
    """The variants that a value such as `cu128-*` is about; none for a range of versions."""
    component = catalog.components.get(name)
    if component is None or not value[:1].isalpha():
        return ()
    found = (one.name for release in component.releases for one in release.variants)
    return tuple(dict.fromkeys(name for name in found if name))


def with_assumptions(recipe: Recipe, wanted: Assumptions, catalog: Catalog) -> Recipe:
    """A recipe with wishes in the place of what it says about the same names."""
    base = recipe.base
    names = {one.name for one in wanted.parts}
    variants = {name: glob for name, glob in recipe.variants.items() if name not in names}
    for one in wanted.parts:
        if (component := catalog.components.get(one.name)) and component.is_base:
            base = one
    kept = tuple(one for one in recipe.components if one.name not in names)
    targets = wanted.targets
    for name, glob in _for_gpus(wanted, catalog):
        variants.setdefault(name, glob)
    return replace(
        recipe,
        base=base,
        components=(*kept, *(one for one in wanted.parts if one is not base)),
        variants={**variants, **dict(wanted.variants)},
        targets=Targets(
            targets.instances or recipe.targets.instances, targets.driver or recipe.targets.driver
        ),
    )


def _for_gpus(wanted: Assumptions, catalog: Catalog) -> Iterator[tuple[str, Scalar]]:
    """Who asks for CUDA does not mean a framework's build for CPUs."""
    cuda = next((one.location for one in wanted.parts if one.name == "cuda"), None)
    for component in (catalog.components.get(one.name) for one in wanted.parts):
        if cuda is None or component is None or component.is_base:
            continue
        builds = [one for release in component.releases for one in release.variants]
        prefixes = {one.name[:2] for one in builds if one.spec.gpu}
        others = {one.name[:2] for one in builds if not one.spec.gpu}
        if len(prefixes) == 1 and others and not prefixes & others:
            yield component.name, Scalar(f"{prefixes.pop()}*", cuda)


def resolve_assuming(recipe: Recipe, wanted: Assumptions, catalog: Catalog) -> Resolution:
    """An image as it would be with the wishes. Raises ConflictError with what is nearest."""
    search = AlternativeSearch(with_assumptions(recipe, wanted, catalog), catalog, CALLS)
    found = search.attempt({})
    if isinstance(found, Resolution):
        return found
    assert found
    message = f"image `{recipe.name}` does not fit with {wanted}"
    raise _error(message, found, search, catalog, search.nearest(_MOST), wanted, f"{recipe.name} ")


@dataclass(frozen=True, slots=True)
class ImageFit:
    """Whether assumptions fit an image."""

    image: str
    fits: bool
    changes: str = ""
    """The fewest changes with which they would fit; empty if none is known."""


def summarize_images(
    recipes: Sequence[Recipe], wanted: Assumptions, catalog: Catalog
) -> tuple[ImageFit, ...]:
    """Return for each image whether the assumptions fit, or the fewest changes with which they would."""
    fits = []
    for number, recipe in enumerate(recipes):
        search = AlternativeSearch(with_assumptions(recipe, wanted, catalog), catalog, CALLS_FOR_EACH)
        if isinstance(search.attempt({}), Resolution):
            fits.append(ImageFit(recipe.name, fits=True))
            continue
        nearest = search.nearest(1).combinations if number < _MOST_SEARCHED else ()
        fits.append(
            ImageFit(recipe.name, fits=False, changes=describe_changes(nearest[0]) if nearest else "")
        )
    return tuple(fits)


def resolve_on_bases(wanted: Assumptions, catalog: Catalog) -> tuple[Resolution, ...]:
    """What satisfies the wishes, on each base that can; the one that brings least first.

    Raises ConflictError where none can, with what is nearest.
    """
    bases = sorted((one for one in catalog.components.values() if one.is_base), key=_weight)
    named = {one.name for one in wanted.parts}
    bases = [one for one in bases if one.name in named] or bases
    recipes = [with_assumptions(_nothing_on(base, wanted), wanted, catalog) for base in bases]
    calls, effort = CALLS // len(bases), EFFORT // len(bases)
    searches = [AlternativeSearch(recipe, catalog, calls, effort=effort) for recipe in recipes]
    found = [(search, search.attempt({})) for search in searches]
    fitting = tuple(one for _, one in found if isinstance(one, Resolution))
    if fitting:
        return tuple(sorted(fitting, key=lambda one: not uses_gpus(one)))
    tried = [
        (search, conflict, search.nearest(_MOST))
        for search, conflict in found
        if isinstance(conflict, Conflict)
    ]
    search, conflict, _ = min(tried, key=lambda one: _first_rank(one[2]))
    ways: list[Alternative] = []
    for way in sorted((way for _, _, each in tried for way in each.combinations), key=lambda way: way.rank):
        if not any(_is_part_of(one, way) for one in ways):
            ways.append(way)
    is_cut, calls = any(one.is_cut for _, _, one in tried), sum(one.calls for _, _, one in tried)
    message = f"nothing in the catalogue has {wanted} together"
    raise _error(
        message, conflict, search, catalog, Alternatives(tuple(ways[:_MOST]), is_cut, calls), wanted, ""
    )


def uses_gpus(resolution: Resolution) -> bool:
    """Whether a part is for GPUs, if what it has to run on has some."""
    has_gpus = any(one.provided.get("gpus", "0") != "0" for one in resolution.targets)
    return not has_gpus or any(choice.spec.gpu for choice in resolution.choices)


def _is_part_of(first: Alternative, second: Alternative) -> bool:
    """Whether another base needs all the changes of this one, or more."""
    mine, other = {one.pin for one in first.changes}, {one.pin for one in second.changes}
    return mine < other or describe_changes(first) == describe_changes(second)


def _first_rank(nearest: Alternatives) -> tuple[int, ...]:
    return min((one.rank for one in nearest.combinations), default=(99,))


def _weight(base: Component) -> tuple[int, str]:
    """How much a base brings."""
    return max(len(one.spec.provides) for release in base.releases for one in release.variants), base.name


def _nothing_on(base: Component, wanted: Assumptions) -> Recipe:
    """A recipe that asks for a base only; what it says of itself is told at the first wish."""
    spots = [*(one.location for one in wanted.parts), *(one.location for _, one in wanted.variants)]
    nowhere = (*spots, Location(Path("--assume"), COMMAND, COMMAND))[0]
    return Recipe(
        name="",
        family="",
        summary="",
        status="current",
        base=Requirement(base.name, "", nowhere),
        components=(),
        variants={},
        exclude=frozenset(),
        content=Content(),
        location=nowhere,
    )


def _error(
    message: str,
    conflict: Conflict,
    search: AlternativeSearch,
    catalog: Catalog,
    nearest: Alternatives,
    wanted: Assumptions,
    image: str,
) -> ConflictError:
    smallest = conflict_report.minimal_conflict(conflict, search)
    told = conflict_report.diagnostic_with_candidates(message, smallest, catalog)
    cut = f" (the search ended after {nearest.calls} tries)" if nearest.is_cut else ""
    rows = tuple(_row(one, wanted) for one in nearest.combinations)
    title = f"nearest that fit{cut}" if rows else f"nothing near fits{cut}"
    hint = ""
    if nearest.combinations and (command := _command(nearest.combinations[0], wanted)):
        hint = f"`./bake resolve {image}{command}` shows the first one whole"
    return ConflictError(replace(told, tables=(*told.tables, Table(title, rows)), hint=hint))


def _row(one: Alternative, wanted: Assumptions) -> tuple[str, ...]:
    count = len(one.changes)
    return f"{count} change{'s' if count > 1 else ''}", describe_changes(one), ", ".join(_result(one, wanted))


def _result(one: Alternative, wanted: Assumptions) -> Iterable[str]:
    """The base, and the parts that were asked about, as they would be."""
    found = one.resolution
    names = {requirement.name for requirement in wanted.parts} | {"python"}
    yield str(found.base.candidate)
    yield from (str(choice.candidate) for choice in found.choices if names & choice.candidate.provided.keys())


def _command(one: Alternative, wanted: Assumptions) -> str:
    """The wishes as they would fit; empty where a recipe has to change as well."""
    if not all(change.pin.is_given_by_command and change.pin.kind == "part" for change in one.changes):
        return ""
    now = {change.pin.name: change.now for change in one.changes}
    words = []
    for part in wanted.parts:
        version = now.get(part.name)
        if version is None:
            words.append(str(part.location.path))
        elif version:
            words.append(f"--assume {part.name}={version}")
    words += [str(glob.location.path) for _, glob in wanted.variants]
    words += [str(target.location.path) for target in wanted.targets.instances]
    words += [str(driver.location.path) for driver in [wanted.targets.driver] if driver]
    return " ".join(words)
