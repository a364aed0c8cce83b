"""Results of smoke checks."""

from dataclasses import replace
from pathlib import Path

from bakehouse.builder.verify import CheckAnswer, Outcome, ProbeResults, VersionResult
from bakehouse.catalog.job_checks import JOB_CHECKS
from bakehouse.catalog.user_smoke import UserSmoke
from bakehouse.cluster import smoke_results
from bakehouse.cluster.job import TrainingJob, homogeneous
from bakehouse.cluster.job_runner import HostResult, JobResult
from bakehouse.cluster.ranks import RankEvent, RankStep, split_log
from bakehouse.cluster.smoke_checks import SmokeCheck
from bakehouse.cluster.smoke_report import CheckResult
from bakehouse.errors import Location
from tests.support.fake_engine import DIGEST

JOB = TrainingJob(DIGEST, "mpi-2x2", groups=homogeneous(2), processes_per_host=2, deadline=120.0)
CHECK = SmokeCheck(JOB_CHECKS["mpi_2x2"], JOB, "bakehouse/probes/mpi_allreduce.py")
DIRECTORY = Path("build/smoke/mpi-cpu/mpi_2x2")
SMOKE = UserSmoke("train.py", 1, 1, "", (), (), "", 600, Location(Path("small.yaml"), 1, 1))
GOOD = HostResult("algo-1", 0, success=True, model={"model.json": 3})


def notes(
    job: TrainingJob, *, failed: dict[int, str] | None = None, late: tuple[int, ...] = ()
) -> tuple[RankEvent, ...]:
    """Each rank starts, arrives and finishes, but those that fail or come too late."""
    steps = []
    for rank in range(job.ranks):
        host = job.host_of(rank)
        steps.append(RankEvent(rank, host, RankStep.STARTED, 0.0))
        if rank in late:
            continue
        steps.append(RankEvent(rank, host, RankStep.ARRIVED, 1.0))
        if rank in (failed or {}):
            steps.append(RankEvent(rank, host, RankStep.FAILED, 2.0 + rank, (failed or {})[rank]))
        elif not late:
            steps.append(RankEvent(rank, host, RankStep.FINISHED, 3.0))
    return tuple(sorted(steps, key=lambda note: note.at))


def job_result(
    *codes: int | None,
    events: tuple[RankEvent, ...] = (),
    log: str = "",
    timed_out: bool = False,
    job: TrainingJob = JOB,
) -> JobResult:
    hosts = tuple(
        replace(GOOD, host=host, exit_code=code, success=code == 0)
        for host, code in zip(job.host_names, codes, strict=True)
    )
    logs = dict.fromkeys(job.host_names, "") | {"algo-1": log}
    return JobResult(
        hosts, events, logs, {host: split_log(text) for host, text in logs.items()}, timed_out, 41.23
    )


def judge(end: JobResult, check: SmokeCheck = CHECK, job: TrainingJob = JOB) -> CheckResult:
    return smoke_results.evaluate_job(check, job, end, DIRECTORY)


def test_a_job_of_which_every_rank_finished_passes() -> None:
    result = judge(job_result(0, 0, events=notes(JOB)))

    assert result == CheckResult(
        "mpi_2x2", Outcome.PASSED, 41.2, ranks=4, source="bakehouse/probes/mpi_allreduce.py", log=DIRECTORY
    )


def test_a_job_that_ended_with_mpirun_passes_by_its_ranks_alone() -> None:
    finished, late = (job_result(None, None, events=notes(JOB, late=ranks)) for ranks in ((), (3,)))

    assert judge(finished).reason == "algo-1 wrote no /opt/ml/output/success"
    assert judge(replace(finished, mpirun_ended=True)).outcome is Outcome.PASSED
    assert judge(replace(late, mpirun_ended=True)).reason == "exit 0, but ranks 0-3 did not finish"


