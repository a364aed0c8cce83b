"""Versions chosen for a recipe: the newest, the requested one, or a conflict."""

from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.component import Component, Incompatibility, Release, Requirement, Variant, VariantSpec
from bakehouse.catalog.recipe import Recipe
from bakehouse.resolve.alternatives import AlternativeSearch
from bakehouse.resolve.candidate import Candidate, Conflict
from bakehouse.resolve.relaxation import Relaxation, pins_of
from bakehouse.resolve.resolver import BudgetExceeded, Resolution, SearchBudget, Unsatisfiable, resolve
from tests.support.catalogs import (
    NOWHERE,
    Dice,
    ReadLock,
    candidates,
    holds,
    is_answer,
    is_asked_for,
    selections,
)
from tests.support.errors import raised
from tests.support.trees import COMPONENTS, SHA, Tree

HEAD = 'summary: A small image\nbase: {debian: "12"}\n'


def attempt(recipe: Recipe, catalog: Catalog) -> Resolution | None:
    try:
        return resolve(recipe, catalog)
    except Unsatisfiable:
        return None


def parts(resolution: Resolution | None) -> tuple[Candidate, ...]:
    return (
        ()
        if resolution is None
        else tuple(choice.candidate for choice in (resolution.base, *resolution.choices))
    )


def words(resolution: Resolution | None) -> list[str]:
    return [str(part) for part in parts(resolution)]


def test_the_newest_versions_are_chosen(tree: Tree) -> None:
    tree.image(HEAD + 'components: {python: "*", toolkit: "*"}\n')

    assert tree.chosen() == {"debian": "12", "python": "3.12", "toolkit": "5.1"}


def test_an_older_version_is_chosen_where_a_newer_one_does_not_fit(tree: Tree) -> None:
    tree.image(HEAD + 'components: {python: "3.12", torch: "*"}\n')

    assert tree.chosen()["torch"] == "2.8.0"


def test_of_a_release_the_first_variant_that_fits_is_chosen(tree: Tree) -> None:
    tree.image(HEAD + 'components: {torch: "*", cuda: ">=12", python: "3.11"}\n')

    assert tree.chosen()["torch"] == "2.9.0 (cu128-py311)"


def test_what_a_component_needs_is_brought(tree: Tree) -> None:
    tree.image(HEAD + 'components: {toolkit: "*"}\n')

    assert tree.chosen() == {"debian": "12", "python": "3.12", "toolkit": "5.1"}


def test_what_a_component_recommends_is_brought_unless_it_is_declined(tree: Tree) -> None:
    tree.component("toolkit", COMPONENTS["toolkit"] + '    recommends: {torch: "*"}\n')
    tree.image(HEAD + 'components: {toolkit: "*"}\n')
    tree.image(HEAD + 'components: {toolkit: "*"}\nexclude: [torch]\n', "plain")

    assert tree.chosen()["torch"] == "2.8.0"
    assert "torch" not in tree.chosen("plain")


def test_a_constraint_provides_nothing_and_holds_where_its_component_is(tree: Tree) -> None:
    tree.component("toolkit", COMPONENTS["toolkit"] + '    constraints: {torch: "<2.9"}\n')
    tree.image(HEAD + 'components: {toolkit: "*", python: "3.11"}\n')
    tree.image(HEAD + 'components: {toolkit: "*", python: "3.11", torch: "*"}\n', "both")

    assert "torch" not in tree.chosen()
    assert tree.chosen("both")["torch"] == "2.8.0"


def test_a_base_comes_in_only_as_the_base(tree: Tree) -> None:
    ubuntu = 'summary: Ubuntu\nreleases: [{version: "22.04", base: {image: "ubuntu:22.04"}}]\n'
    tree.component("ubuntu", ubuntu)
    tree.component("efa", 'summary: EFA\nreleases: [{version: "1", requires: {ubuntu: "*"}}]\n')
    tree.image(HEAD + 'components: {efa: "*"}\n')

    assert "ubuntu is a base, but the image's base is debian" in tree.conflict()


def test_a_component_that_provides_a_name_is_preferred_to_the_component_of_that_name(tree: Tree) -> None:
    tree.component("cuda", 'summary: CUDA\nstage_order: 1\nreleases: [{version: "12.8"}]\n')
    tree.component("rmm", 'summary: RMM\nstage_order: 2\nreleases: [{version: "1", requires: {cuda: "*"}}]\n')
    tree.image(HEAD + 'components: {rmm: "*", torch: "*", python: "3.11"}\nvariants: {torch: "cu*"}\n')
    tree.image(HEAD + 'components: {rmm: "*"}\n', "alone")

    assert "cuda" not in tree.chosen()
    assert tree.chosen("alone")["cuda"] == "12.8"


