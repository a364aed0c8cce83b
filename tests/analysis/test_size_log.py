"""Recorded sizes of built images."""

from pathlib import Path

import pytest

from bakehouse.analysis.size_log import SizeRecord, load_size, record_size
from bakehouse.analysis.sizes import ImageSize, OwnedDirectory, PartSize
from bakehouse.plan.model import ImageKey

KEY = ImageKey("a" * 64)
PARTS = (PartSize("torch", 1, 700, 900),)
OWNED = (OwnedDirectory("torch", "/opt", 900, 3),)
SIZE = ImageSize("small", "", "", 700, 900, PARTS, (), (), (), owned=OWNED)


def test_a_recorded_size_is_that_of_one_key(tmp_path: Path) -> None:
    record_size(SIZE, KEY, tmp_path)

    assert load_size("small", KEY, tmp_path) == SizeRecord(KEY, 700, 900, PARTS, OWNED)
    assert load_size("small", ImageKey("b" * 64), tmp_path) is None
    assert load_size("other", KEY, tmp_path) is None


@pytest.mark.parametrize("damage", ["", "[]", "{}", '{"key": "KEY", "stored": "x"}', "{\0"])
def test_a_damaged_record_is_unknown(tmp_path: Path, damage: str) -> None:
    record_size(SIZE, KEY, tmp_path)
    (tmp_path / "sizes/small.json").write_text(damage.replace("KEY", KEY))

    assert load_size("small", KEY, tmp_path) is None
