"""Images that a job names by their framework."""

from pathlib import Path

import pytest

from bakehouse.errors import UsageError
from bakehouse.jobs.job_images import find_image
from bakehouse.plan.workspace import open_workspace

RECIPE = """\
summary: {name}
base: {{debian: "12"}}
components: {{python: "3.12", pytorch: "{version}", sagemaker-pytorch-training: "*"}}
variants: {{pytorch: "{build}*"}}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pyproject.toml").write_text('[tool.bakehouse]\nrecipes = ["mine"]\n')
    (tmp_path / "mine/images").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def add(project: Path, name: str, version: str, build: str) -> None:
    text = RECIPE.format(name=name, version=version, build=build)
    (project / f"mine/images/{name}.yaml").write_text(text)


def test_a_framework_without_releases_names_the_newest_image_that_runs_there(project: Path) -> None:
    add(project, "old", "2.10.0", "cpu")
    add(project, "new", "2.13.0", "cpu")
    assert find_image(open_workspace(), "pytorch").name == "new"

    add(project, "gpu", "2.10.0", "cu")
    workspace = open_workspace()
    assert find_image(workspace, "pytorch", "ml.c5.xlarge").name == "new"
    assert find_image(workspace, "pytorch", "ml.g5.xlarge").name == "gpu"
    with pytest.raises(UsageError, match="no image with `pytorch` has been released yet"):
        find_image(workspace, "pytorch")
    with pytest.raises(UsageError, match="no image with `tensorflow` has been released yet"):
        find_image(workspace, "tensorflow", "ml.c5.xlarge")
