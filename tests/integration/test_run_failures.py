"""Training jobs that fail, each in its own way, and what is said of it."""

from dataclasses import replace

import pytest

from bakehouse import workflow
from bakehouse.errors import UsageError
from bakehouse.job_report import JobReport, Status
from bakehouse.jobs import homogeneous
from bakehouse.running import Request
from bakehouse.workspace import Workspace
from tests.integration.conftest import Fleet
from tests.integration.jobs import Case, run_all, said

pytestmark = pytest.mark.engine

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


CASES = {
    "raises": Case(groups=homogeneous(2)),
    "exits-3": Case(),
    "syntax": Case(),
    "missing-module": Case(),
    "memory": Case(memory=400_000_000),
    "hangs": Case(deadline=15.0),
    "ends-well": Case(stop_after=15.0),
}


@pytest.fixture(scope="module")
def reports(
    workspace: Workspace, fleet: Fleet, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, JobReport]:
    root = tmp_path_factory.mktemp("scripts")
    for name, script in SCRIPTS.items():
        (root / name).mkdir()
        (root / name / "train.py").write_text(script)
    return run_all(workspace, {name: replace(case, source=root / name) for name, case in CASES.items()})


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


def test_an_image_that_nobody_has(workspace: Workspace) -> None:
    with pytest.raises(UsageError, match="`mpi-cup` is no image of a recipe, and the engine has none"):
        workflow.run_job(workspace, "mpi-cup", Request())
