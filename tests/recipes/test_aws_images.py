"""The stacks of AWS's own images over the real catalogue: each fits, or the catalogue says what it lacks."""

from pathlib import Path

import pytest

from bakehouse.errors import UndecidedError
from bakehouse.resolve import what_if
from tests.support import own_recipes

CATALOG = own_recipes.catalog()
STACKS = [
    line
    for line in Path(__file__).with_name("aws_images.txt").read_text().splitlines()
    if not line.startswith("#")
]
LACKING = {
    "pytorch=1.0.0": "pytorch 1.0.0",
    "pytorch=1.0.0 cuda=9.0": "pytorch 1.0.0",
    "pytorch=1.1.0": "pytorch 1.1.0",
    "pytorch=1.1.0 cuda=10.1": "pytorch 1.1.0",
    "pytorch=1.2.0 cuda=10.0 python=2.7": "python 2.7",
    "pytorch=1.3.1 python=2.7": "python 2.7",
    "pytorch=1.4.0 cuda=10.1 python=2.7": "python 2.7",
    "pytorch=1.4.0 python=2.7": "python 2.7",
    "pytorch=1.11.0 cuda=11.5 python=3.8": "a build of pytorch 1.11.0 for cuda 11.5 and python 3.8",
    "pytorch=1.12.1 cuda=11.6 python=3.8": "a build of pytorch 1.12.1 for cuda 11.6 and python 3.8",
    "pytorch=1.13 cuda=11.3 python=3.8": "a build of pytorch 1.13 for cuda 11.3 and python 3.8",
    "pytorch=1.13 cuda=11.6 python=3.8": "a build of pytorch 1.13 for cuda 11.6 and python 3.8",
    "pytorch=2.1 cuda=11.8 python=3.10": "a build of pytorch 2.1 for cuda 11.8 and python 3.10",
    "pytorch=2.7.0 cuda=12.8 python=3.12": "a build of pytorch 2.7.0 for cuda 12.8 and python 3.12",
    "tensorflow=1.10.0 cuda=9.0": "tensorflow 1.10.0",
    "tensorflow=1.11.0 cuda=9.0": "tensorflow 1.11.0",
    "tensorflow=1.12.0 cuda=9.0": "tensorflow 1.12.0",
    "tensorflow=1.13.1 cuda=10.0 python=3.6": "tensorflow 1.13.1",
    "tensorflow=2.3.4 cuda=10.2 python=3.7": "tensorflow 2.3.4",
    "tensorflow=2.3.4 cuda=11.0 python=3.7": "tensorflow 2.3.4",
    "tensorflow=2.5.3 cuda=11.2 python=3.7": "tensorflow 2.5.3",
    "tensorflow=2.7.4 cuda=11.2 python=3.8": "tensorflow 2.7.4",
}
"""By stack: the version or build that the catalogue lacks."""


@pytest.mark.parametrize("stack", sorted(set(STACKS) - LACKING.keys()))
def test_a_stack_of_an_image_of_aws_fits(stack: str) -> None:
    fits = what_if.fitting(what_if.parse_assumptions(stack.split(), CATALOG), CATALOG)

    assert fits.resolutions


@pytest.mark.parametrize(("stack", "lacking"), LACKING.items())
def test_a_stack_that_the_catalogue_lacks_is_not_refused(stack: str, lacking: str) -> None:
    with pytest.raises(UndecidedError) as caught:
        what_if.resolve_on_bases(what_if.parse_assumptions(stack.split(), CATALOG), CATALOG)

    assert stack in STACKS
    assert ("the catalogue lacks", lacking) in caught.value.diagnostics[0].facts
