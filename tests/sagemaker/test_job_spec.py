"""The words of `./bake estimator` and `launch` as a job."""

from typing import Any

import pytest

from bakehouse.cluster.job import Group
from bakehouse.errors import UsageError
from bakehouse.sagemaker import job_spec
from bakehouse.sagemaker.job_spec import JobSpec

NO_WORDS: dict[str, Any] = {
    "sdk": "v2",
    "source_dir": "",
    "instance_type": "",
    "instance_count": 0,
    "groups": (),
    "launcher": "",
    "processes_per_host": 0,
    "distribution": {},
    "keep_alive": 0,
}


def test_words_that_are_not_there_mean_the_defaults() -> None:
    assert job_spec.job_spec_from_options(**NO_WORDS) == JobSpec()


def test_code_may_lie_in_s3() -> None:
    address = "s3://code/sourcedir.tar.gz"
    assert job_spec.job_spec_from_options(**{**NO_WORDS, "source_dir": address}).source_dir == address


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"sdk": "v4"}, "unknown SDK `v4`"),
        (
            {"groups": [Group("data")], "instance_count": 2},
            "`--group` replaces `--instance-type` and `--instance-count`",
        ),
        (
            {"distribution": {"mpi": {}}, "launcher": "mpirun"},
            "`--distribution` replaces `--launcher` and `--processes-per-host`",
        ),
        ({"source_dir": "nowhere"}, "the directory `nowhere` does not exist"),
        ({"source_dir": "s3://code/src"}, "`--source-dir s3://code/src` is not an archive"),
    ],
)
def test_words_that_do_not_go_together(words: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        job_spec.job_spec_from_options(**{**NO_WORDS, **words})
