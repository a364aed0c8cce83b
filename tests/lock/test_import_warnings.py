"""Wheels that were compiled for NumPy 1, next to NumPy 2."""

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from bakehouse.fetch.pip_config import PipConfig
from bakehouse.lock.python import Index, LockedFile
from bakehouse.lock.recipe_lock import LAST_NUMPY_1, import_warnings
from tests.support.wheels import wheel

OLD = LockedFile(
    "pandas", "1.5.3", "pandas-1.5.3-cp311-cp311-linux_x86_64.whl", "a" * 64, 5, uploaded=date(2023, 1, 19)
)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    directory = tmp_path / "index"
    wheel(directory, "pandas", "1.5.3", requires=("numpy",))
    wheel(directory, "plain", "1.5.3")
    wheel(directory, "numpy", "1.26.4")
    return Index(PipConfig(find_links=(str(directory),), no_index=True), None)


def test_a_wheel_of_numpy_1_is_reported(index: Index) -> None:
    assert [*import_warnings("small", [OLD], "2.4.6", index)] == [
        "small: pandas 1.5.3 cannot be imported with NumPy 2.4.6: its wheel of 2023-01-19 was compiled for "
        "NumPy 1; ask for `numpy<2`, or a newer `pandas`"
    ]


@pytest.mark.parametrize("numpy", ["", "1.26.4"])
def test_without_numpy_2_nothing_is_reported(numpy: str, index: Index) -> None:
    assert [*import_warnings("small", [OLD], numpy, index)] == []


@pytest.mark.parametrize(
    "file",
    [
        replace(OLD, uploaded=date.fromordinal(LAST_NUMPY_1.toordinal() + 1)),
        replace(OLD, uploaded=None),
        replace(OLD, file="pandas-1.5.3-py3-none-any.whl"),
        replace(OLD, file="pandas-1.5.3-py3-none-manylinux2014_x86_64.whl"),
        replace(OLD, file="pandas-1.5.3.tar.gz"),
        replace(OLD, name="plain", file="plain-1.5.3-cp311-cp311-linux_x86_64.whl"),
    ],
    ids=["newer", "unknown day", "pure", "library", "sources", "without numpy"],
)
def test_other_files_are_not_reported(file: LockedFile, index: Index) -> None:
    assert [*import_warnings("small", [file], "2.4.6", index)] == []
