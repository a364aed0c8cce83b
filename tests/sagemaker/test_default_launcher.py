"""The launcher of local jobs that name none: that of the smoke test, and of the printed job."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from bakehouse.catalog.user_smoke import UserSmoke
from bakehouse.cluster.job import Group, TrainingJob
from bakehouse.errors import Location
from bakehouse.jobs.distribution import LaunchContext, launch_settings
from bakehouse.jobs.instance_groups import InstanceGroup
from bakehouse.jobs.job_spec import JobSpec, check_job
from bakehouse.jobs.tested_job import with_tested_settings
from bakehouse.jobs.training_request import LaunchImage
from bakehouse.sagemaker.local_job import RunRequest, with_default_launcher

PYTORCH = "sagemaker_pytorch_container.training:main"
BOTH = ("mpirun", "torchrun")
TENSORFLOW = "sagemaker_tensorflow_container.training:main"
NOTHING: Mapping[str, str] = {}
ALONE = (
    "note: no launcher: the script starts once on each of 2 hosts. Unless it connects them itself, "
    "each host trains alone"
)

SMOKE = UserSmoke("train.py", 1, 1, "", (), (), "", 600, Location(Path("churn.yaml"), 1, 1))


def chosen(
    launchers: tuple[str, ...],
    module: str = "",
    groups: tuple[Group, ...] = (Group(count=2),),
    processes: int | None = None,
    entry_point: str = "train.py",
    smoke: UserSmoke | None = None,
    versions: Mapping[str, str] = NOTHING,
    components: frozenset[str] = frozenset(),
) -> tuple[Mapping[str, object], list[str]]:
    """Return the distribution and the notes of a job."""
    notes: list[str] = []
    job = TrainingJob(groups=groups, entry_point=entry_point)
    request = RunRequest(job, processes_per_host=processes)
    image = LaunchImage("churn", "", versions, launchers, module, smoke=smoke, components=components)
    return with_default_launcher(request, image, notes.append).distribution, notes


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
    note = f"note: the launcher is `{name}`, the image's default; use `--distribution '{{}}'` for none"

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


@pytest.mark.parametrize("component", ["horovod", "horovod-nccl"])
def test_ranks_of_horovod_start_with_mpi(component: str) -> None:
    versions = {"tensorflow": "2.21.0", component: "0.28.1"}

    assert chosen(("mpirun",), TENSORFLOW, versions=versions)[0] == {"mpi": {"enabled": True}}


def test_tensorflow_connects_the_hosts() -> None:
    note = "note: the launcher is `tensorflow`, the image's default; use `--distribution '{}'` for none"

    assert chosen(("mpirun",), TENSORFLOW) == ({"multi_worker_mirrored_strategy": {"enabled": True}}, [note])


@pytest.mark.parametrize(
    ("version", "components"),
    [("2.8.4", frozenset[str]()), ("2.11.0", frozenset({"aws-training-compiler-tensorflow"}))],
    ids=["before 2.9", "Training Compiler"],
)
def test_mpi_starts_tensorflow_without_its_own_strategy(version: str, components: frozenset[str]) -> None:
    versions = {"tensorflow": version}
    distribution, _ = chosen(("mpirun",), TENSORFLOW, versions=versions, components=components)

    assert distribution == {"mpi": {"enabled": True}}
    hosts = (InstanceGroup("ml.c5.xlarge", 2, gpus=0),)
    assert launch_settings(distribution, LaunchContext(hosts, "tensorflow", version)).launcher == "mpi"


@pytest.mark.parametrize(
    ("launcher", "expected", "origin"),
    [
        ("", {"torch_distributed": {"enabled": True}}, "the image's default"),
        ("mpirun", {"mpi": {"enabled": True, "processes_per_host": 1}}, "that of the smoke test"),
    ],
)
def test_the_smoke_test_can_select_a_launcher(
    launcher: str, expected: Mapping[str, object], origin: str
) -> None:
    distribution, [note] = chosen(BOTH, PYTORCH, smoke=replace(SMOKE, launcher=launcher))

    assert distribution == expected
    assert origin in note
    assert chosen(BOTH, PYTORCH, smoke=replace(SMOKE, launcher="script")) == ({}, [ALONE])
    assert chosen(BOTH, PYTORCH, smoke=replace(SMOKE, launcher="script", entry_point="check.py"))[0]


@pytest.mark.parametrize(("hosts", "processes"), [(1, 1), (2, 1), (2, 2)])
@pytest.mark.parametrize("launcher", [None, "", "torchrun", "mpirun", "script"])
@pytest.mark.parametrize(
    ("module", "versions"),
    [
        (PYTORCH, {"pytorch": "2.9.1"}),
        (TENSORFLOW, {"tensorflow": "2.21.0"}),
        (TENSORFLOW, {"tensorflow": "2.8.4"}),
        (TENSORFLOW, {"tensorflow": "2.21.0", "horovod": "0.28.1"}),
        (TENSORFLOW, {"tensorflow": "2.21.0", "horovod-nccl": "0.28.1"}),
        ("", {}),
    ],
    ids=[
        "PyTorch",
        "TensorFlow",
        "TensorFlow before 2.9",
        "Horovod",
        "Horovod with NCCL",
        "no toolkit of a framework",
    ],
)
def test_the_printed_job_has_the_launcher_of_the_local_job(
    module: str, versions: dict[str, str], launcher: str | None, hosts: int, processes: int
) -> None:
    launchers = BOTH if module == PYTORCH else ("mpirun",)
    if (launcher == "torchrun" and module != PYTORCH) or (launcher == "script" and processes > 1):
        return
    smoke = None if launcher is None else replace(SMOKE, launcher=launcher, hosts=hosts, processes=processes)
    image = LaunchImage("churn", "", versions, launchers, module, entry_point="train.py", smoke=smoke)
    job = with_tested_settings(image, JobSpec(instance_count=2, sdk="v2"))

    printed = check_job(image, job).request.distribution
    local, _ = chosen(launchers, module, entry_point="train.py", smoke=smoke, versions=versions)
    assert printed == local
