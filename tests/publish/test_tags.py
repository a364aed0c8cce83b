"""Names of tags."""

from datetime import date

import pytest

from bakehouse.plan.model import ImageKey
from bakehouse.publish.tags import immutable_tag, is_release_of

KEY = ImageKey("0123456789abcdef" * 4)


def test_a_release_tag_of_any_day_names_the_image() -> None:
    assert is_release_of(immutable_tag("mpi-cpu", date(2026, 11, 20), KEY), "mpi-cpu", KEY)
    assert is_release_of("mpi-cpu-20251231-01234567", "mpi-cpu", KEY)


@pytest.mark.parametrize(
    "tag",
    [
        "mpi-cpu-20261120-01234567-arm64",
        "mpi-cpu-20261120-0123456789",
        "old-mpi-cpu-20261120-01234567",
        "mpi-cpu-20261120-76543210",
        "mpi-cpu-candidate-0123456789abcdef",
        "mpi-cpu",
    ],
)
def test_other_tags_are_not_release_tags_of_the_image(tag: str) -> None:
    assert not is_release_of(tag, "mpi-cpu", KEY)
