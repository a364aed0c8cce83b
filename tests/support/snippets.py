"""Releases, and the SDK code that is printed for them."""

from dataclasses import replace

from bakehouse.jobs import snippets
from bakehouse.jobs.job_spec import JobSpec
from bakehouse.ledger.releases import ReleasedComponent, ReleaseRecord
from tests.support.release_records import a_record

HOST = "123456789012.dkr.ecr.eu-west-1.amazonaws.com"
MPI = replace(
    a_record(),
    registry=HOST,
    image_uri=f"{HOST}/bakehouse/mpi-cpu@sha256:4f1c",
)
PYTORCH = replace(
    MPI,
    image="pytorch-cpu",
    image_uri=f"{HOST}/bakehouse/pytorch-cpu@sha256:4f1c",
    transport="gloo",
    parts=(ReleasedComponent("pytorch", "2.9.1", "cpu"),),
    launchers=("mpirun", "torchrun"),
    training_module="sagemaker_pytorch_container.training:main",
)


DEFAULTS = JobSpec()


def snippet(record: ReleaseRecord, job: JobSpec = DEFAULTS) -> str:
    return snippets.snippet(record, job).code