def test_the_first_failing_rank_is_shown_with_its_own_last_lines() -> None:
    log = "[1,0]<stdout>:fine\n[1,3]<stderr>:Traceback\n[1,3]<stderr>:ValueError: boom\n[1,0]<stderr>:Error\n"
    events = notes(JOB, failed={3: "ValueError: boom\nand a page more", 0: "connection closed"})
    events = tuple(sorted(events, key=lambda note: (note.rank != 3, note.at)))

    result = judge(job_result(1, None, events=events, log=log))

    assert result == CheckResult(
        "mpi_2x2",
        Outcome.FAILED,
        41.2,
        reason="ValueError: boom",
        ranks=4,
        failed_rank="algo-2 rank 3",
        exit="1 after 41 s; rank 0 stopped with it",
        source="bakehouse/probes/mpi_allreduce.py",
        tail=("Traceback", "ValueError: boom"),
        log=DIRECTORY,
    )


def test_the_word_error_in_a_log_is_not_a_failure() -> None:
    result = judge(job_result(0, 0, events=notes(JOB), log="DistNetworkError: Error at exit\nTraceback\n"))

    assert result.outcome is Outcome.PASSED


def test_a_timeout_names_the_ranks_that_did_not_arrive() -> None:
    result = judge(job_result(None, None, events=notes(JOB, late=(1, 2)), timed_out=True))

    assert result.reason == "did not end within 120 s; ranks 1-2 did not arrive at the first collective"
    assert result.failed_rank == "algo-1 rank 1"
    assert result.exit == "none after 41 s"


def test_a_timeout_before_any_rank_arrived_names_those_that_did_not_start() -> None:
    started = tuple(note for note in notes(JOB) if note.step is RankStep.STARTED)
    opening = "did not end within 120 s; "

    none_started = judge(job_result(None, None, timed_out=True))
    half = judge(job_result(None, None, events=started[:2], timed_out=True))
    everyone = judge(job_result(None, None, events=started, timed_out=True))

    assert none_started.reason == opening + "ranks 0-3 did not start, none arrived at the first collective"
    assert half.reason == opening + "ranks 2-3 did not start, none arrived at the first collective"
    assert everyone.reason == opening + "all ranks started, none arrived at the first collective"


def test_a_timeout_before_any_rank_arrived_has_the_cause_of_the_log() -> None:
    log = (
        "INFO     Cannot connect to host algo-2\n"
        "INFO     Connection failed with exception:\n"
        " [Errno 110] Connection timed out.              Can be ignored for worker when master completes\n"
    )

    result = judge(job_result(None, None, log=log, timed_out=True))

    assert result.reason == (
        "did not end within 120 s; ranks 0-3 did not start, none arrived at the first collective; a "
        "connection from algo-1 timed out"
    )


def test_a_timeout_after_all_arrived_names_those_that_did_not_finish() -> None:
    events = tuple(note for note in notes(JOB) if (note.rank, note.step) != (2, RankStep.FINISHED))

    result = judge(job_result(None, None, events=events, timed_out=True))

    assert result.reason == "did not end within 120 s; all ranks arrived, rank 2 did not finish"


def test_a_host_that_does_not_end_after_its_ranks_is_named() -> None:
    result = judge(job_result(0, None, events=notes(JOB), timed_out=True))

    assert result.reason == "did not end within 120 s; all ranks finished, algo-2 did not end"


def test_a_rank_that_raised_is_shown_even_when_the_others_then_hung() -> None:
    events = notes(JOB, failed={2: "ValueError: boom"})

    result = judge(job_result(None, None, events=events, timed_out=True))

    assert (result.failed_rank, result.reason) == ("algo-2 rank 2", "ValueError: boom")


def test_exit_0_is_not_a_pass_if_a_rank_did_not_finish() -> None:
    events = tuple(note for note in notes(JOB) if note.rank != 1)

    assert judge(job_result(0, 0, events=events)).reason == "exit 0, but rank 1 did not finish"


def test_a_failure_without_a_rank_shows_the_failing_host() -> None:
    result = judge(job_result(1, None, log="start-job: no command `train` on PATH\n"))

    assert result.reason == "algo-1 exited with 1"
    assert result.tail == ("start-job: no command `train` on PATH",)
    assert result.failed_rank == ""


def test_the_host_that_failed_is_shown_not_the_one_that_was_stopped_for_it() -> None:
    end = job_result(None, 3)
    end = replace(end, logs={"algo-1": "waiting\n", "algo-2": "no space left\n"})

    result = judge(end)

    assert result.reason == "algo-2 exited with 3"
    assert result.tail == ("no space left",)