def test_a_name_of_the_recipe_waits_for_parts_that_may_provide_it(tree: Tree) -> None:
    tree.component("cuda", 'summary: CUDA\nstage_order: 1\nreleases: [{version: "12.8"}]\n')
    tree.component("app", 'summary: App\nreleases: [{version: "1", requires: {torch: "2.9.0"}}]\n')
    tree.image(HEAD + 'components: {cuda: "12.8", app: "*", python: "3.11"}\nvariants: {torch: "cu*"}\n')

    assert "cuda" not in tree.chosen()


def test_a_name_is_provided_by_a_component_that_comes_in_later(tree: Tree) -> None:
    """The first to ask comes long before what brings it."""
    tree.component("rmm", 'summary: RMM\nstage_order: 1\nreleases: [{version: "1", requires: {cuda: "*"}}]\n')
    tree.component(
        "app", 'summary: App\nstage_order: 2\nreleases: [{version: "1", requires: {torch: "2.9.0"}}]\n'
    )
    tree.image(HEAD + 'components: {rmm: "*", app: "*", python: "3.11"}\nvariants: {torch: "cu*"}\n')

    assert tree.chosen()["torch"] == "2.9.0 (cu128-py311)"


def test_a_python_package_belongs_to_the_lowest_component_that_locks_it(tree: Tree) -> None:
    def line(name: str) -> str:
        return f"{name}==1.0 --hash=sha256:{SHA}  # {name}-1.0.whl 1\n"

    tree.write("components/low/lock.txt", line("numpy") + line("attrs"))
    tree.write("components/high/lock.txt", line("NumPy") + line("scipy"))
    tree.write("images/own.lock", line("attrs") + line("mine"))
    for name, order in (("low", 1), ("high", 2)):
        tree.component(
            name, f'summary: x\nstage_order: {order}\nreleases: [{{version: "1", lock: lock.txt}}]\n'
        )
    tree.image(HEAD + 'components: {high: "*", low: "*"}\nrequirements: own.lock\n')
    resolution = tree.resolve()

    owners = {name: [package.name for package in owned] for name, owned in resolution.owners.items()}
    assert owners == {"low": ["numpy", "attrs"], "high": ["scipy"]}
    assert [package.name for package in resolution.user_packages] == ["mine"]


def test_an_older_release_is_chosen_where_the_newer_one_locks_another_version(tree: Tree) -> None:
    for name, version in (("old", "1.0"), ("new", "2.0")):
        tree.write(f"components/keras/{name}.txt", f"numpy=={version} --hash=sha256:{SHA}  # numpy.whl 1\n")
    tree.write("images/own.lock", f"numpy==1.0 --hash=sha256:{SHA}  # numpy.whl 1\n")
    releases = '- {version: "3", lock: new.txt}\n- {version: "2", lock: old.txt}\n'
    tree.component("keras", f"summary: Keras\nreleases:\n{releases}")
    tree.image(HEAD + 'components: {keras: "*"}\nrequirements: own.lock\n')

    assert tree.chosen()["keras"] == "2"


WHEEL = """\
summary: Torch
releases:
  - version: "2"
    artifacts:
      wheel: {url: "https://x.example/torch-2.0%2Bcpu-cp311-cp311-linux_x86_64.whl", sha256: unknown}
"""


def test_a_wheel_of_a_component_is_not_installed_again_from_the_recipe_s_lock(tree: Tree) -> None:
    tree.component("framework", WHEEL)
    own = [f"{package} --hash=sha256:{SHA}  # x.whl 1\n" for package in ("torch==2.0+cpu", "mine==1.0")]
    tree.write("images/own.lock", "".join(own))
    tree.image(HEAD + 'components: {framework: "*"}\nrequirements: own.lock\n')

    assert [package.name for package in tree.resolve().user_packages] == ["mine"]


def test_another_version_of_a_component_s_wheel_in_the_recipe_s_lock_is_refused(tree: Tree) -> None:
    tree.component("framework", WHEEL)
    tree.write("images/own.lock", f"torch==3.0 --hash=sha256:{SHA}  # torch.whl 1\n")
    tree.image(HEAD + 'components: {framework: "*"}\nrequirements: own.lock\n')

    [refusal] = raised(Unsatisfiable, tree.resolve).conflict.refusals
    assert refusal.packages
    assert [package.version for package in refusal.packages] == ["2.0+cpu", "3.0"]


