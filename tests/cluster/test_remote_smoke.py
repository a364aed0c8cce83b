"""Smoke checks on other machines: the script on two hosts, which are processes here, and its results."""

import base64
import json
import signal
import socket
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bakehouse.builder.verify import PROBES, Outcome
from bakehouse.catalog.user_smoke import UserSmoke
from bakehouse.cluster import check_keys
from bakehouse.cluster.remote_smoke import read_results
from bakehouse.errors import Location, SmokeError
from tests.support import plans
from tests.support.errors import refusal
from tests.support.fake_engine import CONTENT, image
from tests.support.remote_smoke import URI, document, plan_of, remote, run_of, step

pytestmark = pytest.mark.timeout(60)


class Job:
    """A job whose hosts are processes."""

    def __init__(self, directory: Path, *steps: dict[str, Any], join_seconds: float = 20.0) -> None:
        self.directory = directory
        scripts = {script for step in steps for files in step["files"].values() for script in files.values()}
        self.plan = {
            "id": "the checks",
            "image": URI,
            "startup": "echo train",
            "variants": {"train": steps},
            "blobs": {script: base64.b64encode(script.encode()).decode() for script in scripts},
            "key_directories": [str(directory / "keys")],
            "key_mark": "PRIVATE KEY",
            "join_seconds": join_seconds,
            "token": "secret",
        }
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.port = server.getsockname()[1]
        self.processes: dict[str, subprocess.Popen[str]] = {}

    def start(self, host: str, hosts: int = 1, *options: str, **changed: Any) -> subprocess.Popen[str]:
        text = base64.b64encode(zlib.compress(json.dumps({**self.plan, **changed}).encode())).decode()
        script = self.directory / f"{host}.py"
        script.write_text((PROBES / "remote_smoke.py").read_text() + f'\nmain("{text}")\n')
        names = ",".join(f"algo-{number}" for number in range(1, hosts + 1))
        command = [sys.executable, str(script), "--host", host, "--hosts", names, "--port", str(self.port)]
        command += ["--address", "127.0.0.1", "--work", str(self.directory / host), *options]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.processes[host] = process
        return process

    def run(self, hosts: int = 1) -> dict[str, Any]:
        """Run all hosts and return the results, read from the log of the first."""
        for number in range(hosts, 0, -1):
            self.start(f"algo-{number}", hosts)
        return self.results()

    def results(self) -> dict[str, Any]:
        log, _ = self.processes["algo-1"].communicate(timeout=50)
        for process in self.processes.values():
            process.communicate(timeout=20)
        return read_results(log, "the log")


