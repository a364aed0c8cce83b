"""Metadata in the archive of a source distribution."""

from pathlib import Path

import pytest

from bakehouse.lock.python import Metadata
from bakehouse.lock.sdist_metadata import recorded
from tests.support.sdists import sdist

INFO = "Metadata-Version: 2.1\nName: Own.Lib\nVersion: 1.0\nRequires-Python: >=3.8\n"


def test_the_author_s_metadata_is_read(tmp_path: Path) -> None:
    file = sdist(tmp_path, "own", "1.0", {"PKG-INFO": f"{INFO}Requires-Dist: torch\nRequires-Dist: six>=1\n"})

    assert recorded(file) == Metadata("own-lib", "1.0", ("torch", "six>=1"), ">=3.8")


@pytest.mark.parametrize("directory", ["", "src/"])
def test_older_archives_have_requirements_in_another_file(tmp_path: Path, directory: str) -> None:
    text = "torch\n\n[:python_version < '3.9']\nold>=1\n\n[gpu]\ncupy\n\n[gpu:os_name == 'nt']\nwin\n"
    files = {"PKG-INFO": INFO, f"{directory}own.egg-info/requires.txt": text}

    metadata = recorded(sdist(tmp_path, "own", "1.0", files))

    assert metadata
    assert metadata.requires == (
        "torch",
        'old>=1; python_version < "3.9"',
        'cupy; extra == "gpu"',
        'win; os_name == "nt" and extra == "gpu"',
    )


@pytest.mark.parametrize("text", ["", "Name: own\n", f"{INFO}Requires-Dist: not valid at all\n"])
def test_unusable_metadata_is_none(tmp_path: Path, text: str) -> None:
    assert recorded(sdist(tmp_path, "own", "1.0", {"PKG-INFO": text})) is None