def test_a_host_without_memory_is_reported() -> None:
    end = job_result(137, None)
    end = replace(end, hosts=(replace(end.hosts[0], out_of_memory=True), end.hosts[1]))

    assert judge(end).reason == "algo-1 ran out of memory"


def test_success_requires_the_file_that_sagemaker_reads() -> None:
    end = job_result(0, 0, events=notes(JOB))
    silent = replace(end, hosts=(end.hosts[0], replace(end.hosts[1], success=False)))

    assert judge(silent).reason == "algo-2 wrote no /opt/ml/output/success"


def test_a_model_that_was_asked_for_must_be_there() -> None:
    end = job_result(0, 0, events=notes(JOB))
    empty = replace(end, hosts=(replace(end.hosts[0], model={}), end.hosts[1]))

    assert (
        judge(empty, replace(CHECK, kind=JOB_CHECKS["train_success"])).reason
        == "algo-1 wrote no file below /opt/ml/model"
    )


def test_a_failing_script_passes_by_failing_as_sagemaker_reads_it() -> None:
    job = TrainingJob(DIGEST, "train-failure", deadline=120.0)
    check = SmokeCheck(JOB_CHECKS["train_failure"], job)
    events = notes(job, failed={0: "RuntimeError"})
    end = job_result(1, events=events, job=job)
    with_failure = replace(end, hosts=(replace(end.hosts[0], failure="Framework Error"),))

    def reason(end: JobResult) -> str:
        return judge(end, check, job).reason

    assert reason(with_failure) == ""
    assert reason(end) == "a failing script wrote no /opt/ml/output/failure"
    assert reason(job_result(0, events=events, job=job)) == "a failing script exited with 0 instead of 1"
    assert reason(job_result(None, job=job, timed_out=True)) == "a failing script did not end within 120 s"
    both = replace(with_failure, hosts=(replace(with_failure.hosts[0], success=True),))
    assert reason(both) == "a failing script wrote /opt/ml/output/success"
    assert reason(replace(with_failure, events=())) == "the failing script did not run"


def test_a_check_can_have_a_section_of_the_log(tmp_path: Path) -> None:
    log = tmp_path / "components.log"
    log.write_text(
        "--- requirements\nloading\n--- requirements.pandas\nValueError: boom\n--- requirements\nother\n"
    )
    failed = CheckAnswer("requirements", "pandas", Outcome.FAILED, "broken", 0.1, "requirements.txt:1")

    (result,) = smoke_results.component_results(ProbeResults((), (failed,), 2.0, log))

    assert (result.tail, result.source) == (("ValueError: boom",), "requirements.txt:1")


def test_components_become_one_result_and_one_for_each_check(tmp_path: Path) -> None:
    log = tmp_path / "components.log"
    log.write_text('--- a\nloading\n{"component": "a"}\nTraceback\n--- b\nother\n')
    probes = ProbeResults(
        (
            VersionResult("a", "1.0", "1.0", source="smoke.py", part="a"),
            VersionResult("b", "2.0", source="smoke.py", part="b"),
        ),
        (
            CheckAnswer("a", "x", Outcome.FAILED, "ValueError: boom\nmore", 0.1, "smoke.py:3"),
            CheckAnswer("b", "y", Outcome.NOT_TESTED, "needs a GPU"),
        ),
        2.04,
        log,
    )

    assert smoke_results.component_results(probes) == (
        CheckResult("components.a", Outcome.PASSED, 0.0, log=log),
        CheckResult(
            "components.a.x",
            Outcome.FAILED,
            0.1,
            "ValueError: boom",
            source="smoke.py:3",
            tail=("loading", "Traceback"),
            log=log,
        ),
        CheckResult("components.b.y", Outcome.NOT_TESTED, 0.0, "needs a GPU", log=log),
    )


def test_components_that_differ_from_their_declaration_fail(tmp_path: Path) -> None:
    probes = ProbeResults(
        (
            VersionResult("a", "1.0", "1.1", source="a/smoke.py"),
            VersionResult("b", "2.0", None, "ImportError: no", "b/smoke.py:2"),
        ),
        (),
        1.0,
        tmp_path / "none.log",
    )

    (result,) = smoke_results.component_results(probes)

    assert result.outcome is Outcome.FAILED
    assert result.reason == "`a` is 1.1, declared 1.0; `b` did not report its version: ImportError: no"
    assert result.source == "a/smoke.py"