def test_a_package_that_the_recipe_s_lock_replaces_stays_in_the_component(tree: Tree) -> None:
    tree.write("components/keras/lock.txt", f"numpy==2.0 --hash=sha256:{SHA}  # numpy.whl 1\n")
    tree.component("keras", 'summary: Keras\nreleases: [{version: "1", lock: lock.txt}]\n')
    tree.write("images/own.lock", f"numpy==1.0 --hash=sha256:{SHA}  # numpy.whl 1 replaces 2.0\n")
    tree.image(HEAD + 'components: {keras: "*"}\nrequirements: own.lock\n')

    resolution = tree.resolve()

    assert [package.version for package in resolution.owners["keras"]] == ["1.0"]
    assert resolution.user_packages == ()


@pytest.mark.parametrize(
    "line", ["numpy==1.0 --hash=sha256:{}  # numpy.whl 1 replaces 1.9", "numpy==1.0  # {}"]
)
def test_another_version_than_the_recipe_s_lock_expects_is_refused(tree: Tree, line: str) -> None:
    tree.write("components/keras/lock.txt", f"numpy==2.0 --hash=sha256:{SHA}  # numpy.whl 1\n")
    tree.component("keras", 'summary: Keras\nreleases: [{version: "1", lock: lock.txt}]\n')
    tree.write("images/own.lock", line.format(SHA if "hash" in line else "installed by a component") + "\n")
    tree.image(HEAD + 'components: {keras: "*"}\nrequirements: own.lock\n')

    assert "keras 1 locks numpy 2.0" in tree.conflict()


def replacing(
    tree: Tree, name: str, version: str, *, keys: str = "replaces: [Sharing]", order: int = 60
) -> None:
    """Add a component that locks `sharing` in a version."""
    lock = f"sharing=={version} --hash=sha256:{SHA}  # sharing.whl 1\n"
    tree.write(f"components/{name}/lock.txt", lock)
    head = f"summary: Locks sharing\nstage_order: {order}\nlock: lock.txt\n{keys}\n"
    tree.component(name, f'{head}releases: [{{version: "1"}}]\n')


NEEDING = "requirements: [sharing]"


@pytest.mark.parametrize("order", [50, 70])
def test_a_component_replaces_a_package_in_the_lock_of_another(tree: Tree, order: int) -> None:
    replacing(tree, "nemo", "1.0")
    replacing(tree, "keras", "2.0", keys=NEEDING, order=order)
    tree.image(HEAD + 'components: {keras: "*", nemo: "*"}\n')

    owners = tree.resolve().owners

    first, second = ("keras", "nemo") if order == 50 else ("nemo", "keras")
    assert [package.version for package in owners[first]] == ["1.0"]
    assert owners[second] == ()


def test_a_lock_without_requirements_is_not_replaced(tree: Tree) -> None:
    replacing(tree, "nemo", "1.0")
    replacing(tree, "keras", "2.0", keys="")
    tree.image(HEAD + 'components: {keras: "*", nemo: "*"}\n')

    assert "keras 1 locks sharing 2.0" in tree.conflict()


@pytest.mark.parametrize("names", list(permutations(["flax", "keras", "nemo"])))
def test_a_lock_without_requirements_is_not_replaced_beside_one_with_requirements(
    tree: Tree, names: tuple[str, ...]
) -> None:
    replacing(tree, names[0], "1.0")
    replacing(tree, names[1], "2.0", keys=NEEDING)
    replacing(tree, names[2], "2.0", keys="")
    tree.image(HEAD + 'components: {flax: "*", keras: "*", nemo: "*"}\n')

    assert "locks sharing" in tree.conflict()


def test_two_components_cannot_replace_a_package_by_different_versions(tree: Tree) -> None:
    replacing(tree, "nemo", "1.0")
    replacing(tree, "keras", "2.0", keys=f"{NEEDING}\nreplaces: [sharing]")
    tree.image(HEAD + 'components: {keras: "*", nemo: "*"}\n')

    assert "keras 1 locks sharing 2.0" in tree.conflict()


