"""Mutated recipes are accepted or refused with a message and a location."""

from pathlib import Path

import pytest

from tests.support.mutations import Mutations, Outcome


@pytest.fixture(scope="module", params=[150, pytest.param(1_000, marks=pytest.mark.release)])
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Outcome]:
    """Results of mutants; `benchmarks/mutated_inputs.py` runs as many as there is time for."""
    mutations = Mutations(tmp_path_factory.mktemp("mutations") / "recipes")
    return [mutations.run(seed) for seed in range(request.param)]


def test_mutated_files_cause_no_traceback_and_most_are_reported_with_their_location(
    outcomes: list[Outcome],
) -> None:
    refused = [outcome for outcome in outcomes if outcome.diagnostics]
    unplaced = [outcome_ for outcome_ in refused if not outcome_.is_placed]

    assert len(unplaced) <= 0.05 * len(refused), [outcome_.diagnostics for outcome_ in unplaced]


def test_many_are_taken_and_many_are_not(outcomes: list[Outcome]) -> None:
    """Otherwise they would say little about one half of the pipeline."""
    taken = sum(not outcome.diagnostics for outcome in outcomes)

    assert 0.1 * len(outcomes) < taken < 0.6 * len(outcomes)


@pytest.mark.parametrize("number", ["9" * 5_000, "1" + ".0" * 5_000, "1!" + "9" * 4_400])
def test_a_version_of_thousands_of_digits_is_refused(number: str, tmp_path: Path) -> None:
    mutations = Mutations(tmp_path / "recipes")
    for text in (
        f'summary: x\nreleases: [{{version: "{number}"}}]\n',
        f'summary: x\nreleases: [{{version: "1", requires: {{python: "{number}"}}}}]\n',
    ):
        outcome = mutations.outcome(text, "mutated")
        assert ["is not a version" in diagnostic.message for diagnostic in outcome.diagnostics] == [True]