@pytest.fixture(autouse=True)
def _reap(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    for job in request.node.funcargs.values():
        if isinstance(job, Job):
            for process in job.processes.values():
                process.kill()


def test_the_results_of_all_hosts_come_back(tmp_path: Path) -> None:
    script = 'echo "$WHERE"; echo x > /opt/ml/model/m; echo done; mkdir -p "$SM_OUTPUT_DATA_DIR/ranks"'
    script = (
        script.replace("/opt/ml/model", "$SAGEMAKER_BASE_DIR/model")
        + "; echo e > $SM_OUTPUT_DATA_DIR/ranks/0"
    )

    results = Job(tmp_path, step("pair", script, script)).run(hosts=2)

    assert (results["startup"], results["interrupted"]) == ("train", "")
    pair = results["results"]["pair"]
    assert not pair["timed_out"]
    for host in ("algo-1", "algo-2"):
        result = pair["hosts"][host]
        assert result["log"] == f"{tmp_path}/{host}/pair/output\ndone\n"
        assert (result["exit_code"], result["model"], result["events"]) == (0, {"m": 2}, ["e\n"])


def test_a_failure_ends_the_other_host_after_the_grace(tmp_path: Path) -> None:
    began = time.monotonic()
    results = Job(tmp_path, step("pair", "sleep 30", "exit 3"), step("next", "echo on")).run(hosts=2)

    pair = results["results"]["pair"]
    codes = {host: result["exit_code"] for host, result in pair["hosts"].items()}
    assert codes == {"algo-1": None, "algo-2": 3}
    assert not pair["timed_out"]
    assert time.monotonic() - began < 20
    assert results["results"]["next"]["hosts"]["algo-1"]["log"] == "on\n"


def test_a_check_ends_at_its_deadline(tmp_path: Path) -> None:
    results = Job(tmp_path, step("slow", "sleep 30", "sleep 30", seconds=1.0)).run(hosts=2)

    slow = results["results"]["slow"]
    assert slow["timed_out"]
    assert [result["exit_code"] for result in slow["hosts"].values()] == [None, None]


def test_a_check_that_ignores_signals_ends_on_all_hosts(tmp_path: Path) -> None:
    stubborn = "trap '' TERM; while :; do sleep 1; done"
    began = time.monotonic()

    results = Job(
        tmp_path, step("stubborn", stubborn, stubborn, seconds=1.0), step("next", "echo on", "echo on")
    ).run(hosts=2)["results"]

    assert time.monotonic() - began < 30
    assert [host["exit_code"] for host in results["stubborn"]["hosts"].values()] == [None, None]
    assert [host["log"] for host in results["next"]["hosts"].values()] == ["on\n", "on\n"]


def test_what_a_check_leaves_running_is_ended(tmp_path: Path) -> None:
    results = Job(
        tmp_path, step("first", "setsid sleep 1234.5 & sleep 0.2"), step("second", "pgrep -fx 'sleep 1234.5'")
    ).run()

    assert results["results"]["second"]["hosts"]["algo-1"]["exit_code"] == 1


def test_processes_that_lost_their_parent_are_reaped(tmp_path: Path) -> None:
    """The toolkit waits until its launcher's daemon is gone, also as a zombie."""
    pid = tmp_path / "pid"
    script = f"(setsid sleep 0.3 & echo $! > {pid}); while [ -d /proc/$(cat {pid}) ]; do sleep 0.1; done"

    results = Job(tmp_path, step("one", script, seconds=10.0)).run()

    assert results["results"]["one"]["hosts"]["algo-1"]["exit_code"] == 0


def test_a_command_that_is_missing_fails_with_its_name(tmp_path: Path) -> None:
    results = Job(tmp_path, {**step("gone", "x"), "command": ["no-such-program", "y"]}).run()

    result = results["results"]["gone"]["hosts"]["algo-1"]
    assert (result["exit_code"], result["log"]) == (127, "no-such-program: not found\n")


def test_answers_are_kept_apart_from_the_log(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("echo answer; echo noise >&2; echo /opt/ml; ls $SAGEMAKER_BASE_DIR/input/config")
    probe = {**step("probe", "x", answers=True), "command": ["sh", str(script)], "files": {"algo-1": {}}}

    result = Job(tmp_path, probe).run()["results"]["probe"]["hosts"]["algo-1"]

    assert (result["answers"], result["log"]) == ("answer\n/opt/ml\n", "noise\n")


def test_private_keys_are_found_before_a_check_runs(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys/id").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\n")
    (tmp_path / "keys/config").write_text("")

    [[path, _]] = Job(tmp_path, step("one", "true")).run()["keys"]

    assert path == f"{tmp_path}/keys/id"


def test_a_missing_host_is_named(tmp_path: Path) -> None:
    job = Job(tmp_path, step("pair", "true", "true"), join_seconds=1.0)
    leader = job.start("algo-1", 2)
    # Its token is that of another job.
    job.start("algo-2", 2, token="other")

    results = job.results()

    assert (results["interrupted"], results["results"]) == ("algo-2 did not join within 1 s", {})
    assert leader.returncode == 1


def test_a_host_that_dies_fails_its_check(tmp_path: Path) -> None:
    job = Job(tmp_path, step("pair", "sleep 30", f"touch {tmp_path}/up; sleep 30"))
    job.start("algo-1", 2)
    worker = job.start("algo-2", 2)
    while not (tmp_path / "up").exists():
        time.sleep(0.05)
    worker.kill()

    hosts = job.results()["results"]["pair"]["hosts"]

    assert [result["exit_code"] for result in hosts.values()] == [None, 255]
    assert hosts["algo-2"]["log"] == "the connection to this host was lost\n"


def test_checks_after_the_loss_of_a_host_fail_at_once(tmp_path: Path) -> None:
    job = Job(
        tmp_path,
        step("pair", "sleep 30", f"touch {tmp_path}/up; sleep 30"),
        step("next", "sleep 30", "sleep 30"),
    )
    job.start("algo-1", 2)
    worker = job.start("algo-2", 2)
    while not (tmp_path / "up").exists():
        time.sleep(0.05)
    worker.kill()

    after = job.results()["results"]["next"]

    assert (after["timed_out"], after["hosts"]["algo-2"]["exit_code"]) == (False, 255)
    assert after["seconds"] < 10


def test_a_stopped_job_writes_the_results_so_far(tmp_path: Path) -> None:
    job = Job(tmp_path, step("first", "true"), step("second", f"touch {tmp_path}/up; sleep 30"))
    leader = job.start("algo-1", 1, "--out", str(tmp_path / "model/results.json"))
    while not (tmp_path / "up").exists():
        time.sleep(0.05)
    leader.send_signal(signal.SIGTERM)
    leader.communicate(timeout=20)

    results = read_results((tmp_path / "model/results.json").read_text(), "the file")

    assert results["interrupted"] == "stopped by SIGTERM"
    assert list(results["results"]) == ["first"]


# Reports


def test_results_become_a_report_by_the_rules_of_a_local_test(tmp_path: Path) -> None:
    smoke = remote()

    report = smoke.report(document(smoke, train_success=run_of(0, log="x\n")), tmp_path, "gpu", "job x")

    assert [(check.name, check.outcome, check.reason) for check in report.checks] == [
        ("mpi_2x2", Outcome.NOT_TESTED, "it needs 2 hosts; the job has 1 host"),
        ("train_success", Outcome.PASSED, ""),
    ]
    assert (report.content, report.machine, report.origin) == (CONTENT, "gpu", "job x")
    assert (report.date, report.unfinished) == ("2026-11-23T10:33:20+00:00", ())
    assert (tmp_path / "train_success/algo-1.log").read_text() == "x\n"


def test_checks_without_a_result_are_unfinished(tmp_path: Path) -> None:
    smoke = remote(hosts=2)
    results = {**document(smoke, train_success=run_of(0)), "interrupted": "stopped by SIGTERM"}

    report = smoke.report(results, tmp_path, "gpu", "")

    assert (report.unfinished, report.interrupted) == (("mpi_2x2",), "stopped by SIGTERM")


def test_a_failed_check_names_its_reason(tmp_path: Path) -> None:
    smoke = remote(only=("train_success",))

    [check] = smoke.report(document(smoke, train_success=run_of(7)), tmp_path, "gpu", "").checks

    assert (check.outcome, check.reason) == (Outcome.FAILED, "algo-1 exited with 7")


def test_keys_of_the_base_are_allowed(tmp_path: Path) -> None:
    smoke = remote(only=("no_private_keys",), base_keys=frozenset({"aa"}))
    results = {**document(smoke), "keys": [["/etc/ssh/a", "aa"], ["/root/.ssh/b", "bb"]]}

    [check] = smoke.report(results, tmp_path, "gpu", "").checks

    assert check.reason == "the image contains private keys: `/root/.ssh/b`"


def test_results_of_another_image_are_refused(tmp_path: Path) -> None:
    smoke = remote()
    assert refusal(SmokeError, smoke.report, {**document(smoke), "image": "other"}, tmp_path, "gpu", "") == (
        f"error: the results are of another image\n  expected  {URI}\n  found     other\n"
    )


def test_results_of_other_checks_are_refused(tmp_path: Path) -> None:
    smoke, other = remote(), remote(deadline=5.0)
    assert refusal(SmokeError, smoke.report, document(other), tmp_path, "gpu", "") == (
        "error: the results are of other checks\n"
        f"  expected  {plan_of(smoke)['id'][:12]}\n  found     {plan_of(other)['id'][:12]}\n\n"
        "hint: run the checks again with this version of the recipe and of Bakehouse\n"
    )


@pytest.mark.parametrize(
    "text", ["", "{}", "bakehouse-smoke-results 1/2 eJw=", "bakehouse-smoke-results 1/1 eJw="]
)
def test_a_file_without_complete_results_is_refused(text: str) -> None:
    with pytest.raises(SmokeError, match="the log contains no complete results of smoke checks"):
        read_results(text, "the log")


def test_nccl_connects_all_gpus_of_all_hosts() -> None:
    gpu_image = image(launchers=("torchrun",), gpu=True, training_module="sagemaker_pytorch_container.x")
    smoke = remote(image=gpu_image, hosts=2, gpus=4, only=("nccl_all_reduce", "gpu"))

    steps = {step["name"]: step for step in plan_of(smoke)["variants"]["train toolkit"]}

    assert (steps["nccl_all_reduce"]["hosts"], steps["gpu"]["hosts"]) == (2, 1)
    command = " ".join(steps["nccl_all_reduce"]["command"])
    assert "--nnodes=2" in command
    assert "--nproc-per-node=4" in command
    assert command.endswith("--transport=nccl")


def test_the_user_s_channels_go_with_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data.csv").write_text("1,2\n")
    user = UserSmoke(
        *("train.py", 1, 1, "", (), (("training", tmp_path),), "", 600), Location(Path("recipe.yaml"), 1, 1)
    )
    smoke = remote(image=plans.changed(image(), smoke=user, entry_point="train.py"), only=("user_code",))

    plan = plan_of(smoke)
    [step] = plan["variants"]["train toolkit"]
    blob = step["files"]["algo-1"]["/opt/ml/input/data/training/data.csv"]
    assert base64.b64decode(plan["blobs"][blob]) == b"1,2\n"
    assert step["own_code"]

    monkeypatch.setattr(check_keys, "MAX_CHANNEL_BYTES", 3)
    [check] = smoke.report(document(smoke), tmp_path / "logs", "gpu", "").checks
    assert check.reason == "its channels have more than 0 MB, too much to send"