def test_only_named_packages_are_replaced(tree: Tree) -> None:
    replacing(tree, "nemo", "1.0", keys="replaces: [other]")
    replacing(tree, "keras", "2.0", keys=NEEDING)
    tree.image(HEAD + 'components: {keras: "*", nemo: "*"}\n')

    assert "keras 1 locks sharing 2.0" in tree.conflict()


def test_the_recipe_s_lock_has_the_package_that_a_component_installs_in_place_of_another(tree: Tree) -> None:
    replacing(tree, "nemo", "1.0")
    replacing(tree, "keras", "2.0", keys=NEEDING, order=50)
    tree.write("images/own.lock", f"sharing==1.0 --hash=sha256:{SHA}  # sharing.whl 1 replaces 2.0\n")
    tree.image(HEAD + 'components: {keras: "*", nemo: "*"}\nrequirements: own.lock\n')

    assert [package.version for package in tree.resolve().owners["keras"]] == ["1.0"]


def test_a_package_that_the_recipe_s_lock_expects_of_a_component_has_to_be_there(tree: Tree) -> None:
    tree.write("components/keras/lock.txt", f"keras-cpu==2.0 --hash=sha256:{SHA}  # keras_cpu.whl 1\n")
    projects = "upstream: {pypi: [keras, keras-cpu]}"
    tree.component("keras", f'summary: Keras\n{projects}\nreleases: [{{version: "2.0", lock: lock.txt}}]\n')
    tree.write(
        "images/own.lock",
        "".join(f"{name}  # installed by a component\n" for name in ("keras==2.0", "numpy==1.0")),
    )
    tree.image(HEAD + 'components: {keras: "*"}\nrequirements: own.lock\n')

    # A component supplies its library under all names of its project
    assert [package.name for package in tree.resolve().missing_packages] == ["numpy"]


def test_versions_are_reported_of_parts_and_of_what_they_bring(tree: Tree) -> None:
    resolution = tree.resolve()

    versions = [resolution.version_of(name) for name in ("torch", "glibc", "cuda")]
    assert versions == ["2.9.0", "2.36", None]


def test_lower_layers_come_first(tree: Tree) -> None:
    assert [choice.name for choice in tree.resolve().choices] == ["python", "torch", "toolkit"]


@settings(max_examples=250)
@given(st.integers(0, 2**32))
def test_an_answer_is_right_and_none_is_missed(seed: int) -> None:
    check_answer(seed)


@pytest.mark.release
@settings(max_examples=5000)
@given(st.integers(0, 2**32))
def test_many_answers_are_right_and_none_is_missed(seed: int) -> None:
    check_answer(seed)


def check_answer(seed: int) -> None:
    """Check that a resolution satisfies all demands, and that no component alone could be newer."""
    dice = Dice(seed)
    catalog, recipe = dice.catalog(), dice.recipe()
    solution = parts(attempt(recipe, catalog))
    if not solution:
        assert next(selections(recipe, catalog), None) is None
        return
    assert holds(recipe, solution)
    assert is_asked_for(recipe, solution)
    for candidate in solution:
        for newer in candidates(recipe, catalog, candidate.name):
            if str(newer) == str(candidate):
                break
            changed = tuple(newer if other is candidate else other for other in solution)
            assert not is_answer(recipe, changed)


@settings(max_examples=100)
@given(st.integers(0, 2**32), st.integers(1, 12))
def test_a_search_that_ends_early_gives_the_same_answer_or_none(seed: int, budget: int) -> None:
    dice = Dice(seed)
    catalog, recipe = dice.catalog(), dice.recipe()
    complete = attempt(recipe, catalog)
    try:
        early = resolve(recipe, catalog, SearchBudget(budget))
    except BudgetExceeded:
        return
    except Unsatisfiable:
        early = None
    assert words(early) == words(complete)


@settings(max_examples=100)
@given(st.integers(0, 2**32))
def test_without_any_pin_of_a_minimal_conflict_an_image_fits(seed: int) -> None:
    dice = Dice(seed)
    catalog, recipe = dice.catalog(), dice.recipe()
    search = AlternativeSearch(recipe, catalog, calls=1000)
    if attempt(recipe, catalog) or isinstance(search.outcome_with_all_moved, Conflict):
        return
    core = search.core({})
    kept = [pin for pin in pins_of(recipe) if pin not in core and pin.least is Relaxation.MOVE]
    for pin in (pin for pin in kept if pin.kind != "base"):
        assert isinstance(search.attempt({**core, pin: pin.least}), Resolution)


