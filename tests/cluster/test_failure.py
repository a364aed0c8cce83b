"""Causes of failures in the logs of real jobs. Each file in `job_logs/` starts at the launcher's command."""

import re
from pathlib import Path

import pytest

from bakehouse.cluster.failure import LogContext, failure_tail, find_cause, known_failures, script_exit

LOGS = Path(__file__).parent / "job_logs"
HOSTS = ("algo-1", "algo-2")
NAMES = "use a host of this job: algo-1, algo-2; SM_HOSTS lists them"
PORT_HINT = "use another port, or stop the program on algo-1 that listens on it"
SILENT = "check whether the server has started, ended early, or is unreachable from algo-1"
NO_TRAIN = (
    "the image contains no `train`, which SageMaker starts",
    "add the component `sagemaker-training`, or run another program with `--command`",
)
ABORTED_EXIT = (
    "the script ended, but a thread of gloo aborted Python's exit",
    "end the script with `del model; gc.collect(); dist.destroy_process_group()`: gloo's threads run until "
    "the last reference to their group is gone, and the DDP model has one",
)
DISK_HINT = "increase `volume_size` of the job; `bake run` has no limit unless `local.volume_size` is set"


def log(name: str) -> str:
    return (LOGS / f"{name}.log").read_text()


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("raises", "ValueError: no such thing", ""),
        ("raises-mpi", "ValueError: no such thing", ""),
        (
            "missing-module",
            "ModuleNotFoundError: No module named 'no_such_module'",
            "add the package of `no_such_module` to the image's recipe, or to a `requirements.txt` next to "
            "the script, which the toolkit installs",
        ),
        (
            "syntax-error",
            "SyntaxError: invalid syntax (train.py, line 1)",
            "run `python -m py_compile train.py`, which finds the error without a job",
        ),
        (
            "syntax-error-mpi",
            "SyntaxError: invalid syntax (train.py, line 1)",
            "run `python -m py_compile train.py`, which finds the error without a job",
        ),
        (
            "no-script",
            "the script /opt/ml/code/trian.py does not exist",
            "set `--entry-point` to a path below `--source-dir`, or below /opt/ml/code if the image contains "
            "the code",
        ),
        ("no-train", *NO_TRAIN),
        ("no-train-sshd", *NO_TRAIN),
        (
            "no-sshd",
            "the image contains no SSH server, which MPI on several hosts needs",
            "add the component `sshd`",
        ),
        ("no-program", "the image contains no program `pyhton`", ""),
        ("port-taken-python", "port 7777 is taken on algo-1", PORT_HINT),
        ("port-taken-torch", "port 7777 is taken on algo-1", PORT_HINT),
        ("port-taken-torchrun", "port 7777 is taken on algo-1", PORT_HINT),
        ("port-taken-grpc", "port 6000 is taken on algo-1", PORT_HINT),
        ("no-such-name-python", "the name algo-9 can't be resolved", NAMES),
        ("no-such-name-urllib", "a host name can't be resolved", NAMES),
        ("no-such-name-torch", "the name algo-9 can't be resolved", NAMES),
        ("no-such-name-mpi", "the name algo-9 can't be resolved", NAMES),
        ("torch-has-no-peer", "port 7777 of algo-1 did not answer", SILENT),
        ("refused-python", "a connection from algo-1 was refused: no server listens there", SILENT),
        ("cut-off-python", "a connection from algo-1 timed out", SILENT),
        ("full-python", "no space is left on algo-1", DISK_HINT),
        (
            "too-few-slots",
            "mpirun was asked for 9 ranks, more than the hosts have slots",
            "set `processes_per_host` to the number of ranks on each host",
        ),
        ("aborts-at-exit-torchrun", *ABORTED_EXIT),
        (
            "unknown-option",
            "mpirun has no option --no-such-option",
            "run `mpirun --help` in the image; `custom_mpi_options` takes the options of that mpirun",
        ),
    ],
)
def test_the_cause_is_read_from_the_log(name: str, message: str, hint: str) -> None:
    cause = find_cause(log(name), LogContext("algo-1", HOSTS))

    assert cause is not None
    assert (cause.message, cause.hint) == (message, hint)


@pytest.mark.parametrize("name", ["full-python", "full-torch", "full-tensorflow"])
def test_a_full_directory_is_the_cause(name: str) -> None:
    cause = find_cause(log(name), LogContext("algo-1", HOSTS, ("/opt/ml/model",)))

    assert cause is not None
    assert (cause.message, cause.hint) == ("/opt/ml/model is full", DISK_HINT)


