"""Training jobs as users start them: the examples on one host and on several, and every way to fail.

They mostly wait, so they run beside each other; each test looks at one of them.
"""

import json
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from bakehouse import workflow
from bakehouse.errors import UsageError
from bakehouse.job_report import JobReport, Status
from bakehouse.jobs import Group, Job, homogeneous
from bakehouse.project import HOME
from bakehouse.running import Launch, Wanted, job_name, with_launcher
from bakehouse.workspace import Workspace
from tests.integration.conftest import Fleet

pytestmark = pytest.mark.engine

EXAMPLES = HOME / "examples"
AT_ONCE = 3
DATA_AND_DNN = (Group("data", "ml.c5.18xlarge"), Group("dnn", "ml.p4d.24xlarge"))
SCRIPTS = {
    "raises": "raise ValueError('no such thing')\n",
    "exits-3": "import sys\nsys.exit(3)\n",
    "syntax": "def broken(:\n",
    "missing-module": "import no_such_module\n",
    "memory": "data = []\nwhile True:\n    data.append(bytearray(10**7))\n",
    "hangs": "import time\ntime.sleep(600)\n",
    "ends-well": (
        "import signal, sys, time\n"
        "def end(*_):\n    print('ending well', flush=True)\n    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\nprint('ready', flush=True)\ntime.sleep(600)\n"
    ),
}


@dataclass(frozen=True)
class Case:
    """A job to be run."""

    image: str = "mpi-cpu"
    example: str = ""
    entry_point: str = "train.py"
    groups: tuple[Group, ...] = homogeneous()
    distribution: Mapping[str, object] = field(default_factory=dict)
    hyperparameters: Mapping[str, object] = field(default_factory=dict)
    kills: Mapping[str, float] = field(default_factory=dict)
    memory: int | None = None
    deadline: float = 400.0
    stop_after: float | None = None
    stop_grace: float = 20.0
    channel: str = ""


