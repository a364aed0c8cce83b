"""Every command gives one answer to "why not newer", and a search of all combinations confirms it."""

from contextlib import suppress
from dataclasses import replace
from functools import cache

import pytest

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.component import Requirement
from bakehouse.catalog.recipe import Recipe
from bakehouse.cli import json_report
from bakehouse.resolve import explain, outdated
from bakehouse.resolve.alternatives import Alternative, AlternativeSearch, PinChange
from bakehouse.resolve.explain import Explanation, Obstacle
from bakehouse.resolve.relaxation import Relaxation, pins_of, relax
from bakehouse.resolve.resolver import Resolution, Unsatisfiable, resolve
from bakehouse.resolve.what_if import Assumptions, with_assumptions
from bakehouse.util.yaml_reader import Scalar
from tests.support.catalogs import NOWHERE, VIRTUAL, Dice, compatible_sets, selections

SEEDS = range(450)
PROJECTS = 20


@cache
def resolved() -> list[tuple[Catalog, Resolution]]:
    """Return small random projects that can be resolved."""
    projects = []
    for dice in map(Dice.with_bases, SEEDS):
        catalog = dice.catalog()
        with suppress(Unsatisfiable):
            projects.append((catalog, resolve(dice.recipe(), catalog)))
    return projects


def explained() -> list[tuple[Catalog, Recipe, Explanation]]:
    return [
        (catalog, resolution.recipe, explanation)
        for catalog, resolution in resolved()
        for explanation in explain.explain_all(resolution, catalog)
        if not explanation.is_newest
    ]


def asking(recipe: Recipe, name: str, specifier: str) -> Recipe:
    return replace(recipe, components=(*recipe.components, Requirement(name, specifier, NOWHERE)))


def fits(recipe: Recipe, catalog: Catalog) -> bool:
    return next(compatible_sets(recipe, catalog), None) is not None


def changed(recipe: Recipe, change: PinChange) -> Recipe:
    """Return the recipe as a user edits it."""
    pin = change.pin
    if pin.kind == "requirements":
        return replace(recipe, content=replace(recipe.content, packages=()))
    if pin.kind == "variant":
        return replace(recipe, variants={**recipe.variants, pin.name: Scalar(change.value, NOWHERE)})
    if pin.kind == "base":
        name = change.base or pin.name
        return replace(recipe, base=Requirement(name, f"=={change.value}", NOWHERE))
    components = (item for item in recipe.components if item.name != pin.name)
    return replace(recipe, components=(*components, Requirement(pin.name, f"=={change.value}", NOWHERE)))


def edited(recipe: Recipe, alternative: Alternative) -> Recipe:
    for change in alternative.changes:
        recipe = changed(recipe, change)
    return recipe


def test_each_proposed_change_is_needed_and_allows_the_newer_version() -> None:
    proposed = 0
    for catalog, recipe, explanation in explained():
        for way in explanation.alternatives:
            if any(change.pin.name in VIRTUAL for change in way.changes):
                # Several components may provide such a name, each in a version of its own
                continue
            version = way.resolution.version_of(explanation.name)
            assert fits(asking(edited(recipe, way), explanation.name, f"=={version}"), catalog)
            for change in way.changes:
                others = replace(way, changes=tuple(other for other in way.changes if other != change))
                question = asking(edited(recipe, others), explanation.name, f"=={version}")
                assert next(selections(question, catalog), None) is None
                assert change.value != change.pin.value
                proposed += 1

    assert proposed > 30


def test_without_a_named_cause_the_newest_version_fits() -> None:
    named = 0
    for catalog, recipe, explanation in explained():
        causes = explanation.obstacle.causes if explanation.obstacle else ()
        every = {pin: Relaxation.MOVE for pin in pins_of(recipe) if pin.least is Relaxation.MOVE}
        question = asking(relax(recipe, every), explanation.name, f"=={explanation.newest}")
        for cause in causes:
            dropped = relax(recipe, {pin: pin.most for pin in pins_of(recipe) if pin not in causes})
            kept = {**every, cause: Relaxation.DROP}
            assert next(selections(question, catalog), None) is None
            without = asking(relax(dropped, kept), explanation.name, f"=={explanation.newest}")
            assert fits(without, catalog)
            named += 1

    assert named > 20


def test_a_cause_that_is_none_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain, "_obstacle", lambda search: Obstacle("", (), search.pins))
    with pytest.raises(AssertionError):
        test_without_a_named_cause_the_newest_version_fits()


def test_every_command_gives_the_same_answer_about_newer_versions() -> None:
    asked = 0
    for _, (catalog, resolution) in zip(range(PROJECTS), resolved(), strict=False):
        overview = {item.name: item for item in explain.explain_all(resolution, catalog)}
        for component in outdated.find_outdated(resolution, catalog):
            name, texts = component.name, [line.text for line in component.answer]
            single = explain.explain_name(resolution, catalog, name)
            assert texts == [line.text for line in overview[name].answer]
            assert texts == [line["text"] for line in json_report.answer(single)]
            page = explain.why_not_newer(single, resolution)
            assert texts == [line.text for line in page][-len(texts) :]
            assert all(f"  {text}" in explain.name_report(resolution, single) for text in texts)
            assert all(text in outdated.table("small", [component]) for text in texts)
            check_assumption(resolution.recipe, catalog, component)
            asked += 1

    assert asked > PROJECTS


def check_assumption(recipe: Recipe, catalog: Catalog, component: Explanation) -> None:
    """Check that `resolve --assume` allows what one change of the component's own version allows."""
    own = {
        way.resolution.version_of(component.name)
        for way in component.alternatives
        if {change.pin.name for change in way.changes if change.pin.kind == "component"} == {component.name}
        and len(way.changes) == 1
    }
    for version in {*own, component.newest}:
        assumption = Requirement(component.name, f"=={version}", NOWHERE)
        assumed = with_assumptions(recipe, Assumptions((assumption,)), catalog)
        answer = AlternativeSearch(assumed, catalog, 1).attempt({})
        if version in own:
            assert isinstance(answer, Resolution)
        elif component.obstacle:
            assert not isinstance(answer, Resolution)
