"""Answers to `resolve --assume`: whether an image, or any base, fits assumptions of the command line."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from bakehouse.catalog import spec_reader
from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.component import DRIVER, INSTANCE, Component, Requirement
from bakehouse.catalog.instance_types import instances
from bakehouse.catalog.names import FRAMEWORKS
from bakehouse.catalog.recipe import Content, Recipe, Targets, check_instance, is_driver
from bakehouse.errors import ConflictError, Diagnostic, Location, Problems, Table, UndecidedError, UsageError
from bakehouse.resolve import conflict_report
from bakehouse.resolve.alternatives import (
    BUDGET,
    Alternative,
    Alternatives,
    AlternativeSearch,
    Outcome,
    Undecided,
)
from bakehouse.resolve.candidate import Candidate, Conflict
from bakehouse.resolve.direct_conflicts import direct_conflict, direct_reasons, provided_versions
from bakehouse.resolve.explain import describe_changes
from bakehouse.resolve.phrases import BUILD_AXES, requirement_text, version_range
from bakehouse.resolve.relaxation import COMMAND
from bakehouse.resolve.resolver import Resolution
from bakehouse.resolve.unknown_facts import NEURON_SDK
from bakehouse.util.format import format_count, format_names
from bakehouse.util.suggest import suggestion
from bakehouse.util.yaml_reader import Scalar

CALLS = 300
"""Calls of the resolver that look for alternatives."""
CALLS_FOR_EACH = 60
"""Calls of the resolver for each image if there are several."""
_MAX_ALTERNATIVES = 5
_MAX_SEARCHED = 40
_WORD = re.compile(r"(?P<name>[A-Za-z0-9_-]+)(?P<sign>[=<>!~]?)(?P<rest>.*)", re.DOTALL)
_NO_TARGETS = Targets()


@dataclass(frozen=True, slots=True)
class Assumptions:
    """The components, variants and targets that `--assume` names."""

    components: tuple[Requirement, ...] = ()
    variants: tuple[tuple[str, Scalar], ...] = ()
    targets: Targets = _NO_TARGETS

    @property
    def names(self) -> frozenset[str]:
        """The components that are named."""
        return frozenset(
            [*(assumed.name for assumed in self.components), *(name for name, _ in self.variants)]
        )

    def __str__(self) -> str:
        texts = [
            *map(requirement_text, self.components),
            *(f"variant {glob.text} of {name}" for name, glob in self.variants),
            *(instance.text for instance in self.targets.instances),
            *([f"driver {self.targets.driver.text}"] if self.targets.driver else []),
        ]
        return f"{', '.join(texts[:-1])} and {texts[-1]}" if len(texts) > 1 else texts[0]


def parse_assumptions(words: Sequence[str], catalog: Catalog) -> Assumptions:
    """Parse `name=versions`, `name>=version`, `name=variant` or `instance=type`, each with its location.

    Raises UsageError with all mistakes.
    """
    problems = Problems()
    assumptions = Assumptions()
    for word in words:
        match = _WORD.fullmatch(word)
        location = Location(Path(f"--assume {word}"), COMMAND, COMMAND)
        if match is None:
            message = f"`{word}` names no component"
            hint = "write `name=versions`, such as `cuda=12.4`"
            problems.add(Diagnostic(message, location, hint=hint))
            continue
        is_assigned = match["sign"] == "=" and match["rest"][:1] != "="
        text = match["rest"] if is_assigned else match["sign"] + match["rest"]
        name, value = Scalar(match["name"], location), Scalar(text or "*", location)
        assumptions = _with(assumptions, name, value, catalog, problems)
    problems.raise_as(UsageError)
    return assumptions


def _with(
    assumptions: Assumptions, name: Scalar, value: Scalar, catalog: Catalog, problems: Problems
) -> Assumptions:
    targets = assumptions.targets
    if name.text == INSTANCE:
        check_instance(value, catalog, problems)
        return replace(assumptions, targets=replace(targets, instances=(*targets.instances, value)))
    if name.text == DRIVER:
        is_driver(value, problems)
        return replace(assumptions, targets=replace(targets, driver=value))
    if name.text not in catalog.provided_names:
        hint = suggestion(name.text, catalog.provided_names)
        hint = hint or "components are directories under recipes/components"
        problems.add(Diagnostic(f"unknown component `{name.text}`", name.location, hint=hint))
    elif names := _variants(name.text, value.text, catalog):
        if not any(fnmatchcase(variant, value.text) for variant in names):
            message = f"{name.text} has no variant `{value.text}`"
            problems.add(Diagnostic(message, value.location, hint=suggestion(value.text, names)))
        return replace(assumptions, variants=(*assumptions.variants, (name.text, value)))
    elif parsed := spec_reader.requirement(name, value, problems):
        return replace(assumptions, components=(*assumptions.components, parsed))
    return assumptions


def _variants(name: str, value: str, catalog: Catalog) -> tuple[str, ...]:
    """Return the variants of a component if a value such as `cu128-*` names one, not a range of versions."""
    component = catalog.components.get(name)
    if component is None or not value[:1].isalpha():
        return ()
    names = (variant.name for release in component.releases for variant in release.variants)
    return tuple(dict.fromkeys(name for name in names if name))


def with_assumptions(recipe: Recipe, assumptions: Assumptions, catalog: Catalog) -> Recipe:
    """Return a recipe in which assumptions replace its own versions and targets; its variants stay."""
    base = recipe.base
    names = {requirement.name for requirement in assumptions.components}
    variants = dict(recipe.variants)
    present = {base.name, *(requirement.name for requirement in recipe.components)}
    added = [
        Requirement(name, "", glob.location)
        for name, glob in assumptions.variants
        if name not in {*names, *present}
    ]
    assumed_components = [*assumptions.components, *added]
    for assumed in assumed_components:
        if (component := catalog.components.get(assumed.name)) and component.is_base:
            base = assumed
    kept = (requirement for requirement in recipe.components if requirement.name not in names)
    added = [requirement for requirement in assumed_components if requirement is not base]
    targets = assumptions.targets
    cuda = next((assumed.location for assumed in assumptions.components if assumed.name == "cuda"), None)
    if cuda:
        for name, glob in _builds(names, catalog, cuda, gpu=True):
            variants.setdefault(name, glob)
    return replace(
        recipe,
        base=base,
        components=(*kept, *added),
        variants={**variants, **dict(assumptions.variants)},
        targets=Targets(
            targets.instances or recipe.targets.instances, targets.driver or recipe.targets.driver
        ),
    )


def _builds(
    names: Iterable[str], catalog: Catalog, location: Location, *, gpu: bool
) -> Iterator[tuple[str, Scalar]]:
    """Yield the variants of one kind for components that have builds for GPUs and for CPUs.

    A framework's build for CPUs answers no question about CUDA or GPUs.
    """
    for component in filter(None, map(catalog.components.get, names)):
        builds = [variant for release in component.releases for variant in release.variants]
        prefixes = {build.name[:2] for build in builds if build.spec.gpu == gpu}
        others = {build.name[:2] for build in builds if build.spec.gpu != gpu}
        if len(prefixes) == 1 and others and not prefixes & others:
            yield component.name, Scalar(f"{prefixes.pop()}*", location)


def resolve_assuming(recipe: Recipe, assumptions: Assumptions, catalog: Catalog) -> Resolution:
    """Resolve an image under assumptions.

    Raises ConflictError with the closest alternatives, and UndecidedError if the search ends first.
    """
    search = AlternativeSearch(with_assumptions(recipe, assumptions, catalog), catalog, CALLS)
    outcome = search.attempt({})
    if isinstance(outcome, Resolution):
        return outcome
    if isinstance(outcome, Undecided):
        raise UndecidedError(
            f"it is not known whether image `{recipe.name}` fits with {assumptions}",
            facts=_undecided_facts(outcome),
            hint=_undecided_hint([outcome]),
        )
    message = f"image `{recipe.name}` does not fit with {assumptions}"
    nearest = _answers(search, recipe, catalog)
    minimal = conflict_report.minimal_conflict(outcome, search)
    diagnostic = _diagnostic(message, minimal, catalog, nearest, assumptions, f"{recipe.name} ")
    direct = direct_reasons(minimal, outcome.recipe, assumptions.components, catalog)
    diagnostic = replace(diagnostic, reasons=tuple(dict.fromkeys((*direct, *diagnostic.reasons))))
    if gaps := tuple(_gaps(assumptions, catalog, recipe)):
        raise _lacking(
            diagnostic, f"it is not known whether image `{recipe.name}` fits with {assumptions}", gaps
        )
    raise ConflictError.of(diagnostic)


def _answers(search: AlternativeSearch, recipe: Recipe, catalog: Catalog) -> Alternatives:
    """Return the closest combinations, without those that only undo the question about an image."""
    nearest = search.nearest(_MAX_ALTERNATIVES)
    present = AlternativeSearch(recipe, catalog, 1).attempt({})
    current = {
        name: version
        for choice in (present.all_choices if isinstance(present, Resolution) else ())
        for name, version in choice.candidate.provided.items()
    }
    answers = (
        way
        for way in nearest.alternatives
        if not way.changes_host
        and any(
            not change.pin.is_given_by_command or change.value != current.get(change.pin.name)
            for change in way.changes
        )
    )
    return replace(nearest, alternatives=tuple(answers))


@dataclass(frozen=True, slots=True)
class ImageFit:
    """Result of a check whether assumptions fit an image."""

    image: str
    resolution: Resolution | None
    """None if they do not fit, or if this is not known."""
    changes: str = ""
    """The fewest changes with which they would fit; empty if none is known."""
    is_decided: bool = True
    """False if the search ended before the answer was known, or the catalogue lacks a version or a build."""
    lacking: str = ""
    """The version, build or fact that the catalogue lacks."""


def summarize_images(
    recipes: Sequence[Recipe], assumptions: Assumptions, catalog: Catalog
) -> tuple[ImageFit, ...]:
    """Return for each image whether the assumptions fit, or the fewest changes with which they would."""
    fits = []
    for number, recipe in enumerate(recipes):
        search = AlternativeSearch(with_assumptions(recipe, assumptions, catalog), catalog, CALLS_FOR_EACH)
        outcome = search.attempt({})
        if isinstance(outcome, Resolution):
            fits.append(ImageFit(recipe.name, outcome))
            continue
        if isinstance(outcome, Undecided):
            lacking = " and ".join(outcome.lacking)
            fits.append(ImageFit(recipe.name, None, is_decided=False, lacking=lacking))
            continue
        if gaps := " and ".join(_gaps(assumptions, catalog, recipe)):
            fits.append(ImageFit(recipe.name, None, is_decided=False, lacking=gaps))
            continue
        nearest = _answers(search, recipe, catalog).alternatives if number < _MAX_SEARCHED else ()
        changes = describe_changes(nearest[0]) if nearest else ""
        fits.append(ImageFit(recipe.name, None, changes))
    return tuple(fits)


@dataclass(frozen=True, slots=True)
class BaseFits:
    """The bases that fit assumptions, and those for which this is not known."""

    resolutions: tuple[Resolution, ...]
    """One for each base that fits; the base that provides least comes first."""
    undecided: Mapping[str, str]
    """The bases for which the answer is not known, and why."""


def fitting(assumptions: Assumptions, catalog: Catalog) -> BaseFits:
    """Resolve assumptions on each base."""
    return _base_fits(_attempts(assumptions, catalog))


def resolve_on_bases(assumptions: Assumptions, catalog: Catalog) -> BaseFits:
    """Resolve assumptions like `fitting`, on at least one base.

    Raises ConflictError with the closest alternatives if no base fits, and UndecidedError if none is known to
    fit: the search ended first, or the catalogue lacks a version or a build.
    """
    outcomes = _attempts(assumptions, catalog)
    fits = _base_fits(outcomes)
    if fits.resolutions:
        return fits
    if fits.undecided:
        undecided = [outcome for _, outcome in outcomes if isinstance(outcome, Undecided)]
        others = [search.base for search, outcome in outcomes if isinstance(outcome, Conflict)]
        raise UndecidedError(
            f"it is not known whether a base fits {assumptions}",
            facts=(
                ("not decided", ", ".join(fits.undecided)),
                *([("cannot fit", ", ".join(others))] if others else []),
                *_undecided_facts(max(undecided, key=lambda outcome: outcome.steps)),
            ),
            hint=_undecided_hint(undecided),
        )
    conflicts = [
        (search, conflict, search.nearest(_MAX_ALTERNATIVES, other_bases=False))
        for search, conflict in outcomes
        if isinstance(conflict, Conflict)
    ]
    search, conflict, _ = min(conflicts, key=lambda item: _best_rank(item[2]))
    all_nearest = (alternative for _, _, nearest in conflicts for alternative in nearest.alternatives)
    alternatives: list[Alternative] = []
    for alternative in sorted(all_nearest, key=lambda alternative: alternative.rank):
        if (
            _suits(alternative.resolution)
            and not alternative.changes_host
            and not any(_is_included(smaller, alternative) for smaller in alternatives)
        ):
            alternatives.append(alternative)
    merged = Alternatives(
        tuple(alternatives[:_MAX_ALTERNATIVES]),
        is_cut=any(nearest.is_cut for _, _, nearest in conflicts),
        calls=sum(nearest.calls for _, _, nearest in conflicts),
    )
    message = f"no base in the catalogue fits {assumptions}"
    minimal = direct_conflict(conflict.recipe, catalog) or conflict_report.minimal_conflict(conflict, search)
    diagnostic = _diagnostic(message, minimal, catalog, merged, assumptions, "")
    if gaps := tuple(_gaps(assumptions, catalog)):
        raise _lacking(diagnostic, f"it is not known whether a base fits {assumptions}", gaps)
    raise ConflictError.of(diagnostic)


def _lacking(diagnostic: Diagnostic, message: str, gaps: Iterable[str]) -> UndecidedError:
    """Return the answer that a combination may fit, with what the catalogue lacks."""
    facts = tuple(("the catalogue lacks", gap) for gap in gaps)
    return UndecidedError.of(replace(diagnostic, message=message, facts=facts))


def _gaps(assumptions: Assumptions, catalog: Catalog, recipe: Recipe | None = None) -> Iterator[str]:
    """Yield versions and builds that the catalogue does not list, of assumptions and components of a recipe.

    Others may exist, so without them a combination cannot be refused.
    """
    by_name = {assumed.name: provided_versions(assumed, catalog) for assumed in assumptions.components}
    for assumed in assumptions.components:
        if not by_name[assumed.name]:
            yield requirement_text(assumed)
    if not all(by_name.values()):
        return
    axes = [assumed for assumed in assumptions.components if assumed.name in BUILD_AXES]
    others = [item for item in (recipe.components if recipe else ()) if item.name not in by_name]
    for component in (*assumptions.components, *others):
        asked = {axis.name: by_name[axis.name] for axis in axes if axis.name != component.name}
        providers = [*catalog.components.values()]
        glob = None
        if recipe and component in others:
            # The recipe itself names this component, and maybe its variants
            providers = [catalog.components[component.name]] if component.name in catalog.components else []
            glob = recipe.variants.get(component.name)
        if _lacks_build(component, asked, providers, glob.text if glob else "*"):
            names = " and ".join(requirement_text(axis) for axis in axes if axis.name in asked)
            yield f"a build of {f'{component.name} {version_range(component)}'.strip()} for {names}"


def _lacks_build(
    assumed: Requirement, asked: Mapping[str, set[str]], providers: Iterable[Component], pattern: str
) -> bool:
    """Return whether releases have builds for several versions of some names, but none for those asked."""
    builds = [
        {axis: _versions_of_build(candidate, axis, asked[axis]) for axis in asked}
        for component in providers
        for release in component.releases
        for candidate in (Candidate(component, release, variant) for variant in release.variants)
        if assumed.name in candidate.provided and assumed.allows(candidate.provided[assumed.name])
        if candidate.variant.matches(pattern)
    ]
    values = {axis: {build[axis][0] for build in builds if build[axis][0]} for axis in asked}
    # A component without any build for a CUDA answers no question about it
    axes = [axis for axis in asked if values[axis]]
    fits = any(all(build[axis][1] for axis in axes) for build in builds)
    return not fits and any(len(values[axis]) > 1 for axis in axes)


def _versions_of_build(candidate: Candidate, axis: str, versions: set[str]) -> tuple[str, bool]:
    """Return the versions of a name that a build is for, and whether one that is asked for is among them."""
    if axis in candidate.provided:
        return candidate.provided[axis], candidate.provided[axis] in versions
    required = [item for item in candidate.spec.requires if item.name == axis]
    fits = any(all(item.allows(version) for item in required) for version in versions)
    return ",".join(item.specifier for item in required), fits and bool(required)


def _undecided_facts(outcome: Undecided) -> tuple[tuple[str, str], ...]:
    """Return what the catalogue lacks, or else where the search ended."""
    lacking = tuple(("the catalogue lacks", fact) for fact in outcome.lacking)
    return lacking or (("stopped after", f"{outcome.steps:,} tried candidates"),)


def _undecided_hint(outcomes: Sequence[Undecided]) -> str:
    """Return the components whose versions decide most, or what to do about missing facts, as a hint."""
    if all(outcome.lacking for outcome in outcomes):
        return "add the fact to the catalogue, with its source, or name another version or instance type"
    names = list(dict.fromkeys(name for outcome in outcomes for name in outcome.names))[:3]
    return f"add a version of {format_names(names, ' or ')} with `--assume`"


def _attempts(assumptions: Assumptions, catalog: Catalog) -> list[tuple[AlternativeSearch, Outcome]]:
    """Return the outcome on each base."""
    bases = sorted((component for component in catalog.components.values() if component.is_base), key=_weight)
    bases = [base for base in bases if base.name in assumptions.names] or bases
    recipes = [_recipe_on(base, assumptions, catalog) for base in bases]
    # Each base is decided with a budget of its own; only the search for alternatives shares one
    calls, budget = CALLS // len(bases), BUDGET // len(bases)
    searches = [AlternativeSearch(recipe, catalog, calls, budget=budget) for recipe in recipes]
    return [(search, search.attempt({})) for search in searches]


def _recipe_on(base: Component, assumptions: Assumptions, catalog: Catalog) -> Recipe:
    """Return the recipe of assumptions on a base, with builds for the processors of the assumed hosts."""
    recipe = with_assumptions(_only_base(base, assumptions), assumptions, catalog)
    targets = [
        instance
        for pattern in assumptions.targets.instances
        for name, instance in instances(catalog).items()
        if fnmatchcase(name, pattern.text) and instance.gpus is not None
    ]
    driver = assumptions.targets.driver
    have_gpus = {bool(instance.gpus) for instance in targets} | ({True} if driver else set())
    if len(have_gpus) != 1 or any(assumed.name == "cuda" for assumed in assumptions.components):
        return recipe
    location = (driver or assumptions.targets.instances[0]).location
    names = (base.name, *(assumed.name for assumed in assumptions.components))
    return replace(
        recipe, variants={**dict(_builds(names, catalog, location, gpu=have_gpus.pop())), **recipe.variants}
    )


def _base_fits(outcomes: Sequence[tuple[AlternativeSearch, Outcome]]) -> BaseFits:
    resolutions = [outcome for _, outcome in outcomes if isinstance(outcome, Resolution)]
    resolutions = [resolution for resolution in resolutions if _suits(resolution)] or resolutions
    resolutions = [resolution for resolution in resolutions if not _is_for_others(resolution)] or resolutions
    return BaseFits(
        tuple(resolutions),
        {
            search.base: f"the catalogue lacks {' and '.join(outcome.lacking)}"
            if outcome.lacking
            else "the search ended first"
            for search, outcome in outcomes
            if isinstance(outcome, Undecided)
            and not (resolutions and any(fact.endswith(NEURON_SDK) for fact in outcome.lacking))
        },
    )


def _is_for_others(resolution: Resolution) -> bool:
    """Return whether a base has an unasked Neuron SDK, or another framework than the one in use."""
    base, *others = (choice.candidate for choice in resolution.all_choices)
    asked = {item.name for item in resolution.recipe.components}
    added = FRAMEWORKS.keys() & {name for candidate in others for name in candidate.provided}
    is_neuron = NEURON_SDK in base.provided and NEURON_SDK not in asked
    return bool(added and FRAMEWORKS.keys() & base.provided.keys()) or (is_neuron and bool(others))


def _suits(resolution: Resolution) -> bool:
    """Return whether an image uses the accelerators that the assumed hosts have, and no others.

    A host with a driver has GPUs.
    """
    provided = [target.provided for target in resolution.targets if "gpus" in target.provided]
    has_driver = any(target.name == DRIVER for target in resolution.targets)
    specs = [choice.spec for choice in resolution.all_choices]
    uses_gpus = any(spec.gpu for spec in specs)
    uses_neuron = any(NEURON_SDK in spec.provides for spec in specs)
    return not (provided or has_driver) or (uses_gpus, uses_neuron) == (
        has_driver or any(names["gpus"] != "0" for names in provided),
        any("neuron-cores" in names for names in provided),
    )


def _is_included(first: Alternative, second: Alternative) -> bool:
    """Return whether another base needs all changes of the first alternative, or more, or larger ones."""
    shared = {change.pin: change.shared for change in first.changes}
    others = {change.pin: change.shared for change in second.changes}
    is_larger = shared.keys() == others.keys() and all(shared[pin] >= others[pin] for pin in others)
    return (
        shared.keys() < others.keys()
        or (is_larger and shared != others)
        or describe_changes(first) == describe_changes(second)
    )


def _best_rank(nearest: Alternatives) -> tuple[int, ...]:
    return min((alternative.rank for alternative in nearest.alternatives), default=(99,))


def _weight(base: Component) -> tuple[int, str]:
    """Return how many names a base provides."""
    variants = (variant for release in base.releases for variant in release.variants)
    return max(len(variant.spec.provides) for variant in variants), base.name


def _only_base(base: Component, assumptions: Assumptions) -> Recipe:
    """Return a recipe of a base alone; its errors point to the first assumption."""
    locations = [requirement.location for requirement in assumptions.components]
    locations += [glob.location for _, glob in assumptions.variants]
    location = locations[0] if locations else Location(Path("--assume"), COMMAND, COMMAND)
    return Recipe(
        name="",
        family="",
        summary="",
        base=Requirement(base.name, "", location),
        components=(),
        variants={},
        exclude=frozenset(),
        content=Content(),
        location=location,
    )


def _diagnostic(
    message: str,
    minimal: Conflict,
    catalog: Catalog,
    nearest: Alternatives,
    assumptions: Assumptions,
    image: str,
) -> Diagnostic:
    diagnostic = conflict_report.diagnostic_with_candidates(message, minimal, catalog)
    cut = f" (the search stopped after {nearest.calls} tries)" if nearest.is_cut else ""
    rows = tuple(_row(alternative, assumptions) for alternative in nearest.alternatives)
    title = f"closest combinations that fit{cut}"
    if not rows:
        title = f"no close combination is known to fit{cut}" if cut else "no close combination fits"
    hint = ""
    if nearest.alternatives and (options := _options(nearest.alternatives[0], assumptions)):
        hint = f"run `bake resolve {image}{options}` to see the first one in full"
    return replace(diagnostic, tables=(*diagnostic.tables, Table(title, rows)), hint=hint)


def _row(alternative: Alternative, assumptions: Assumptions) -> tuple[str, str, str]:
    """Return the number of changes, the changes, and the base and the assumed components that result."""
    resolution = alternative.resolution
    names = {requirement.name for requirement in assumptions.components} | {"python"}
    chosen = [
        str(choice.candidate) for choice in resolution.choices if names & choice.candidate.provided.keys()
    ]
    result = ", ".join([str(resolution.base.candidate), *chosen])
    return format_count(len(alternative.changes), "change"), describe_changes(alternative), result


def _options(alternative: Alternative, assumptions: Assumptions) -> str:
    """Return the assumptions as options with which they fit; empty if the recipe has to change too."""
    added = [change for change in alternative.changes if change.is_added]
    pins = [change.pin for change in alternative.changes if not change.is_added]
    if not all(pin.is_given_by_command and pin.kind == "component" for pin in pins):
        return ""
    values = {change.pin.name: change.value for change in alternative.changes}
    words = [f"--assume {change.pin.name}={change.value}" for change in added]
    for requirement in assumptions.components:
        version = values.get(requirement.name)
        if version is None:
            words.append(str(requirement.location.path))
        elif version:
            words.append(f"--assume {requirement.name}={version}")
    targets = assumptions.targets
    scalars = [*(glob for _, glob in assumptions.variants), *targets.instances]
    scalars += [targets.driver] if targets.driver else []
    words += [str(scalar.location.path) for scalar in scalars]
    return " ".join(words)
