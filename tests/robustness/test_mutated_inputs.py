"""Mutants of every kind of input are taken, or refused with a message: no traceback, no hang."""

from pathlib import Path

import pytest

from bakehouse.errors import BakehouseError
from tests.support.mutated_inputs import MutatedInputs

_SEED = 1
_SLOW = ("recipes", "components")
"""`tests/recipes/test_fuzz.py` has more of them."""
_ALWAYS_ERRORS = ("BuildKit events", "registry errors", "registry referrers", "registry headers")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> MutatedInputs:
    return MutatedInputs(tmp_path_factory.mktemp("inputs") / "inputs")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("cases", [30, pytest.param(120, marks=pytest.mark.release)])
def test_no_mutant_causes_a_traceback_or_hangs(inputs: MutatedInputs, cases: int) -> None:
    """`benchmarks/mutated_inputs.py` runs as many as there is time for."""
    for name in inputs.surfaces:
        for case in range(cases // 6 if name in _SLOW else cases):
            try:
                inputs.run(name, *inputs.case(name, _SEED, case))
            except Exception as error:
                error.add_note(f"--surface '{name}' --seed {_SEED} --case {case}")
                raise


@pytest.mark.parametrize(("name", "seed", "case"), [("registry headers", 49, 651)])
def test_a_mutant_that_caused_a_traceback_is_refused(
    inputs: MutatedInputs, name: str, seed: int, case: int
) -> None:
    inputs.run(name, *inputs.case(name, seed, case))


def test_valid_documents_are_taken(inputs: MutatedInputs) -> None:
    """Otherwise the mutants would not reach the code behind the first check."""
    for name, surface in inputs.surfaces.items():
        if name in (*_SLOW, *_ALWAYS_ERRORS, "smoke reports"):
            continue
        for sample, read in surface.samples:
            read(sample)


def test_a_valid_smoke_report_is_taken_with_its_hash(inputs: MutatedInputs) -> None:
    [(sample, read)] = inputs.surfaces["smoke reports"].samples

    # The reader of the campaign adds the hash to documents of odd length
    read(sample if len(sample) % 2 else sample + b"\n")


def test_a_case_is_reproducible(inputs: MutatedInputs, tmp_path: Path) -> None:
    other = MutatedInputs(tmp_path / "inputs")

    for name in inputs.surfaces:
        assert [inputs.case(name, 3, case)[0] for case in range(5)] == [
            other.case(name, 3, case)[0] for case in range(5)
        ]


def test_mutants_differ_and_some_are_refused(inputs: MutatedInputs) -> None:
    documents = {inputs.case("releases.json", _SEED, case)[0] for case in range(50)}
    refused = 0
    for document in documents:
        try:
            inputs._read_ledger(document)
        except BakehouseError:
            refused += 1

    assert len(documents) > 45
    assert 10 < refused < len(documents)
