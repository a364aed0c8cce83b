"""The jobs of AWS's documents, in each form that can express them, with moto for SageMaker."""

from collections.abc import Iterator
from contextlib import chdir
from dataclasses import replace
from pathlib import Path

import pytest

from bakehouse.catalog.project import HOME
from bakehouse.errors import UsageError
from bakehouse.jobs.snippets import snippet
from bakehouse.plan.workspace import Workspace
from bakehouse.sagemaker.follow import Pace
from bakehouse.sagemaker.launch import JobCallbacks, launch
from tests.support.errors import raised
from tests.support.sagemaker_releases import put
from tests.support.source_jobs import SOURCE_JOBS, launcher_of, resources_of
from tests.support.training_front import TrainingFront

pytestmark = pytest.mark.timeout(120)

IN_V3 = [name for name, job in SOURCE_JOBS.items() if not job.not_in_v3]
NOT_IN_V3 = [name for name, job in SOURCE_JOBS.items() if job.not_in_v3]


@pytest.fixture
def aws(fronts: TrainingFront, monkeypatch: pytest.MonkeyPatch) -> TrainingFront:
    for name, value in fronts.environment.items():
        monkeypatch.setenv(name, value)
    return fronts


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "pyproject.toml").write_text("[tool.bakehouse]\n")
    (tmp_path / "train.py").write_text("print('training')\n")
    with chdir(tmp_path):
        yield tmp_path


@pytest.mark.parametrize("name", SOURCE_JOBS)
def test_a_launched_job_has_its_hosts_and_launcher(
    catalogue: Workspace, project: Path, aws: TrainingFront, name: str
) -> None:
    job = SOURCE_JOBS[name]
    put(project, job.record)
    workspace = replace(catalogue, project=replace(catalogue.project, root=project))
    callbacks = JobCallbacks(print, print, lambda warning: None)

    launch(workspace, "pytorch-cpu", replace(job.spec, name=name), callbacks, Pace(), detach=True)

    assert resources_of(aws.job(name), job) == job.resources
    assert launcher_of(aws.job(name), job) == job.hyperparameters


@pytest.mark.parametrize("name", SOURCE_JOBS)
def test_a_printed_request_has_its_hosts_and_launcher(project: Path, aws: TrainingFront, name: str) -> None:
    job = SOURCE_JOBS[name]
    before = set(aws.jobs())

    exec(snippet(replace(job.record, image=f"printed-{name}"), replace(job.spec, sdk="boto3")).code, {})

    [sent] = set(aws.jobs()) - before
    assert resources_of(aws.job(sent), job) == job.resources
    assert launcher_of(aws.job(sent), job) == job.hyperparameters


@pytest.mark.parametrize("name", IN_V3)
def test_version_3_is_the_default_where_it_can_express_the_job(project: Path, name: str) -> None:
    job = SOURCE_JOBS[name]

    printed = snippet(job.record, job.spec)

    assert printed.sdk == "v3"
    for group in job.spec.groups:
        assert f'instance_type="{group.instance_type}", instance_count={group.count}' in printed.code


@pytest.mark.parametrize("name", NOT_IN_V3)
def test_other_jobs_are_printed_for_version_2_with_the_reason(project: Path, name: str) -> None:
    job = SOURCE_JOBS[name]

    printed = snippet(job.record, job.spec)

    assert printed.sdk == "v2"
    assert f"# Not for version 3: {job.not_in_v3}." in printed.code
    error = raised(UsageError, snippet, job.record, replace(job.spec, sdk="v3"))
    assert error.diagnostics[0].message == job.not_in_v3


def test_jobs_in_groups_use_the_examples() -> None:
    scripts = {
        name: Path(job.spec.source_dir, job.spec.entry_point)
        for name, job in SOURCE_JOBS.items()
        if job.spec.groups
    }

    assert {name: path.relative_to(HOME).as_posix() for name, path in scripts.items()} == {
        "resnet50-in-groups": "examples/heterogeneous/train_tensorflow.py",
        "mnist-in-groups": "examples/heterogeneous/train_pytorch.py",
    }
    assert all(path.is_file() for path in scripts.values())
