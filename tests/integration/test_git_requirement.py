"""A requirement from a git repository is locked, built and imported."""

import subprocess
import sys
from pathlib import Path

import pytest

from bakehouse.builder.progress import Mode, Progress
from bakehouse.lock import locking
from bakehouse.pipeline.build import build
from bakehouse.plan.workspace import open_workspace, select
from tests.support.git_repository import commit, project

pytestmark = [pytest.mark.engine, pytest.mark.timeout(180)]


def test_a_package_of_a_commit_is_in_the_image(tmp_path: Path) -> None:
    head = commit(tmp_path / "up", project("1.2"))
    mine = tmp_path / "mine"
    (mine / "recipes/images").mkdir(parents=True)
    (mine / "pyproject.toml").write_text('[tool.bakehouse]\nrecipes = ["recipes"]\n')
    (mine / "recipes/images/from-git.yaml").write_text(
        'summary: Own library\nbase: {debian: "12"}\ncomponents: {python: "3.11"}\n'
        "requirements: requirements.txt\n"
    )
    requirement = f"own-lib @ git+{(tmp_path / 'up').as_uri()}@{head}\n"
    (mine / "recipes/images/requirements.txt").write_text(requirement)
    locking.run(mine, ["from-git"], lambda _: None)

    with Progress(sys.__stderr__ or sys.stderr, Mode.LINES) as progress:
        [built] = build(select(open_workspace(mine), ["from-git"]), progress.report, progress=progress)

    reference = built.image.reference
    code = "import own_lib, importlib.metadata as m; print(own_lib.V, m.version('own-lib'), m.version('six'))"
    try:
        command = ["docker", "run", "--rm", "--network=none", reference, "python", "-c", code]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        assert output.split()[:2] == ["1.2", "1.2"]
    finally:
        latest = f"{reference.rpartition(':')[0]}:latest"
        subprocess.run(["docker", "rmi", reference, latest], check=False, capture_output=True)
