"""The launcher of local jobs that name none: the one that smoke tests take."""

import pytest

from bakehouse.cluster.job import Group, TrainingJob
from bakehouse.sagemaker.local_job import RunRequest, with_default_launcher

PYTORCH = "sagemaker_pytorch_container.training:main"
BOTH = ("mpirun", "torchrun")
ALONE = (
    "note: no launcher: the script starts once on each of 2 hosts. Unless it connects them itself, "
    "each host trains alone"
)


def chosen(
    launchers: tuple[str, ...],
    module: str = "",
    groups: tuple[Group, ...] = (Group(count=2),),
    processes: int | None = None,
    entry_point: str = "train.py",
) -> tuple[object, list[str]]:
    """Return the distribution and the notes of a job."""
    notes: list[str] = []
    job = TrainingJob(groups=groups, entry_point=entry_point)
    request = RunRequest(job, processes_per_host=processes)
    return with_default_launcher(request, launchers, module, "", notes.append).distribution, notes


@pytest.mark.parametrize(
    ("launchers", "module", "name", "strategy"),
    [
        pytest.param(BOTH, PYTORCH, "torchrun", "torch_distributed", id="PyTorch"),
        pytest.param(BOTH, "", "mpirun", "mpi", id="a toolkit that does not start torchrun"),
        pytest.param(("mpirun",), PYTORCH, "mpirun", "mpi", id="without torchrun"),
    ],
)
def test_several_hosts_start_with_the_default_of_the_image(
    launchers: tuple[str, ...], module: str, name: str, strategy: str
) -> None:
    note = f"note: `{name}` starts the script, the image's default; `--distribution '{{}}'` sets none"

    assert chosen(launchers, module) == ({strategy: {"enabled": True}}, [note])


@pytest.mark.parametrize("launchers", [(), ("torchrun",)], ids=["no launcher", "one that nothing starts"])
def test_hosts_that_may_train_alone_are_reported(launchers: tuple[str, ...]) -> None:
    assert chosen(launchers) == ({}, [ALONE])


def test_only_scripts_of_python_start_with_a_launcher() -> None:
    assert chosen(BOTH, PYTORCH, entry_point="train.sh") == ({}, [ALONE])


def test_one_process_needs_no_launcher() -> None:
    assert chosen(BOTH, PYTORCH, (Group(),)) == ({}, [])


def test_several_processes_of_one_host_start_with_the_default() -> None:
    assert chosen(BOTH, PYTORCH, (Group(),), processes=2)[0] == {"torch_distributed": {"enabled": True}}


def test_instance_groups_start_the_script_on_each_host() -> None:
    groups = (Group("data", "ml.c5.xlarge", 1), Group("dnn", "ml.c5.xlarge", 1))

    assert chosen(BOTH, PYTORCH, groups) == ({}, [])
