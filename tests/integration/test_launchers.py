"""Launchers on the hosts they are for, each with the example that users copy."""

import json
from dataclasses import replace

import pytest

from bakehouse.cluster.job_report import JobReport, Status
from bakehouse.plan.workspace import Workspace
from tests.integration import launch_matrix
from tests.integration.fleet import Fleet
from tests.integration.jobs import due, each, log_text, run_all
from tests.integration.launches import LAUNCHES
from tests.integration.sagemaker_sdk import V3, installed

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def reports(
    workspace: Workspace,
    fleet: Fleet,
    tmp_path_factory: pytest.TempPathFactory,
    pytestconfig: pytest.Config,
) -> dict[str, JobReport]:
    points = tmp_path_factory.mktemp("points")
    (points / "points.json").write_text(json.dumps([(x, 3 * x - 1) for x in range(5)]))
    [sdk] = installed(V3).glob("lib/python*/site-packages")
    cases = {
        name: replace(case, sdk=sdk) if name.startswith("sdk-v3") else case for name, case in LAUNCHES.items()
    }
    cases["one-process"] = replace(LAUNCHES["one-process"], channels={"training": points})
    cases = due(cases, pytestconfig)
    reports = run_all(workspace, cases)
    launch_matrix.note(__name__, cases, reports)
    return reports


@each(LAUNCHES)
def test_an_example_completes(reports: dict[str, JobReport], name: str) -> None:
    report = reports[name]

    assert (report.status, report.reason) == (Status.COMPLETED, ""), log_text(report)
    assert [host.end for host in report.hosts] == ["exit 0"] * len(report.hosts)


def test_code_channels_and_hyperparameters_arrive_and_the_model_comes_back(
    reports: dict[str, JobReport],
) -> None:
    line = json.loads((reports["one-process"].folder / "model/algo-1/line.json").read_text())

    assert line == pytest.approx({"slope": 3.0, "offset": -1.0}, abs=0.1)


@each(LAUNCHES, "torch-ddp", "sdk-v3-torchrun")
def test_ranks_of_two_hosts_train_one_model(reports: dict[str, JobReport], name: str) -> None:
    assert "rank 1 of 2 on algo-2, gloo" in log_text(reports[name], "algo-2")


@pytest.mark.release
def test_ranks_need_no_toolkit(reports: dict[str, JobReport]) -> None:
    assert "rank 3 of 4 on algo-2, gloo" in log_text(reports["torchrun-without-toolkit"], "algo-2")


@pytest.mark.release
def test_the_sdks_mpi_driver_starts_its_processes_in_all_not_on_each_host(
    reports: dict[str, JobReport],
) -> None:
    assert "rank 1 of 2 on algo-1" in log_text(reports["sdk-v3-mpi"])


@pytest.mark.release
def test_each_rank_of_mpi_has_a_log_of_its_own(reports: dict[str, JobReport]) -> None:
    logs = reports["mpi"].folder / "logs"

    assert "rank 3 of 4 on algo-2" in (logs / "algo-2-rank-3.log").read_text()
    assert "y = 2.00 x + 1.00" in log_text(reports["mpi"])


def test_the_report_is_beside_the_logs(reports: dict[str, JobReport]) -> None:
    written = json.loads((reports["sdk-v3-torchrun"].folder / "report.json").read_text())

    assert (written["status"], len(written["hosts"])) == ("Completed", 2)
