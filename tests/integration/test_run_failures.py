"""Training jobs that fail in different ways, and their messages."""

import contextlib
import os
from dataclasses import replace
from pathlib import Path

import docker
import pytest

from bakehouse.cli.diagnostics import failure_text
from bakehouse.cluster.job import TrainingJob, homogeneous, input_files
from bakehouse.cluster.job_report import JobReport, Status, text
from bakehouse.errors import UsageError
from bakehouse.pipeline.run import run_job
from bakehouse.plan.workspace import Workspace
from bakehouse.sagemaker.local_job import RunRequest
from bakehouse.util.format import format_seconds
from tests.integration import jobs
from tests.integration.fleet import Fleet
from tests.integration.jobs import DATA_AND_DNN, Case, due, each, log_text, run_all
from tests.integration.killed_clusters import in_engine

pytestmark = pytest.mark.engine

MPI = {"mpi": {"enabled": True, "processes_per_host": 2}}
TORCHRUN = {"torch_distributed": {"enabled": True}}
RANK = "from mpi4py import MPI\nranks = MPI.COMM_WORLD\n"
FOR_EVER = f"{RANK}import time\nwhile True:\n    print(ranks.allreduce(1), 'ranks')\n    time.sleep(0.1)\n"
EAT = "    data.append(bytearray(10**7))\n"

SCRIPTS = {
    "raises-torchrun": (
        "import torch.distributed as ranks\nranks.init_process_group('gloo')\n"
        "if ranks.get_rank() == 1:\n    raise ValueError('no such thing')\nranks.barrier()\n"
    ),
    "killed-torchrun": (
        "import time, torch, torch.distributed as ranks\nranks.init_process_group('gloo')\n"
        "while True:\n    ranks.all_reduce(torch.ones(1))\n    print('reduced')\n    time.sleep(0.1)\n"
    ),
    "killed-mpi": FOR_EVER,
    "cut-off": (
        "import json, os, socket, time\n"
        "[other] = {*json.loads(os.environ['SM_HOSTS'])} - {os.environ['SM_CURRENT_HOST']}\n"
        "waiting = socket.create_server(('0.0.0.0', 6000))\ntime.sleep(3)\n"
        "socket.create_connection((other, 6000), timeout=5)\n"
    ),
    "raises-mpi": f"{RANK}if ranks.rank == 3:\n    raise ValueError('no such thing')\nranks.barrier()\n",
    "exits-3-mpi": f"import sys\n{RANK}if ranks.rank == 1:\n    sys.exit(3)\nranks.barrier()\n",
    "memory-mpi": f"{RANK}data = []\nwhile ranks.rank == 1:\n{EAT}ranks.barrier()\n",
    "no-such-name-mpi": (
        f"import socket\n{RANK}if ranks.rank == 1:\n    socket.create_connection(('algo-9', 7777))\n"
        "ranks.barrier()\n"
    ),
    "port-taken-torchrun": "",
    "port-taken": (
        "import socket\nfirst = socket.create_server(('', 7777))\nsecond = socket.create_server(('', 7777))\n"
    ),
    "raises": "raise ValueError('no such thing')\n",
    "exits-3": "import sys\nsys.exit(3)\n",
    "syntax": "def broken(:\n",
    "missing-module": "import no_such_module\n",
    "memory": f"data = []\nwhile True:\n{EAT}",
    "full": (
        "with open('/opt/ml/model/weights', 'wb') as file:\n"
        "    while True:\n        file.write(bytes(10**6))\n"
    ),
    "hangs": "import time\nprint('waiting', flush=True)\ntime.sleep(600)\n",
    "prints": "import time\nprint('a line')\ntime.sleep(600)\n",
    "ends-well": (
        "import signal, sys, time\n"
        "def end(*_):\n    print('ending well', flush=True)\n    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\nprint('ready', flush=True)\ntime.sleep(600)\n"
    ),
}

CASES = {
    "raises-torchrun": Case("pytorch-cpu", groups=homogeneous(2), distribution=TORCHRUN),
    "killed-torchrun": Case(
        "pytorch-cpu",
        groups=homogeneous(2),
        distribution=TORCHRUN,
        kills={"algo-2": "reduced"},
    ),
    "port-taken-torchrun": Case(
        "pytorch-cpu",
        command=(
            "sh",
            "-c",
            "python3 -m http.server 7777 & sleep 2; "
            "exec torchrun --nnodes 2 --node_rank 0 --master_addr algo-1 --master_port 7777 train.py",
        ),
    ),
    "killed-mpi": Case(groups=homogeneous(2), distribution=MPI, kills={"algo-2": "4 ranks"}),
    "raises-mpi": Case(groups=homogeneous(2), distribution=MPI),
    "exits-3-mpi": Case(distribution=MPI),
    "memory-mpi": Case(distribution=MPI, memory=400_000_000),
    "no-such-name-mpi": Case(distribution=MPI),
    "port-taken": Case(),
    "raises": Case(groups=homogeneous(2)),
    "exits-3": Case(),
    "syntax": Case(),
    "missing-module": Case(),
    "memory": Case(memory=400_000_000),
    "full": Case(room=8 * 2**20),
    "no-script": Case(entry_point="trian.py"),
    "hangs": Case(deadline=20.0),
    "prints": Case(kills={"algo-1": "a line"}),
    "ends-well": Case(stop_after=20.0),
}

