"""A requirement from a git repository is locked, built and imported."""

from pathlib import Path

import pytest

from bakehouse.lock import locking
from tests.integration.pip_projects import built_image, python_output, write_project
from tests.support.git_repository import commit, project

pytestmark = [pytest.mark.engine, pytest.mark.timeout(180)]


def test_a_package_of_a_commit_is_in_the_image(tmp_path: Path) -> None:
    head = commit(tmp_path / "up", project("1.2"))
    mine = tmp_path / "mine"
    write_project(mine, "from-git", f"own-lib @ git+{(tmp_path / 'up').as_uri()}@{head}\n")
    locking.run(mine, ["from-git"], lambda _: None)

    with built_image(mine, "from-git") as reference:
        code = "import importlib.metadata as m, own_lib; print(own_lib.V, m.version('own-lib'))"
        assert python_output(reference, code).split() == ["1.2", "1.2"]
        assert python_output(reference, "import importlib.metadata as m; print(m.version('six'))")