def test_components_none_of_which_can_answer_are_not_tested(tmp_path: Path) -> None:
    probes = ProbeResults(
        (VersionResult("a", "1.0", source="smoke.py", part="a"),), (), 0.0, tmp_path / "none.log"
    )

    (result,) = smoke_results.component_results(probes)

    assert (result.outcome, result.reason) == (Outcome.NOT_TESTED, "it has no check for this image")


def test_a_private_key_in_the_image_fails() -> None:
    assert smoke_results.key_result([], 0.2).outcome is Outcome.PASSED
    result = smoke_results.key_result(["/root/.ssh/id_rsa", "/etc/ssh/ssh_host_rsa_key"], 0.2)
    assert (
        result.reason == "the image contains private keys: `/root/.ssh/id_rsa`, `/etc/ssh/ssh_host_rsa_key`"
    )


USER_JOB = TrainingJob(DIGEST, "user-code", entry_point="train.py", deadline=600.0)
USER = SmokeCheck(JOB_CHECKS["user_code"], USER_JOB, "/opt/ml/code/train.py", smoke=SMOKE)


def judge_user(end: JobResult, expect: str = "") -> CheckResult:
    check = replace(USER, smoke=replace(SMOKE, expect=expect))
    return smoke_results.evaluate_user_job(check, USER_JOB, end, DIRECTORY)


def test_the_user_s_test_passes_with_its_exit_code_and_text() -> None:
    result = judge_user(job_result(0, job=USER_JOB, log="accuracy 0.93\n"), "accuracy")

    assert result.outcome is Outcome.PASSED


def test_a_text_that_the_log_lacks_fails_the_user_s_test() -> None:
    result = judge_user(job_result(0, job=USER_JOB, log="loss 0.93\n"), "accuracy")

    assert result.outcome is Outcome.FAILED
    assert result.reason == "exit 0, but the log does not contain `accuracy`"
    assert (result.failed_rank, result.exit, result.tail) == ("", "", ("loss 0.93",))


def test_the_cause_of_the_user_s_failure_is_found_in_the_log() -> None:
    log = "start\nTraceback (most recent call last):\n  File x\nModuleNotFoundError: No module named 'z'\n"
    result = judge_user(job_result(1, job=USER_JOB, log=f"{log}toolkit says more\n"), "accuracy")

    assert result.outcome is Outcome.FAILED
    assert result.reason == "ModuleNotFoundError: No module named 'z'"
    assert result.exit == "1 after 41 s"


def test_a_user_s_test_that_does_not_end_fails() -> None:
    result = judge_user(job_result(None, job=USER_JOB, timed_out=True))

    assert (result.outcome, result.reason) == (Outcome.FAILED, "did not end within 600 s")


BANDWIDTH = replace(CHECK, kind=JOB_CHECKS["efa_bandwidth"])
OVER_EFA = "algo-1:42:99 [0] NCCL INFO Using network AWS Libfabric\n"


def test_bandwidth_over_efa_passes() -> None:
    result = judge(job_result(0, 0, events=notes(JOB), log=OVER_EFA), BANDWIDTH)

    assert (result.outcome, result.reason) == (Outcome.PASSED, "")


def test_bandwidth_is_not_tested_on_hosts_without_efa() -> None:
    log = "[default0]:not tested: a host has no EFA device\n"
    result = judge(job_result(0, 0, events=notes(JOB), log=log), BANDWIDTH)

    assert (result.outcome, result.reason) == (Outcome.NOT_TESTED, "a host has no EFA device")


def test_hosts_with_efa_that_communicate_over_tcp_fail() -> None:
    log = OVER_EFA.replace("AWS Libfabric", "Socket")
    result = judge(job_result(0, 0, events=notes(JOB), log=log), BANDWIDTH)

    assert result.outcome is Outcome.FAILED
    assert result.reason == "the hosts have EFA, but communicate over Socket"


def test_a_network_that_the_log_does_not_name_fails() -> None:
    result = judge(job_result(0, 0, events=notes(JOB)), BANDWIDTH)

    assert result.outcome is Outcome.FAILED
    assert result.reason == "NCCL's log does not name the network between the hosts"
