"""Recommended images of the real catalogue, on the day of the last review."""

import re

import pytest

from bakehouse.catalog.project import HOME
from bakehouse.catalog.purpose import PURPOSES
from bakehouse.plan.known_facts import KnownFacts, ending, known_facts, known_of_job
from bakehouse.resolve.resolver import resolve
from tests.support.own_recipes import catalog, recipes

REVIEWED = "2026-11-29"
"""No test compares with today, so that none fails because a day passed."""
RECOMMENDED = [name for name, recipe in recipes().items() if recipe.purpose]


@pytest.mark.parametrize("name", RECOMMENDED)
def test_an_exception_of_a_recommended_image_is_written_and_limited(name: str) -> None:
    accepted = {item.kind: item for item in recipes()[name].concessions}

    against = known(name).against(REVIEWED)
    assert {kind: texts for kind, texts in against.items() if kind not in accepted} == {}
    assert all(REVIEWED < item.until < "2028" for item in accepted.values())


def test_a_fact_against_an_image_is_found() -> None:
    old = known("pytorch-2.12-cu130-py312-extended")

    assert [*old.against(REVIEWED)] == ["known problem"]
    assert [*KnownFacts(unpinned=("base a", "file b.whl")).against(REVIEWED)] == ["not pinned"]
    assert [*known("mpi-cpu").against(REVIEWED)] == ["support"]
    assert [*known("mpi-cpu").against("2026-06-10")] == []


def test_a_problem_of_low_confidence_is_worded_as_one() -> None:
    texts = [
        known(f"pytorch-2.1{name}-extended").problems[0][0] for name in ("2-cu130-py312", "0-cu130-py313")
    ]
    assert ["reported, but not confirmed" in text for text in texts] == [True, False]


@pytest.mark.parametrize(("day", "is_told"), [("2026-06-11", True), ("2026-06-10", False)])
def test_ends_of_support_are_told_from_a_day_on(
    day: str, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bakehouse.plan.known_facts.notice_day", lambda: day)

    text = ending([resolve(recipes()["mpi-cpu"], catalog())])
    line = "debian 12 is supported until 2026-06-10 (https://wiki.debian.org/DebianReleases): `mpi-cpu`\n"
    assert text == (line if is_told else "")


def test_few_images_are_recommended_and_all_others_are_the_archive() -> None:
    assert 15 <= len(RECOMMENDED) <= 40
    assert {recipes()[name].purpose for name in RECOMMENDED} <= {*PURPOSES}
    assert {name for name, recipe in recipes().items() if recipe.is_archived} == {*recipes()} - {*RECOMMENDED}


def test_the_readme_has_the_numbers_of_the_tables(request: pytest.FixtureRequest) -> None:
    """`pytest --update-snapshots` writes them anew."""
    form = re.compile(r"[0-9]+ images: [0-9]+ tested here, [^.]*")
    [numbers] = form.findall((HOME / "images/README.md").read_text())
    readme = HOME / "README.md"
    if request.config.getoption("--update-snapshots"):
        readme.write_text(form.sub(numbers, readme.read_text()))
    assert form.findall(readme.read_text()) == [numbers]


def test_known_problems_of_a_recipe_hold_for_images_of_its_versions_only() -> None:
    recipe, other = recipes()["pytorch-2.9-cu128-py312-huggingface"], {"pytorch": "2.8.0"}
    same = {"pytorch": str(resolve(recipe, catalog()).version_of("pytorch"))}

    assert known_of_job(recipe, catalog(), same) == known(recipe.name)
    assert known_of_job(recipe, catalog(), other) == known_of_job(None, catalog(), other)
    assert known_of_job(recipe, catalog(), other) != known(recipe.name)


def known(name: str) -> KnownFacts:
    return known_facts(resolve(recipes()[name], catalog()))
