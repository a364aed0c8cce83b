"""Reports of jobs: SageMaker's status, causes, faults and transports."""

import json
from dataclasses import replace
from pathlib import Path

from bakehouse.cluster.job import Group, TrainingJob, homogeneous
from bakehouse.cluster.job_report import Status, as_json, report, text
from bakehouse.cluster.job_runner import HostResult, InjectedFault, JobResult
from bakehouse.cluster.ranks import RankEvent, RankStep, SplitLog
from tests.support.fake_engine import DIGEST

DIRECTORY = Path("build/runs/x")
JOB = TrainingJob(DIGEST, "mpi-cpu-1", homogeneous(2), processes_per_host=2, deadline=60.0)
COMPLETED_JOB = JobResult(
    hosts=(
        HostResult("algo-1", 0, success=True, seconds=9.5),
        HostResult("algo-2", 0, success=True, seconds=10.0),
    ),
    events=(),
    logs={"algo-1": "one\n", "algo-2": "two\n"},
    rank_logs={"algo-1": SplitLog({}, "one\n"), "algo-2": SplitLog({}, "two\n")},
    timed_out=False,
    seconds=10.0,
)


def failed(code: int = 1, failure: str | None = None, *, out_of_memory: bool = False) -> JobResult:
    second = HostResult("algo-2", code, out_of_memory=out_of_memory, failure=failure, seconds=3.0)
    return replace(
        COMPLETED_JOB, hosts=(replace(COMPLETED_JOB.hosts[0], exit_code=None, seconds=None), second)
    )


def test_a_job_that_completed() -> None:
    job_report = report(JOB, COMPLETED_JOB, DIRECTORY)

    assert job_report.passed
    assert text(job_report) == (
        """\
mpi-cpu-1: Completed after 10 s (predicted SageMaker status)
  algo-1  homogeneousCluster  ml.c5.xlarge  exit 0 after 9.5 s
  algo-2  homogeneousCluster  ml.c5.xlarge  exit 0 after 10 s
  no NCCL: the hosts had no GPUs, so ranks used gloo, MPI or gRPC
  logs of hosts and ranks: build/runs/x
"""
    )


def test_a_disabled_nccl_log_is_reported() -> None:
    job = replace(JOB, groups=homogeneous(2, gpus=1))

    assert "the transport of NCCL is unknown: add `--environment NCCL_DEBUG=INFO` to log it\n" in text(
        report(job, COMPLETED_JOB, DIRECTORY)
    )


def test_a_job_that_failed_has_the_failure_files_words_and_the_exit_code() -> None:
    job_report = report(JOB, failed(3, "ValueError: no\nmore"), DIRECTORY)

    assert (job_report.status, job_report.reason) == (
        Status.FAILED,
        "AlgorithmError: ValueError: no\nmore, exit code: 3",
    )
    assert text(job_report) == (
        """\
mpi-cpu-1: Failed after 10 s (predicted SageMaker status)
  AlgorithmError: ValueError: no more, exit code: 3
  algo-1  homogeneousCluster  ml.c5.xlarge  still running
  algo-2  homogeneousCluster  ml.c5.xlarge  exit 3 after 3.0 s
  first failure: algo-2: exited with 3
    | two
  log: build/runs/x/logs/algo-2.log
  logs of hosts and ranks: build/runs/x
"""
    )


def test_sagemaker_keeps_the_first_1024_characters() -> None:
    reason = report(JOB, failed(1, "x" * 2000), DIRECTORY).reason

    assert reason == f"AlgorithmError: {'x' * 1024}, exit code: 1"


def test_a_host_that_ran_out_of_memory() -> None:
    job_report = report(JOB, failed(137, out_of_memory=True), DIRECTORY)

    assert job_report.hosts[1].end == "exit 137: out of memory"
    assert (job_report.cause, job_report.hint) == (
        "ran out of memory",
        "use a larger instance type or a smaller batch",
    )


def test_a_crash_is_reported_with_its_signal() -> None:
    assert report(JOB, failed(139), DIRECTORY).cause == "crashed (segmentation fault)"


def test_the_first_failing_rank_is_shown_with_its_own_last_lines() -> None:
    note = RankEvent(3, "algo-2", RankStep.FAILED, 2.0, "ValueError: no")
    split = {**COMPLETED_JOB.rank_logs, "algo-1": SplitLog({3: "three\n"}, "")}
    job_report = report(JOB, replace(failed(), events=(note,), rank_logs=split), DIRECTORY)

    assert (job_report.failed_rank, job_report.failed_host, job_report.tail) == (3, "algo-2", ("three",))
    assert """\
  first failure: rank 3 on algo-2: ValueError: no
    | three
  log: build/runs/x/logs/algo-2-rank-3.log
""" in text(job_report)


RAISED = "Traceback (most recent call last):\n  File x\nValueError: no such thing\nmore\n"