@settings(max_examples=100)
@given(st.integers(0, 2**32))
def test_only_what_is_asked_matters_and_not_in_which_order(seed: int) -> None:
    dice = Dice(seed)
    catalog, recipe = dice.catalog(), dice.recipe()
    before = words(attempt(recipe, catalog))
    turned = Catalog({name: turn(catalog.components[name]) for name in reversed([*catalog.components])})
    stranger = part("stranger", {"1": VariantSpec(requires=(need("ant", "<2"),), provides={"moon": "1"})})

    assert words(attempt(recipe, catalog)) == before
    assert words(attempt(replace(recipe, components=recipe.components[::-1]), turned)) == before
    assert words(attempt(recipe, plus(catalog, stranger))) == before


def turn(component: Component) -> Component:
    """Return a component with its keys in reverse order."""

    def spec(old: VariantSpec) -> VariantSpec:
        return replace(old, requires=old.requires[::-1], lock=old.lock and ReadLock(old.packages[::-1]))

    releases = tuple(
        replace(
            release, variants=tuple(replace(variant, spec=spec(variant.spec)) for variant in release.variants)
        )
        for release in component.releases
    )
    return replace(component, releases=releases)


def part(name: str, releases: dict[str, VariantSpec]) -> Component:
    versions = tuple(
        Release(version, (Variant("", spec, NOWHERE),), NOWHERE) for version, spec in releases.items()
    )
    return Component(name, name, 50, NOWHERE.path, (), versions, "", None, {}, NOWHERE)


def need(name: str, specifier: str = "") -> Requirement:
    return Requirement(name, specifier, NOWHERE)


def plus(catalog: Catalog, *added: Component) -> Catalog:
    return Catalog({**catalog.components, **{component.name: component for component in added}})


def asking(tree: Tree, *requirements: Requirement) -> Recipe:
    return replace(tree.recipes()["small"], components=requirements, variants={})


@pytest.mark.timeout(30)
@pytest.mark.parametrize("last", ["late", "provided"])
def test_a_conflict_that_has_to_do_with_few_parts_is_found_among_many(tree: Tree, last: str) -> None:
    """Twelve parts of ten releases each are 10^12 combinations."""
    versions = [str(number) for number in range(10, 0, -1)]
    many = [part(f"part-{letter}", dict.fromkeys(versions, VariantSpec())) for letter in "abcdefghijkl"]
    late = part("zebra", {"1": VariantSpec(requires=(need("python", ">9"),))})
    provided = part("zebra", {"1": VariantSpec(requires=(need("cuda", ">99"),))})
    catalog = plus(tree.catalog(), *many, late if last == "late" else provided)
    recipe = asking(tree, *(need(component.name) for component in many), need("zebra"), need("python"))

    error = raised(Unsatisfiable, resolve, recipe, catalog)
    assert error.conflict.name == ("python" if last == "late" else "zebra")


@pytest.mark.parametrize("owner", ["one", "three", "two"])
def test_a_conflict_of_three_components_holds_whichever_of_them_declares_it(tree: Tree, owner: str) -> None:
    together = tuple(need(name, "==2.*") for name in ("one", "three", "two"))
    incompatibility = Incompatibility(together, "they hang", "", is_error=True, location=NOWHERE)
    names = ("one", "three", "two")
    three = [
        part(name, dict.fromkeys("21", VariantSpec(conflicts=(incompatibility,) if name == owner else ())))
        for name in names
    ]
    resolution = resolve(asking(tree, *map(need, names)), plus(tree.catalog(), *three))

    assert [choice.version for choice in resolution.choices] == ["2", "2", "1"]
    assert [skipped.incompatibility for skipped in resolution.choices[-1].skipped] == [incompatibility]


@pytest.mark.timeout(30)
def test_many_parts_with_many_releases_are_resolved_at_once(tree: Tree) -> None:
    """Each allows only the oldest release of the one before it."""
    versions = [str(number) for number in range(30, 0, -1)]
    chain = [part("part-00", dict.fromkeys(versions, VariantSpec()))]
    for number in range(1, 20):
        spec = VariantSpec(requires=(need(f"part-{number - 1:02}", "<2"),))
        chain.append(part(f"part-{number:02}", dict.fromkeys(versions, spec)))
    resolution = resolve(
        asking(tree, *(need(component.name) for component in chain)), plus(tree.catalog(), *chain)
    )

    assert [choice.version for choice in resolution.choices] == ["1"] * 19 + ["30"]
