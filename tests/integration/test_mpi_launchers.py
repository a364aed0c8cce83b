"""MPI on the hosts it is for: Open MPI 4 and 5, options, one group of several, Horovod."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace

import pytest

from bakehouse.cluster.job import homogeneous
from bakehouse.cluster.job_report import JobReport, Status
from bakehouse.engine.open_engine import open_engine
from bakehouse.plan.workspace import Workspace, select
from benchmarks import heterogeneous
from tests.integration import launch_matrix
from tests.integration.fleet import Fleet
from tests.integration.jobs import due, each, log_text, run, run_all
from tests.integration.launches import HOROVOD, MPI_LAUNCHES, TWO_EACH

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def reports(workspace: Workspace, fleet: Fleet, pytestconfig: pytest.Config) -> dict[str, JobReport]:
    cases, is_there = due(MPI_LAUNCHES, pytestconfig), has_horovod(workspace)
    reports = run_all(
        workspace, {name: case for name, case in cases.items() if is_there or case.image != HOROVOD}
    )
    launch_matrix.note(__name__, cases, reports, f"compiling `{HOROVOD}` takes a quarter of an hour")
    return reports


def has_horovod(workspace: Workspace) -> bool:
    [image] = select(workspace, [HOROVOD]).plan.images
    with open_engine(print) as engine:
        return engine.image(image.reference) is not None


def report_of(reports: Mapping[str, JobReport], name: str) -> JobReport:
    """A job's report; its test is skipped where its image isn't there."""
    if name not in reports:
        pytest.skip(f"not tested: `./bake build {HOROVOD}` compiles Horovod, for a quarter of an hour")
    return reports[name]


def ranks(report: JobReport) -> dict[int, str]:
    """Return the host that each rank printed."""
    logs = (report.folder / "logs").glob("*-rank-*.log")
    matches = [re.search(r"rank (\d+) of \d+ on ([\w-]+)", log.read_text()) for log in logs]
    return {int(match[1]): match[2] for match in matches if match}


@each(MPI_LAUNCHES)
def test_an_example_completes(reports: dict[str, JobReport], name: str) -> None:
    report = report_of(reports, name)

    assert (report.status, report.reason) == (Status.COMPLETED, ""), log_text(report)
    assert [host.end for host in report.hosts] == ["exit 0"] * len(report.hosts)


@each(MPI_LAUNCHES, "mpi-one-host", "mpi-options", "mpi5", "horovod-one-host", "horovod")
def test_each_host_has_two_ranks(reports: dict[str, JobReport], name: str) -> None:
    report = report_of(reports, name)
    hosts = [host.host for host in report.hosts]

    assert ranks(report) == dict(enumerate(host for host in hosts for _ in range(2)))


@each(MPI_LAUNCHES, "mpi-one-host", "mpi-options", "mpi5")
def test_ranks_train_one_model(reports: dict[str, JobReport], name: str) -> None:
    model = reports[name].folder / "model/algo-1/line.json"

    assert json.loads(model.read_text()) == pytest.approx([2.0, 1.0], abs=0.05)


@pytest.mark.release
def test_options_for_mpirun_reach_the_ranks_of_every_host(reports: dict[str, JobReport]) -> None:
    logs = reports["mpi-options"].folder / "logs"

    assert "rank 0 of 4 on algo-1, 3 threads" in (logs / "algo-1-rank-0.log").read_text()
    assert "rank 3 of 4 on algo-2, 3 threads" in (logs / "algo-2-rank-3.log").read_text()


def test_only_the_named_group_has_ranks(reports: dict[str, JobReport]) -> None:
    report = reports["mpi-on-one-group"]
    dnn = [host.host for host in report.hosts if host.group == "dnn"]

    assert ranks(report) == dict(enumerate(host for host in dnn for _ in range(2)))


def test_hosts_of_other_groups_run_the_script_once_and_end_with_the_ranks(
    reports: dict[str, JobReport],
) -> None:
    report = reports["mpi-on-one-group"]
    [data] = [host.host for host in report.hosts if host.group == "data"]
    log = log_text(report, data)

    assert log.count(f"{data} is in group data") == 1
    assert "mpirun" not in log
    assert f"{data}: training is over" in log


@pytest.mark.release
def test_ranks_prepare_all_data_of_a_job_without_groups(
    workspace: Workspace, reports: dict[str, JobReport]
) -> None:
    case = MPI_LAUNCHES["mpi-on-one-group"]
    case = replace(case, groups=homogeneous(), distribution={"mpi": TWO_EACH})

    report = run(workspace, "mpi-alone", case)

    assert report.status is Status.COMPLETED, log_text(report)
    assert "rank 1 of 2 on algo-1, 0 data hosts" in (report.folder / "logs/algo-1-rank-1.log").read_text()


@pytest.mark.release
def test_horovod_trains_on_the_data_of_another_group(reports: dict[str, JobReport]) -> None:
    result = heterogeneous.result_of(report_of(reports, "horovod-in-groups"))

    assert (result.replicas, result.data_hosts) == (2, 1)


@pytest.mark.release
@pytest.mark.parametrize(("name", "size"), [("horovod-one-host", 2), ("horovod", 4)])
def test_horovod_averages_gradients_over_all_ranks(
    reports: dict[str, JobReport], name: str, size: int
) -> None:
    report = report_of(reports, name)
    logs = [log.read_text() for log in sorted((report.folder / "logs").glob("*-rank-*.log"))]

    assert len(logs) == size
    for rank, log in enumerate(logs):
        assert f"gradient {2 * rank}, averaged {size - 1}" in log