def test_a_full_directory_is_not_the_cause_without_a_write_error() -> None:
    cause = find_cause(log("raises"), LogContext("algo-1", HOSTS, ("/opt/ml/model",)))

    assert cause is not None
    assert cause.message == "ValueError: no such thing"


def test_an_abort_after_an_exception_is_not_the_cause() -> None:
    aborted = log("aborts-at-exit-torchrun")
    failed = "Traceback (most recent call last):\n  File x\nValueError: no such thing\n" + aborted

    cause = find_cause(failed, LogContext("algo-1", HOSTS))

    assert cause is not None
    assert cause.message == "ValueError: no such thing"


def test_of_a_shared_log_the_rank_s_own_lines_count() -> None:
    both = log("raises-torch") + "".join(
        line for line in log("raises-torch-consequence").splitlines(keepends=True) if "[rank0]" in line
    )

    first, second = (find_cause(both, LogContext("algo-1", HOSTS), rank) for rank in (0, 1))

    assert first is not None
    assert second is not None
    assert first.message.startswith("RuntimeError: [/__w/pytorch/pytorch/third_party/gloo/")
    assert second.message == "ValueError: no such thing"


def test_consequences_of_another_rank_s_failure_are_not_the_cause() -> None:
    cause = find_cause(log("raises-torch").replace("[rank1]: ", ""), LogContext("algo-2", HOSTS))

    assert cause is not None
    assert cause.message == "ValueError: no such thing"


def test_the_log_is_shown_up_to_the_cause() -> None:
    cause = find_cause(log("raises"), LogContext("algo-1", HOSTS))

    assert cause is not None
    assert cause.lines[-1] == "ValueError: no such thing"


def test_a_handled_exception_is_not_the_cause() -> None:
    survived = "Traceback (most recent call last):\n  File x\nValueError: survived\n"

    assert find_cause(survived + "step\n" * 300, LogContext("algo-1", HOSTS)) is None


@pytest.mark.parametrize("name", ["exits-3", "killed-by-memory"])
def test_a_log_that_does_not_say_gives_no_cause(name: str) -> None:
    assert find_cause(log(name), LogContext("algo-1", HOSTS)) is None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("exits-3", "the script exited with 3"),
        ("killed-by-memory", "the script was killed by signal SIGKILL"),
        ("raises-mpi", ""),
    ],
)
def test_the_script_s_exit_comes_from_the_toolkit(name: str, message: str) -> None:
    assert script_exit(log(name)) == message


DUMP = """\
Training Env:
{}
SM_NUM_GPUS=0
Invoking script with the following command:

torchrun --nnodes 2 train.py

"""
TORCHRUN_END = """\
E1129 09:35:50.129000 33 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1)
Traceback (most recent call last):
  File "/opt/venv/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError: train.py FAILED
"""


def test_the_reason_of_sys_exit_is_the_last_line_of_the_script() -> None:
    reason = "no data in /opt/ml/input/data/training"
    cause = find_cause(f"{DUMP}epoch 1\n{reason}\n{TORCHRUN_END}", LogContext("algo-1"))

    assert cause
    assert cause.message == "the script ended; its last line is `no data in /opt/ml/input/data/training`"
    assert failure_tail(cause.lines, 9) == ("epoch 1", reason)


def test_a_script_without_a_last_line_is_not_quoted() -> None:
    cause = find_cause(f"{DUMP}{TORCHRUN_END}", LogContext("algo-1"))

    assert cause
    assert cause.message.endswith("errors.ChildFailedError: train.py FAILED")
    assert cause.is_consequence
    assert "SM_NUM_GPUS=0" not in failure_tail(cause.lines, 20)


def test_a_rank_that_noticed_the_end_of_another_is_not_quoted() -> None:
    lost = "Traceback (most recent call last):\nRuntimeError: Connection closed by peer\n"
    cause = find_cause(f"{DUMP}epoch 1\n{lost}{TORCHRUN_END}", LogContext("algo-1"))

    assert cause
    assert cause.is_consequence


def test_each_known_cause_has_a_source_and_the_logs_that_it_names_exist() -> None:
    failures = known_failures().failures

    assert len(failures) > 20
    for known in failures:
        assert known.source.startswith(("https://", "tests/", "torchrun of ")), known.message
        for name in re.findall(r"[\w-]+\.log", known.source):
            cause = find_cause(log(name.removesuffix(".log")), LogContext("algo-1", HOSTS))
            assert cause
            assert any(re.search(pattern, log(name.removesuffix(".log"))) for pattern in known.patterns), name
