"""TensorFlow's launchers on the hosts they are for, each with the example that users copy."""

import json
import re

import pytest

from bakehouse.cluster.job_report import JobReport, Status
from bakehouse.plan.workspace import Workspace
from benchmarks import heterogeneous
from tests.integration import launch_matrix
from tests.integration.fleet import Fleet
from tests.integration.jobs import due, each, log_text, run_all
from tests.integration.launches import TENSORFLOW_LAUNCHES

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def reports(workspace: Workspace, fleet: Fleet, pytestconfig: pytest.Config) -> dict[str, JobReport]:
    cases = due(TENSORFLOW_LAUNCHES, pytestconfig)
    reports = run_all(workspace, cases)
    launch_matrix.note(__name__, cases, reports)
    return reports


def tf_config(report: JobReport, host: str) -> object:
    """Return the `TF_CONFIG` that the toolkit set for the script on a host."""
    match = re.search(r"TF_CONFIG (\{.*\})", log_text(report, host))
    assert match, log_text(report, host)
    return json.loads(match[1])


@pytest.mark.release
@pytest.mark.parametrize("name", [name for name, case in TENSORFLOW_LAUNCHES.items() if case.fails])
def test_fit_of_keras_3_fails_and_the_report_says_what_to_do(
    reports: dict[str, JobReport], name: str
) -> None:
    report = reports[name]

    assert report.cause == TENSORFLOW_LAUNCHES[name].fails, log_text(report)


@each(
    TENSORFLOW_LAUNCHES,
    *(name for name, case in TENSORFLOW_LAUNCHES.items() if not case.kills and not case.fails),
)
def test_an_example_completes(reports: dict[str, JobReport], name: str) -> None:
    report = reports[name]

    assert (report.status, report.reason) == (Status.COMPLETED, ""), log_text(report)
    assert [host.end for host in report.hosts] == ["exit 0"] * len(report.hosts)


@pytest.mark.release
@pytest.mark.parametrize(("host", "task"), [("algo-1", ("master", 0)), ("algo-2", ("worker", 0))])
def test_the_toolkit_makes_the_first_host_master_and_starts_a_parameter_server_on_each(
    reports: dict[str, JobReport], host: str, task: tuple[str, int]
) -> None:
    kind, index = task

    assert tf_config(reports["tensorflow-parameter-server"], host) == {
        "cluster": {
            "master": ["algo-1:2222"],
            "ps": ["algo-1:2223", "algo-2:2223"],
            "worker": ["algo-2:2222"],
        },
        "environment": "cloud",
        "task": {"type": kind, "index": index},
    }


@pytest.mark.release
def test_a_worker_ends_with_the_chief(reports: dict[str, JobReport]) -> None:
    log = log_text(reports["tensorflow-parameter-server"], "algo-2")

    assert "worker 0: the chief has exited" in log
    assert "master algo-1 is down, stopping parameter server" in log


@pytest.mark.parametrize(("host", "index"), [("algo-1", 0), ("algo-2", 1)])
def test_the_toolkit_makes_all_hosts_workers_that_mirror(
    reports: dict[str, JobReport], host: str, index: int
) -> None:
    report = reports["tensorflow-mirrored"]

    assert tf_config(report, host) == {
        "cluster": {"worker": ["algo-1:8890", "algo-2:8890"]},
        "environment": "cloud",
        "task": {"type": "worker", "index": index},
    }
    assert f"worker {index} of 2 workers" in log_text(report, host)


@pytest.mark.release
def test_a_group_that_prepares_data_ends_with_the_training(reports: dict[str, JobReport]) -> None:
    report = reports["tensorflow-groups"]
    hosts = {host.group: host.host for host in report.hosts}

    assert "1 data hosts" in log_text(report, hosts["dnn"])
    assert f"{hosts['data']}: training is over" in log_text(report, hosts["data"])


@pytest.mark.release
def test_all_devices_of_the_training_host_train(reports: dict[str, JobReport]) -> None:
    result = heterogeneous.result_of(reports["tensorflow-groups"])

    assert (result.replicas, result.data_hosts) == (2, 1)
    assert result.samples_per_second == pytest.approx(2 * 4 / result.milliseconds * 1000)


@pytest.mark.release
def test_the_first_training_host_saves_the_model(reports: dict[str, JobReport]) -> None:
    report = reports["tensorflow-groups"]
    models = {
        host.group: list((report.folder / "model" / host.host).rglob("model.keras")) for host in report.hosts
    }

    assert {group: len(files) for group, files in models.items()} == {"data": 0, "dnn": 1}


@pytest.mark.release
def test_a_data_host_that_dies_is_noticed_by_the_training(reports: dict[str, JobReport]) -> None:
    report = reports["tensorflow-lost"]
    ends = {host.group: host for host in report.hosts}

    assert report.reason == f"InternalServerError: {ends['data'].host} was lost"
    assert (ends["data"].end, ends["dnn"].end) == ("killed by this run", "exit 1")
    assert f"data host {ends['data'].host} was lost" in log_text(report, ends["dnn"].host)
    assert report.losses[0].others[0].seconds < 30