CASES = {
    "tensorflow-groups": Case(
        "tensorflow-cpu", "heterogeneous", "train_tensorflow.py", DATA_AND_DNN, hyperparameters={"steps": 5}
    ),
    "tensorflow-lost": Case(
        "tensorflow-cpu",
        "heterogeneous",
        "train_tensorflow.py",
        DATA_AND_DNN,
        hyperparameters={"steps": 100_000},
        kills={"data": 60.0},
    ),
    "tensorflow-mirrored": Case(
        "tensorflow-cpu",
        "tensorflow-mirrored",
        groups=homogeneous(2),
        distribution={"multi_worker_mirrored_strategy": {"enabled": True}},
    ),
    "torch-ddp": Case(
        "pytorch-cpu",
        "torch-ddp",
        groups=homogeneous(2),
        distribution={"torch_distributed": {"enabled": True}},
    ),
    "mpi": Case(
        example="mpi",
        groups=homogeneous(2),
        distribution={"mpi": {"enabled": True, "processes_per_host": 2}},
    ),
    "one-process": Case(example="one-process", hyperparameters={"epochs": 500}, channel="training"),
    "raises": Case(groups=homogeneous(2)),
    "exits-3": Case(),
    "syntax": Case(),
    "missing-module": Case(),
    "memory": Case(memory=400_000_000),
    "hangs": Case(deadline=15.0),
    "ends-well": Case(stop_after=15.0),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripts, and a channel's data."""
    root = tmp_path_factory.mktemp("jobs")
    for name, script in SCRIPTS.items():
        (root / name).mkdir()
        (root / name / "train.py").write_text(script)
    (root / "data").mkdir()
    (root / "data/points.json").write_text(json.dumps([(x, 3 * x - 1) for x in range(5)]))
    return root


@pytest.fixture(scope="module")
def reports(workspace: Workspace, fleet: Fleet, folder: Path) -> dict[str, JobReport]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        running = {name: pool.submit(run, workspace, folder, name) for name in CASES}
        return {name: future.result() for name, future in running.items()}


def run(workspace: Workspace, folder: Path, name: str) -> JobReport:
    case = CASES[name]
    job = Job(
        image="",
        name=f"{name}-{threading.get_native_id()}",
        groups=case.groups,
        seed=5 if len(case.groups) > 1 else None,
        entry_point=case.entry_point,
        hyperparameters=case.hyperparameters,
        memory=case.memory,
        deadline=case.deadline,
        stop_after=case.stop_after,
        stop_grace=case.stop_grace,
        grace=30.0,
    )
    launch = Launch(case.distribution, *workflow.framework_of(workspace, case.image))
    job, _ = with_launcher(job, launch, workspace.catalog)
    kills = {job.hosts_by_group[group][0]: at for group, at in case.kills.items()}
    channels = {case.channel: folder / "data"} if case.channel else {}
    source = EXAMPLES / case.example if case.example else folder / name
    wanted = Wanted(replace(job, kills=kills), source, channels)
    return workflow.run_job(workspace, case.image, wanted, print, lambda host, data: None)


def said(report: JobReport, host: str = "algo-1") -> str:
    return (report.folder / "logs" / f"{host}.log").read_text()


@pytest.mark.parametrize(
    "name", ["one-process", "mpi", "torch-ddp", "tensorflow-mirrored", "tensorflow-groups"]
)
def test_an_example_completes(reports: dict[str, JobReport], name: str) -> None:
    found = reports[name]

    assert (found.status, found.reason) == (Status.COMPLETED, ""), said(found)
    assert [one.end for one in found.hosts] == ["exit 0"] * len(found.hosts)


def test_code_channels_and_hyperparameters_arrive_and_the_model_comes_back(
    reports: dict[str, JobReport],
) -> None:
    line = json.loads((reports["one-process"].folder / "model/algo-1/line.json").read_text())

    assert line == pytest.approx({"slope": 3.0, "offset": -1.0}, abs=0.1)


def test_ranks_of_two_hosts_train_one_model(reports: dict[str, JobReport]) -> None:
    assert "y = 2.00 x + 1.00" in said(reports["mpi"])
    assert "rank 1 of 2 on algo-2, gloo" in said(reports["torch-ddp"], "algo-2")
    assert "of 2 workers" in said(reports["tensorflow-mirrored"], "algo-2")


def test_each_rank_has_a_log_of_its_own(reports: dict[str, JobReport]) -> None:
    logs = reports["mpi"].folder / "logs"

    assert "rank 3 of 4 on algo-2" in (logs / "algo-2-rank-3.log").read_text()


def test_a_group_that_prepares_data_ends_with_the_training(reports: dict[str, JobReport]) -> None:
    found = reports["tensorflow-groups"]
    hosts = {one.group: one.host for one in found.hosts}

    assert "1 data hosts" in said(found, hosts["dnn"])
    assert f"{hosts['data']}: training is over" in said(found, hosts["data"])


def test_a_data_host_that_dies_is_noticed_by_the_training(reports: dict[str, JobReport]) -> None:
    found = reports["tensorflow-lost"]
    ends = {one.group: one for one in found.hosts}

    assert found.reason == f"InternalServerError: {ends['data'].host} was lost"
    assert (ends["data"].end, ends["dnn"].end) == ("killed by this run", "exit 1")
    assert f"data host {ends['data'].host} was lost" in said(found, ends["dnn"].host)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("raises", "ValueError: no such thing"),
        ("syntax", "SyntaxError: invalid syntax"),
        ("missing-module", "ModuleNotFoundError: No module named 'no_such_module'"),
    ],
)
def test_a_failing_script_is_told_with_its_last_lines(
    reports: dict[str, JobReport], name: str, words: str
) -> None:
    found = reports[name]

    assert (found.status, found.hosts[0].end) == (Status.FAILED, "exit 1")
    assert found.reason.startswith("AlgorithmError: ")
    assert found.reason.endswith(", exit code: 1")
    assert any(words in line for line in found.tail), found.tail


def test_the_scripts_own_exit_code_is_in_what_the_toolkit_says(reports: dict[str, JobReport]) -> None:
    found = reports["exits-3"]

    assert found.hosts[0].end == "exit 1"
    assert "ExitCode 3" in found.reason


def test_a_host_without_memory_says_so(reports: dict[str, JobReport]) -> None:
    found = reports["memory"]

    assert found.status is Status.FAILED
    assert found.hint == "take a larger instance type, or a smaller batch"


def test_a_job_that_hangs_ends_at_its_deadline(reports: dict[str, JobReport]) -> None:
    found = reports["hangs"]

    assert (found.status, found.reason) == (
        Status.STOPPED,
        "MaxRuntimeExceeded: no end within 15 s",
    )
    assert found.hosts[0].end == "still running"


def test_a_stop_reaches_no_script_that_the_toolkit_started(reports: dict[str, JobReport]) -> None:
    """The toolkit is the first process of its host and hands SIGTERM on to nobody."""
    found = reports["ends-well"]

    assert (found.status, found.reason) == (Status.STOPPED, "stopped after 15 s")
    assert found.hosts[0].end == "still running"
    assert "ending well" not in said(found)


def test_the_report_lies_beside_the_logs(reports: dict[str, JobReport]) -> None:
    written = json.loads((reports["mpi"].folder / "report.json").read_text())

    assert (written["status"], len(written["hosts"])) == ("Completed", 2)


def test_an_image_that_nobody_has(workspace: Workspace) -> None:
    wanted = Wanted(Job(image="", name=job_name("nobody")))

    with pytest.raises(UsageError, match="`mpi-cup` is no image of a recipe, and the engine has none"):
        workflow.run_job(workspace, "mpi-cup", wanted, print, lambda host, data: None)