DAILY = {
    *("killed-torchrun", "raises-mpi", "memory-mpi", "port-taken"),
    *("missing-module", "no-script", "full", "hangs"),
}
"""Failures that together have each launcher, and each kind of end."""
CASES = {name: replace(case, is_daily=name in DAILY) for name, case in CASES.items()}

COMPILE = "run `python -m py_compile train.py`, which finds the error without a job"
NAMES = "use a host of this job: algo-1; SM_HOSTS lists them"
MEMORY = "use a larger instance type or a smaller batch"
PORT_HINT = "use another port, or stop the program on algo-1 that listens on it"
MODULE = (
    "add the package of `no_such_module` to the image's recipe, or to a `requirements.txt` next to the "
    "script, which the toolkit installs"
)
DISK_HINT = "increase `volume_size` of the job; `bake run` has no limit unless `local.volume_size` is set"
SCRIPT = (
    "set `--entry-point` to a path below `--source-dir`, or below /opt/ml/code if the image contains the code"
)


@pytest.fixture(scope="module")
def reports(
    workspace: Workspace,
    fleet: Fleet,
    tmp_path_factory: pytest.TempPathFactory,
    pytestconfig: pytest.Config,
) -> dict[str, JobReport]:
    root = tmp_path_factory.mktemp("scripts")
    for name, script in SCRIPTS.items():
        (root / name).mkdir()
        (root / name / "train.py").write_text(script)
    sources = {name: root / name if name in SCRIPTS else None for name in CASES}
    cases = due(CASES, pytestconfig)
    return run_all(workspace, {name: replace(case, source=sources[name]) for name, case in cases.items()})


FAILURES: dict[str, tuple[int | None, str | None, str, str]] = {
    "raises": (None, None, "ValueError: no such thing", ""),
    "raises-mpi": (3, "algo-2", "ValueError: no such thing", ""),
    "raises-torchrun": (1, "algo-2", "ValueError: no such thing", ""),
    "exits-3": (None, "algo-1", "the script exited with 3", ""),
    "memory": (None, "algo-1", "ran out of memory", MEMORY),
    "memory-mpi": (1, "algo-1", "ran out of memory", MEMORY),
    "syntax": (None, "algo-1", "SyntaxError: invalid syntax (train.py, line 1)", COMPILE),
    "missing-module": (None, "algo-1", "ModuleNotFoundError: No module named 'no_such_module'", MODULE),
    "no-script": (None, "algo-1", "the script /opt/ml/code/trian.py does not exist", SCRIPT),
    "port-taken": (None, "algo-1", "port 7777 is taken on algo-1", PORT_HINT),
    "port-taken-torchrun": (None, "algo-1", "port 7777 is taken on algo-1", PORT_HINT),
    "no-such-name-mpi": (1, "algo-1", "the name algo-9 can't be resolved", NAMES),
    "full": (None, "algo-1", "/opt/ml/model is full", DISK_HINT),
}
"""The rank, the host, the cause and the hint in the report of each job that fails."""


@each(CASES, *FAILURES)
def test_a_failure_is_reported_with_host_rank_cause_hint_and_log(
    reports: dict[str, JobReport], name: str
) -> None:
    report = reports[name]
    rank, host, cause, hint = FAILURES[name]

    assert report.status is Status.FAILED
    assert (report.failed_rank, report.cause, report.hint) == (rank, cause, hint), text(report)
    assert report.failed_host == (host or report.failed_host)
    assert report.log is not None
    assert report.tail[-1] in report.log.read_text()
    assert report.seconds < CASES[name].deadline


@pytest.mark.release
def test_the_code_that_a_rank_exited_with(reports: dict[str, JobReport]) -> None:
    """Open MPI 4 sometimes loses its own message, and with it the rank."""
    report = reports["exits-3-mpi"]

    assert (report.failed_rank in (1, None), report.failed_host) == (True, "algo-1")
    assert report.cause == "the script exited with 3"


@each(CASES, "raises", "syntax", "missing-module")
def test_sagemaker_s_own_words_come_first(reports: dict[str, JobReport], name: str) -> None:
    report = reports[name]

    assert report.reason.startswith("AlgorithmError: ExecuteUserScriptError:")
    assert report.reason.endswith(", exit code: 1")


