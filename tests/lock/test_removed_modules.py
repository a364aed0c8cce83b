"""Wheels that import modules which Python or setuptools removed."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from bakehouse.lock import removed_modules
from bakehouse.lock.python import LockedFile
from tests.support.wheels import sha256, wheel


def warnings(
    directory: Path,
    files: Mapping[str, str],
    python: str = "3.13",
    setuptools: str = "",
    others: tuple[str, ...] = (),
    *,
    is_downloaded: bool = True,
) -> list[str]:
    path = wheel(directory, "old", "1.0", files=files)
    locked = LockedFile("old", "1.0", path.name, sha256(path), 5)
    if is_downloaded:
        (directory / locked.sha256).mkdir()
        shutil.move(path, directory / locked.sha256)
    others_locked = [LockedFile(name, "1", f"{name}-1-py3-none-any.whl", "b" * 64, 5) for name in others]
    return [*removed_modules.warnings([locked, *others_locked], directory, python, setuptools)]


DEEP = {
    "pkg/__init__.py": "from . import low\n",
    "pkg/low.py": "from pkg.sub.deep import thing\n",
    "pkg/sub/__init__.py": "",
    "pkg/sub/deep.py": "import imp\nthing = 1\n",
}


def test_the_module_that_fails_is_named(tmp_path: Path) -> None:
    assert warnings(tmp_path, DEEP) == [
        "old 1.0 cannot be imported: `pkg/sub/deep.py` imports `imp`, which Python 3.12 removed; "
        "ask for a newer `old`"
    ]


def test_setuptools_without_pkg_resources(tmp_path: Path) -> None:
    assert warnings(tmp_path, {"pkg/__init__.py": "import pkg_resources\n"}, setuptools="82.0.1") == [
        "old 1.0 cannot be imported: `pkg/__init__.py` imports `pkg_resources`, which setuptools 82 removed; "
        "ask for `setuptools<82`, or a newer `old`"
    ]


@pytest.mark.parametrize(
    ("text", "python", "setuptools", "count"),
    [
        ("import distutils.core\n", "3.12", "", 1),
        ("import distutils.core\n", "3.12", "80.1", 0),
        ("import distutils.core\n", "3.11", "", 0),
        ("import telnetlib\n", "3.12", "", 0),
        ("import telnetlib\n", "3.13", "", 1),
        ("import pkg_resources\n", "3.13", "81.0", 0),
        ("import pkg_resources\n", "3.13", "", 0),
    ],
)
def test_what_counts_is_the_version_in_the_image(
    text: str, python: str, setuptools: str, count: int, tmp_path: Path
) -> None:
    assert len(warnings(tmp_path, {"pkg/__init__.py": text}, python, setuptools)) == count


@pytest.mark.parametrize(
    "files",
    [
        {"pkg/__init__.py": "try:\n    import imp\nexcept ImportError:\n    imp = None\n"},
        {"pkg/__init__.py": "def load():\n    import imp\n"},
        {"pkg/__init__.py": "", "pkg/never.py": "import imp\n"},
        {"pkg/__init__.py": "from .imp import x\n", "pkg/imp.py": "x = 1\n"},
        {"pkg/__init__.py": "import imp, (\n"},
        {"tests/__init__.py": "import imp\n"},
    ],
    ids=["caught", "in a function", "not imported", "its own", "no Python", "tests"],
)
def test_imports_that_may_not_run_are_not_reported(files: dict[str, str], tmp_path: Path) -> None:
    assert warnings(tmp_path, files) == []


def test_a_package_that_brings_the_module_back(tmp_path: Path) -> None:
    assert warnings(tmp_path, {"pkg/__init__.py": "import cgi\n"}, others=("legacy-cgi",)) == []
    assert warnings(tmp_path / "2", {"pkg/__init__.py": "import imghdr\n"}, others=("standard-imghdr",)) == []


def test_of_a_wheel_that_was_not_downloaded_nothing_is_known(tmp_path: Path) -> None:
    assert warnings(tmp_path, DEEP, is_downloaded=False) == []
