"""Fixtures for the translation of Dockerfiles."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bakehouse.catalog.catalog import Catalog
from bakehouse.commands.dockerfile_import.choose import import_and_select
from bakehouse.commands.dockerfile_import.translate import DockerfileBuild
from bakehouse.plan.workspace import open_workspace
from tests.commands.dockerfile_import.translated_dockerfile import Translated


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    return open_workspace().catalog


@pytest.fixture
def context(tmp_path: Path) -> Path:
    """A build context with a script, a tool and lists of packages."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src/train.py").write_text("print(1)\n")
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/a.sh").write_text("true\n")
    (tmp_path / "requirements.txt").write_text("pandas>=2\n")
    (tmp_path / "limits.txt").write_text("numpy<2\n")
    return tmp_path


@pytest.fixture
def translated(catalog: Catalog, context: Path) -> Callable[[str], Translated]:
    def run(text: str) -> Translated:
        return Translated(*import_and_select(text, DockerfileBuild(context / "Dockerfile", context), catalog))

    return run