def test_the_cause_is_the_exception_that_the_failing_rank_printed() -> None:
    split = {
        "algo-1": SplitLog({3: RAISED}, "MPI_ABORT was invoked on rank 3 in\n"),
        "algo-2": SplitLog({}, ""),
    }
    job_report = report(JOB, replace(failed(), rank_logs=split), DIRECTORY)

    assert (job_report.failed_rank, job_report.failed_host, job_report.cause) == (
        3,
        "algo-2",
        "ValueError: no such thing",
    )
    assert job_report.tail[-1] == "ValueError: no such thing"


def test_a_rank_that_aborted_has_its_cause_in_the_log() -> None:
    """A signal from outside leaves no reason in the log, but an abort does."""
    name = "aborts-at-exit-torchrun.log"
    log = (Path(__file__).parent / "job_logs" / name).read_text()
    end = replace(failed(), logs={"algo-1": log, "algo-2": ""}, rank_logs={"algo-1": SplitLog({}, log)})
    end = replace(end, rank_logs={**end.rank_logs, "algo-2": SplitLog({}, "")})
    job_report = report(JOB, end, DIRECTORY)

    assert (job_report.failed_rank, job_report.cause) == (
        0,
        "the script ended, but a thread of gloo aborted Python's exit",
    )
    assert job_report.hint.startswith("end the script with `del model; gc.collect(); ")


def test_the_code_of_a_rank_that_only_exited_is_the_toolkit_s() -> None:
    rest = "MPI_ABORT was invoked on rank 1 in communicator\nExecuteUserScriptError:\nExitCode 3\n"
    end = replace(failed(), logs={"algo-1": rest, "algo-2": ""}, rank_logs={"algo-1": SplitLog({}, rest)})
    end = replace(end, rank_logs={**end.rank_logs, "algo-2": SplitLog({}, "")})
    job_report = report(JOB, end, DIRECTORY)

    assert (job_report.failed_rank, job_report.failed_host, job_report.cause) == (
        1,
        "algo-1",
        "the script exited with 3",
    )
    assert job_report.log == DIRECTORY / "logs/algo-1.log"


def test_a_rank_that_was_killed_on_a_host_without_memory() -> None:
    rest = "mpirun noticed that process rank 3 with PID 0 on node algo-2 exited on signal 9 (Killed).\n"
    split = {"algo-1": SplitLog({3: RAISED}, rest), "algo-2": SplitLog({}, "")}
    job_report = report(JOB, replace(failed(1, out_of_memory=True), rank_logs=split), DIRECTORY)

    assert (job_report.failed_rank, job_report.cause) == (3, "ran out of memory")
    assert report(JOB, replace(failed(), rank_logs=split), DIRECTORY).cause == "exited on signal 9 (Killed)"


def test_a_rank_that_raised_is_found_though_mpirun_lost_its_message() -> None:
    split = {"algo-1": SplitLog({0: "well\n", 3: RAISED}, "ORTE_ERROR_LOG\n"), "algo-2": SplitLog({}, "")}
    job_report = report(JOB, replace(failed(), rank_logs=split), DIRECTORY)

    assert (job_report.failed_rank, job_report.failed_host, job_report.cause) == (
        3,
        "algo-2",
        "ValueError: no such thing",
    )


def test_of_two_failures_in_one_second_the_consequence_is_skipped() -> None:
    logs = {
        host: f"[rank{rank}]: Traceback (most recent call last):\n[rank{rank}]: {message}\n"
        "Root Cause (first observed failure):\n  time      : 10:00:00\n"
        f"  rank      : {rank} (local_rank: 0)\n  exitcode  : 1 (pid: 39)\n"
        for host, rank, message in (
            ("algo-1", 0, "RuntimeError: Connection closed by peer [192.168.128.3]:64160"),
            ("algo-2", 1, "ValueError: no such thing"),
        )
    }
    split = {host: SplitLog({}, log) for host, log in logs.items()}
    ends = (HostResult("algo-1", 1, seconds=3.0), HostResult("algo-2", 1, seconds=3.5))
    job_report = report(
        replace(JOB, processes_per_host=1),
        replace(COMPLETED_JOB, hosts=ends, logs=logs, rank_logs=split),
        DIRECTORY,
    )

    assert (job_report.failed_rank, job_report.failed_host, job_report.cause) == (
        1,
        "algo-2",
        "ValueError: no such thing",
    )


def test_a_full_directory_is_reported() -> None:
    log = "Traceback (most recent call last):\nOSError: [Errno 28] No space left on device\n"
    end = failed()
    full = replace(end.hosts[1], full=("/opt/ml/model",))
    end = replace(end, hosts=(end.hosts[0], full), logs={**end.logs, "algo-2": log})

    assert report(JOB, end, DIRECTORY).cause == "/opt/ml/model is full"


