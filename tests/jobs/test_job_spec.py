"""Settings of `bake estimator` and `bake launch` that are missing or contradict each other."""

from dataclasses import replace

import pytest

from bakehouse.cluster.job import Group
from bakehouse.errors import UsageError
from bakehouse.jobs.job_spec import JobSpec, check_job, valid_job
from bakehouse.jobs.training_request import launch_image
from tests.support.release_records import a_record


def test_code_may_be_in_s3() -> None:
    uri = "s3://code/sourcedir.tar.gz"
    assert valid_job(launch_image(a_record()), JobSpec(source_dir=uri)).request.source_dir == uri


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (JobSpec(sdk="v4"), "unknown SDK `v4`"),
        (
            JobSpec(groups=(Group("data"),), instance_count=2),
            "`--group` replaces `--instance-type` and `--instance-count`",
        ),
        (
            JobSpec(distribution={"mpi": {}}, launcher="mpirun"),
            "`distribution` replaces `launcher` and `processes_per_host`",
        ),
        (JobSpec(source_dir="nowhere"), "the directory `nowhere` does not exist"),
        (JobSpec(source_dir="s3://code/src"), "`--source-dir s3://code/src` is not an archive"),
    ],
)
def test_settings_that_contradict_each_other(job: JobSpec, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        valid_job(launch_image(a_record()), job)


def test_spot_instances_are_not_kept() -> None:
    checked = valid_job(launch_image(a_record()), JobSpec(spot=True, keep_alive=60))
    assert [finding.message for finding in checked.warnings] == [
        "`keep_alive` can't be used with `EnableManagedSpotTraining`",
        "`EnableManagedSpotTraining` starts an interrupted job again without its checkpoints",
    ]
    assert valid_job(launch_image(a_record()), JobSpec(spot=False, keep_alive=0)).warnings == ()


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (
            JobSpec(instance_count=0, instance_type="ml.c5.xlarge"),
            "the job has 0 instances of `ml.c5.xlarge`",
        ),
        (JobSpec(processes_per_host=0), "a host cannot have 0 ranks"),
        (JobSpec(max_run=0), "`max_run` is 0"),
    ],
)
def test_zero_is_a_value(job: JobSpec, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        valid_job(launch_image(a_record()), job)


def test_an_empty_distribution_is_no_launcher() -> None:
    image = replace(launch_image(a_record()), launchers=("torchrun", "mpirun"))
    script = JobSpec(entry_point="train.sh", instance_count=1, distribution={})
    for sdk in ("v2", "v3"):
        job = replace(script, sdk=sdk)
        assert valid_job(image, job).request.distribution == {}
        assert check_job(image, replace(job, distribution=None)).request.distribution

    with pytest.raises(UsageError, match="`distribution` replaces `launcher`"):
        valid_job(image, replace(script, launcher="mpirun"))
