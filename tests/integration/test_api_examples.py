"""The examples of the Python API with the real SageMaker SDKs."""

import sysconfig
from pathlib import Path

import pytest

from bakehouse.catalog.project import HOME
from bakehouse.catalog.project import find as find_project
from bakehouse.ledger.store import open_ledger
from bakehouse.plan.workspace import open_workspace, select
from tests.integration.sagemaker_sdk import V2, V3, Aws, installed
from tests.support.documents import blocks
from tests.support.s3_ledgers import numbered

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

EXAMPLES = {
    name: code
    for language, code in blocks(HOME / "docs/reference/api.md")
    if language == "python"
    for name in ("ModelTrainer", "LocalPipelineSession", "remote")
    if f"import {name}\n" in code
}
REGISTRY = "123456789012.dkr.ecr.eu-west-1.amazonaws.com"
PATHS = f"""
import sys
# After the SDK's own packages
sys.path += {[str(HOME), sysconfig.get_paths()["purelib"]]!r}
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a release of `churn`."""
    project = tmp_path_factory.mktemp("project")
    (project / "recipes/images").mkdir(parents=True)
    (project / "recipes/images/churn.yaml").write_text(
        'summary: Own\nbase: {debian: "12"}\ncomponents: {python: "*"}\n'
    )
    (project / "pyproject.toml").write_text(
        f'[tool.bakehouse]\nrecipes = ["recipes"]\nregistry = "{REGISTRY}"\n'
    )
    (project / "src").mkdir()
    (project / "src/train.py").write_text("")
    [image] = select(open_workspace(project), ["churn"]).plan.images
    record = numbered(1, image="churn", registry=REGISTRY, repository="bakehouse/churn", key=image.key)
    open_ledger(find_project(project)).add(record)
    return project


URI = f"{REGISTRY}/bakehouse/churn@sha256:{'0' * 63}1"


def test_a_notebook_cell(aws: Aws, project: Path) -> None:
    code = PATHS + EXAMPLES["ModelTrainer"] + "print(trainer.training_image)"

    assert aws.run(installed(V3), ["-c", code], project).splitlines()[-1] == URI


def test_a_step_of_a_local_pipeline(aws: Aws, project: Path) -> None:
    started = """
from sagemaker.local.image import _SageMakerContainer
# Both would run `docker compose`.
_SageMakerContainer._get_compose_cmd_prefix = lambda *arguments: []
_SageMakerContainer.train = lambda container, *settings: print("image", container.image)
"""
    ended = 'print(execution.describe()["PipelineExecutionStatus"])'

    code = PATHS + started + EXAMPLES["LocalPipelineSession"] + ended
    output = aws.run(installed(V2), ["-c", code], project)

    assert f"image {URI}" in output.splitlines()
    assert output.splitlines()[-1] == "Succeeded"


def test_a_remote_function(aws: Aws, project: Path) -> None:
    call = "train(1)\n"
    (project / "remote_example.py").write_text(PATHS + EXAMPLES["remote"] + call)

    output = aws.failure(installed(V3), ["remote_example.py"], project)

    # moto completes the job without running it, so a result cannot be loaded.
    assert "results" in output
    jobs = [job for name, job in aws.jobs().items() if name.startswith("train")]
    assert [job["AlgorithmSpecification"]["TrainingImage"] for job in jobs] == [URI]
