"""Compares the resolver with a search of every combination, on random catalogues with several bases."""

from dataclasses import dataclass, replace

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.component import Requirement
from bakehouse.catalog.recipe import Recipe
from bakehouse.resolve.alternatives import AlternativeSearch
from bakehouse.resolve.candidate import Conflict
from bakehouse.resolve.relaxation import pins_of, relax
from bakehouse.resolve.resolver import BudgetExceeded, Resolution, SearchBudget, Unsatisfiable, resolve
from tests.support.catalogs import NOWHERE, Dice, compatible_sets, holds, is_asked_for, selections

SMALL_BUDGET = 2
CALLS = 1000


@dataclass(slots=True)
class Compared:
    """The numbers of compared answers."""

    fitting: int = 0
    unfit: int = 0
    undecided: int = 0
    removed: int = 0
    """Pins of minimal cores without which versions fit."""


def compare(seed: int) -> Compared:
    """Compare the answers about one random catalogue: one question to each of its bases."""
    compared = Compared()
    dice = Dice.with_bases(seed)
    catalog, recipe = dice.catalog(), dice.recipe()
    for name in catalog.links.bases:
        question = replace(recipe, base=Requirement(name, recipe.base.specifier, NOWHERE))
        outcome = AlternativeSearch(question, catalog, CALLS).attempt({})
        if isinstance(outcome, Resolution):
            _check_answer(question, outcome)
            compared.fitting += 1
        else:
            assert isinstance(outcome, Conflict)
            assert is_impossible(question, catalog)
            compared.unfit += 1
            compared.removed += _compare_core(question, catalog)
        compared.undecided += _is_undecided(question, catalog, fits=isinstance(outcome, Resolution))
    return compared


def is_impossible(recipe: Recipe, catalog: Catalog) -> bool:
    """Return whether nothing fits; an image in which two components provide one name need not be found."""
    return next(selections(recipe, catalog), None) is None


def _check_answer(recipe: Recipe, resolution: Resolution) -> None:
    chosen = tuple(choice.candidate for choice in resolution.all_choices)
    assert holds(recipe, chosen)
    assert is_asked_for(recipe, chosen)


def _is_undecided(recipe: Recipe, catalog: Catalog, *, fits: bool) -> bool:
    """Ask again with a small budget: the answer is the same, or there is none and the budget is used up."""
    budget = SearchBudget(SMALL_BUDGET)
    try:
        _check_answer(recipe, resolve(recipe, catalog, budget))
    except BudgetExceeded:
        assert budget.left == 0
        return True
    except Unsatisfiable:
        assert not fits
    return False


def _compare_core(recipe: Recipe, catalog: Catalog) -> int:
    """Check that the other pins still conflict without the relaxed ones, and fit without any one of them.

    A component and the variant that is requested of it are one fact: without the variant, versions fit.
    """
    core = AlternativeSearch(recipe, catalog, CALLS).core({})
    assert is_impossible(relax(recipe, core), catalog)
    kept = [pin for pin in pins_of(recipe) if pin not in core and pin.kind != "base"]
    pinned = {pin.name for pin in kept if pin.value}
    removed = [pin for pin in kept if pin.value or pin.name not in pinned]
    for pin in removed:
        assert next(compatible_sets(relax(recipe, {**core, pin: pin.least}), catalog), None) is not None
    return len(removed)
