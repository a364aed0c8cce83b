"""Candidates that may be promoted."""

from dataclasses import replace

import pytest

from bakehouse.errors import UsageError
from bakehouse.plan.model import ImageKey
from bakehouse.publish.promote import require_same_key
from tests.ledger.test_releases import a_record
from tests.publish.test_push import IMAGE


def test_a_key_with_the_same_beginning_is_another_recipe() -> None:
    key = ImageKey(IMAGE.key[:-1] + ("0" if IMAGE.key[-1] != "0" else "1"))

    require_same_key(replace(a_record(), key=IMAGE.key), IMAGE)
    with pytest.raises(UsageError, match="the candidate of `mpi-cpu` was not built from this recipe"):
        require_same_key(replace(a_record(), key=key), IMAGE)