def test_a_job_that_took_too_long() -> None:
    end = replace(failed(0), timed_out=True, hosts=(failed().hosts[0], replace(COMPLETED_JOB.hosts[1])))
    job_report = report(JOB, end, DIRECTORY)

    assert (job_report.status, job_report.reason) == (
        Status.STOPPED,
        "MaxRuntimeExceeded: the job did not end within 60 s",
    )
    assert job_report.hint == "read the log of algo-1, or allow more time with `--timeout`"
    assert (
        "  not ended: algo-1: did not end within 60 s\n    | one\n  log: build/runs/x/logs/algo-1.log\n"
        in (text(job_report))
    )


def test_a_job_that_was_stopped() -> None:
    job_report = report(replace(JOB, stop_after=5.0), replace(failed(143), stopped=True), DIRECTORY)

    assert (job_report.status, job_report.reason, job_report.passed) == (
        Status.STOPPED,
        "stopped after 5 s",
        False,
    )


def test_a_host_that_was_killed_here_is_a_lost_host() -> None:
    job_report = report(replace(JOB, kills={"algo-2": 3.0}), failed(137), DIRECTORY)

    assert (job_report.status, job_report.reason) == (Status.FAILED, "InternalServerError: algo-2 was lost")
    assert job_report.hosts[1].end == "killed by this run"
    assert (job_report.failed_host, job_report.cause) == ("algo-2", "killed by this run")


THREE = replace(JOB, groups=homogeneous(3))


def test_how_long_the_others_took_to_notice_a_loss() -> None:
    ends = (
        HostResult("algo-1", 1, seconds=13.4),
        HostResult("algo-2", 137, seconds=10.3),
        HostResult("algo-3", None),
    )
    loss = InjectedFault("algo-2 was killed", 10.0, "algo-2", ("algo-1", "algo-3"))
    logs = dict.fromkeys(THREE.host_names, "")
    split = {host: SplitLog({}, "") for host in THREE.host_names}
    end = replace(
        COMPLETED_JOB, hosts=ends, faults=(loss,), seconds=60.0, timed_out=True, logs=logs, rank_logs=split
    )

    job_report = report(replace(THREE, kills={"algo-2": 10.0}), end, DIRECTORY)

    assert """\
  after 10 s algo-2 was killed
    algo-1  exit 1, 3.4 s later
    algo-3  still running, 50 s later
  first failure: algo-2: killed by this run
""" in text(job_report)
    assert job_report.hint == "set time-outs in the script: algo-3 did not notice the failure"


def test_sockets_between_hosts_with_efa_are_a_failure() -> None:
    job = replace(JOB, groups=(Group("dnn", "ml.p4d.24xlarge", 2),), seed=7)
    log = "x [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/1\n"
    end = replace(COMPLETED_JOB, logs={**COMPLETED_JOB.logs, "algo-1": log})

    assert report(job, end, DIRECTORY).passed
    job_report = report(job, end, DIRECTORY, frozenset({"ml.p4d.24xlarge"}))

    assert not job_report.passed
    assert text(job_report).endswith(
        """\
  hosts were assigned to groups with --seed 7
  NCCL: NET/Socket
  failed: the ranks used TCP sockets (NET/Socket) although ml.p4d.24xlarge has EFA
  logs of hosts and ranks: build/runs/x
"""
    )


def test_the_report_is_json_for_programs() -> None:
    document = json.loads(as_json(report(JOB, COMPLETED_JOB, DIRECTORY)))

    assert (document["status"], document["passed"], document["folder"]) == ("Completed", True, "build/runs/x")


LIBRARY = 'File "/opt/venv/lib/python3.11/site-packages/pandas/io/parsers/readers.py", line'
FRAMES = "".join(f"  {LIBRARY} {number}, in read\n    read(path)\n    ^^^^^^^^^^\n" for number in range(20))
LONG = f"""\
loading
Traceback (most recent call last):
  File "/opt/ml/code/train.py", line 7, in <module>
    data = load("churn.csv")
           ^^^^^^^^^^^^^^^^^
  File "/opt/ml/code/train.py", line 5, in load
    return pd.read_csv(path)
{FRAMES}FileNotFoundError: churn.csv
"""


def test_the_last_lines_of_a_failure_keep_the_users_own_code() -> None:
    reason = f'ExecuteUserScriptError:\nExitCode 1\nErrorMessage "FileNotFoundError: churn.csv"\n{"x" * 200}'
    result = failed(1, reason)
    result = replace(result, logs={**result.logs, "algo-2": LONG})

    job_report = report(JOB, result, DIRECTORY)

    assert job_report.tail == (
        '  File "/opt/ml/code/train.py", line 5, in load',
        "    return pd.read_csv(path)",
        "  …",
        "    read(path)",
        *(line for number in range(15, 20) for line in (f"  {LIBRARY} {number}, in read", "    read(path)")),
        "FileNotFoundError: churn.csv",
    )
    assert text(job_report).splitlines()[1] == (
        '  AlgorithmError: ExecuteUserScriptError: ExitCode 1 ErrorMessage "FileNotFoundError: churn.csv" '
        f"{'x' * 105} …"
    )
