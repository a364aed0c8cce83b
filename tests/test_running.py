"""What a run starts with: the launcher's settings, the instance types, a name."""

from dataclasses import replace

import pytest

from bakehouse.errors import UsageError
from bakehouse.jobs import Group, Job, homogeneous
from bakehouse.running import Launch, efa_types, job_name, with_launcher
from tests.conftest import Tree

JOB = Job("", "x", homogeneous(2), hyperparameters={"lr": 0.1})
MPI = {"mpi": {"enabled": True, "processes_per_host": 2}}
TORCH = {"torch_distributed": {"enabled": True}}
INSTANCE = """\
summary: Instance types
releases:
  - version: "1"
    variants:
      - name: ml.p4d.24xlarge
        provides: {gpus: "8", efa-interfaces: "4"}
      - name: ml.c5.xlarge
        provides: {gpus: "0", efa-interfaces: "0"}
      - name: ml.new
"""


@pytest.fixture
def aims(tree: Tree) -> Tree:
    tree.component("instance", INSTANCE)
    return tree


def test_a_distribution_becomes_the_hyperparameters_of_the_sdk(aims: Tree) -> None:
    job, _ = with_launcher(JOB, Launch(MPI), aims.catalog())

    assert job.processes == 2
    assert {name: job.hyperparameters[name] for name in ("lr", "sagemaker_mpi_enabled")} == {
        "lr": 0.1,
        "sagemaker_mpi_enabled": True,
    }


def test_the_distribution_wins_over_hyperparameters_given_by_hand(aims: Tree) -> None:
    own = replace(JOB, hyperparameters={"sagemaker_mpi_num_of_processes_per_host": 3})

    assert with_launcher(own, Launch(MPI), aims.catalog())[0].processes == 2


def test_ranks_a_host_can_be_asked_for_apart(aims: Tree) -> None:
    job, _ = with_launcher(JOB, Launch(TORCH, "pytorch", "2.9.0", processes=2), aims.catalog())

    assert (job.processes, job.hyperparameters["sagemaker_mpi_num_of_processes_per_host"]) == (2, 2)


def test_without_a_distribution_there_is_one_process_a_host(aims: Tree) -> None:
    assert with_launcher(JOB, Launch({}), aims.catalog()) == (JOB, ())


def test_ranks_start_in_the_group_that_the_distribution_names(aims: Tree) -> None:
    groups = (Group("data", "ml.c5.xlarge"), Group("dnn", "ml.p4d.24xlarge", 2))
    distribution = {**MPI, "instance_groups": ["dnn"]}
    job, _ = with_launcher(replace(JOB, groups=groups), Launch(distribution), aims.catalog())

    assert (job.launched_in, job.ranks) == (("dnn",), 4)


def test_more_ranks_than_gpus_are_refused(aims: Tree) -> None:
    job = replace(JOB, groups=(Group(instance_type="ml.p4d.24xlarge"),))

    with pytest.raises(UsageError, match=r"is 9, and `ml\.p4d\.24xlarge` has 8 GPUs"):
        with_launcher(job, Launch({"mpi": {"enabled": True, "processes_per_host": 9}}), aims.catalog())


def test_which_instance_types_have_efa(aims: Tree) -> None:
    assert efa_types(aims.catalog()) == {"ml.p4d.24xlarge"}


def test_the_name_of_a_job_is_one_that_sagemaker_takes() -> None:
    name = job_name("registry.example/team/pytorch-2.9_efa" + "x" * 60, 0.0)

    assert name == "pytorch-2-9-efaxxxxxxxxxxxxxxxxxxxxxxxxx-1970-01-01-00-00-00"
    assert len(name) <= 63