@each(CASES, "killed-mpi", "killed-torchrun")
def test_a_host_that_is_killed_is_noticed_by_the_other(reports: dict[str, JobReport], name: str) -> None:
    report = reports[name]
    [loss] = report.losses
    [other] = loss.others

    assert report.reason == "InternalServerError: algo-2 was lost"
    assert (loss.what, other.host, other.end) == ("algo-2 was killed", "algo-1", "exit 1")
    assert 0 < other.seconds < 60
    assert f"    algo-1  exit 1, {format_seconds(other.seconds)} later\n" in text(report)


@pytest.mark.release
def test_lines_printed_before_a_kill_are_in_the_log(reports: dict[str, JobReport]) -> None:
    report = reports["prints"]

    assert report.reason == "InternalServerError: algo-1 was lost"
    assert "a line\n" in (report.folder / "logs/algo-1.log").read_text()


@pytest.mark.parametrize(("code", "exit_code"), [("raise SystemExit(3)", 1), ("print('fine')", 0)])
def test_train_exits_with_a_code_without_a_mounted_output(
    fleet: Fleet, tmp_path: Path, code: str, exit_code: int
) -> None:
    """As `docker run IMAGE train` does, with no other mounts than the job's settings and code."""
    job = TrainingJob(name="no-mounts", entry_point="train.py")
    for path, content in input_files(job, "algo-1").items():
        file = tmp_path / Path(path).relative_to("/opt/ml")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    (tmp_path / "code").mkdir()
    (tmp_path / "code/train.py").write_text(code)
    volumes = [f"{tmp_path}/{name}:/opt/ml/{name}" for name in ("input", "code")]
    with contextlib.closing(docker.from_env()) as client:
        container = client.containers.create(
            fleet.images["mpi-cpu"].stored, ["train"], hostname="algo-1", volumes=volumes
        )
        try:
            container.start()
            end = container.wait(timeout=120)["StatusCode"]
        finally:
            container.remove(force=True)

    assert end == exit_code


def test_what_was_written_before_a_disk_was_full_comes_back(reports: dict[str, JobReport]) -> None:
    weights = reports["full"].folder / "model/algo-1/weights"

    assert weights.stat().st_size == 8 * 2**20


def test_a_job_that_hangs_ends_at_its_deadline(reports: dict[str, JobReport]) -> None:
    report = reports["hangs"]

    assert (report.status, report.reason) == (
        Status.STOPPED,
        "MaxRuntimeExceeded: the job did not end within 20 s",
    )
    assert report.hosts[0].end == "still running"
    assert (report.failed_host, report.tail[-1]) == ("algo-1", "waiting")
    assert report.hint == "read the log of algo-1, or allow more time with `--timeout`"


@pytest.mark.release
def test_a_stop_reaches_no_script_that_the_toolkit_started(reports: dict[str, JobReport]) -> None:
    """The toolkit is the first process of its host and does not pass on SIGTERM."""
    report = reports["ends-well"]

    assert (report.status, report.reason) == (Status.STOPPED, "stopped after 20 s")
    assert report.hosts[0].end == "still running"
    assert "ready" in log_text(report)
    assert "ending well" not in log_text(report)


def test_nothing_is_left_of_jobs_that_failed(reports: dict[str, JobReport]) -> None:
    assert [*in_engine(os.getpid())] == []


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (
            Case(distribution={"mpi": {"enabled": True, "processes_per_host": 0}}),
            "error: `distribution.mpi.processes_per_host` must be a whole number of at least 1\n",
        ),
        (
            Case(groups=DATA_AND_DNN, distribution=MPI | {"instance_groups": ["gpu"]}),
            "error: `distribution.instance_groups` contains `gpu`, which is not a group of this job\n",
        ),
        (
            Case(groups=DATA_AND_DNN, distribution=MPI | {"instance_groups": ["data", "dnn"]}),
            "error: `distribution.instance_groups` contains 2 groups\n"
            "\nhint: keep one, because SageMaker starts a launcher in one group only\n",
        ),
    ],
)
def test_what_sagemaker_would_refuse_starts_nothing(
    workspace: Workspace, tmp_path: Path, case: Case, message: str
) -> None:
    (tmp_path / "train.py").write_text("")

    with pytest.raises(UsageError) as caught:
        jobs.run(workspace, "refused", replace(case, source=tmp_path))

    assert failure_text(caught.value.diagnostics[0]).startswith(message)


def test_a_missing_image(workspace: Workspace) -> None:
    with pytest.raises(UsageError, match="no recipe is named `mpi-cup`, and the engine has no such image"):
        run_job(workspace, "mpi-cup", RunRequest(), print)
