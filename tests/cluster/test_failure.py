"""Why a process failed, read from logs that real jobs left: each in `job_logs/` is one, from the launcher's
command to its end.
"""

from pathlib import Path

import pytest

from bakehouse.cluster.failure import Scene, cause, script_end

LOGS = Path(__file__).parent / "job_logs"
HOSTS = ("algo-1", "algo-2")
NAMES = "the hosts of this job are algo-1, algo-2; SM_HOSTS names them on each"
TAKEN = "something on algo-1 listens there already: take another port, or end it first"
SILENT = "whoever is to listen there has not started, has ended, or can't be reached from algo-1"
ROOM = (
    "give it more room: `--volume-size`, or the SDK's `volume_size`; without it "
    "`./bake run` has this machine's disk"
)


def log(name: str) -> str:
    return (LOGS / f"{name}.log").read_text()


@pytest.mark.parametrize(
    ("name", "words", "hint"),
    [
        ("raises", "ValueError: no such thing", ""),
        ("raises-mpi", "ValueError: no such thing", ""),
        (
            "missing-module",
            "ModuleNotFoundError: No module named 'no_such_module'",
            "name what `no_such_module` comes from in the image's recipe, or in a `requirements.txt` beside "
            "the script, which the toolkit installs",
        ),
        (
            "syntax-error",
            "SyntaxError: invalid syntax (train.py, line 1)",
            "`python -m py_compile train.py` tells the same without a job",
        ),
        (
            "syntax-error-mpi",
            "SyntaxError: invalid syntax (train.py, line 1)",
            "`python -m py_compile train.py` tells the same without a job",
        ),
        (
            "no-script",
            "there is no script /opt/ml/code/trian.py",
            "`--entry-point` is a path below `--source-dir`, or below /opt/ml/code where the image brings it",
        ),
        ("port-taken-python", "port 7777 is taken on algo-1", TAKEN),
        ("port-taken-torch", "port 7777 is taken on algo-1", TAKEN),
        ("port-taken-torchrun", "port 7777 is taken on algo-1", TAKEN),
        ("port-taken-grpc", "port 6000 is taken on algo-1", TAKEN),
        ("no-such-name-python", "the name algo-9 can't be resolved", NAMES),
        ("no-such-name-urllib", "a host's name can't be resolved", NAMES),
        ("no-such-name-torch", "the name algo-9 can't be resolved", NAMES),
        ("no-such-name-mpi", "the name algo-9 can't be resolved", NAMES),
        ("nobody-answers-torch", "nothing answered on port 7777 of algo-1", SILENT),
        ("refused-python", "nothing listens where algo-1 connects to", SILENT),
        ("cut-off-python", "nobody answered algo-1 in time", SILENT),
        ("full-python", "no room is left on algo-1", ROOM),
        (
            "too-few-slots",
            "mpirun was asked for 9 ranks, more than the hosts have slots",
            "a host takes as many ranks as `processes_per_host` says",
        ),
        (
            "unknown-option",
            "mpirun knows no option --no-such-option",
            "`custom_mpi_options` are those of the image's mpirun: `mpirun --help` in it has them all",
        ),
    ],
)
def test_the_cause_is_read_from_the_log(name: str, words: str, hint: str) -> None:
    found = cause(log(name), Scene("algo-1", HOSTS))

    assert found is not None
    assert (found.words, found.hint) == (words, hint)


@pytest.mark.parametrize("name", ["full-python", "full-torch", "full-tensorflow"])
def test_a_folder_that_is_full_is_named(name: str) -> None:
    found = cause(log(name), Scene("algo-1", HOSTS, ("/opt/ml/model",)))

    assert found is not None
    assert (found.words, found.hint) == ("/opt/ml/model is full", ROOM)


def test_a_full_folder_is_no_cause_where_nothing_could_not_be_written() -> None:
    found = cause(log("raises"), Scene("algo-1", HOSTS, ("/opt/ml/model",)))

    assert found is not None
    assert found.words == "ValueError: no such thing"


def test_of_a_shared_log_the_rank_s_own_lines_count() -> None:
    both = log("raises-torch") + "".join(
        line for line in log("raises-torch-consequence").splitlines(keepends=True) if "[rank0]" in line
    )

    first, second = (cause(both, Scene("algo-1", HOSTS), rank) for rank in (0, 1))

    assert first is not None
    assert second is not None
    assert first.words.startswith("RuntimeError: [/__w/pytorch/pytorch/third_party/gloo/")
    assert second.words == "ValueError: no such thing"


def test_what_followed_from_another_rank_s_failure_is_not_taken_for_the_cause() -> None:
    found = cause(log("raises-torch").replace("[rank1]: ", ""), Scene("algo-2", HOSTS))

    assert found is not None
    assert found.words == "ValueError: no such thing"


def test_the_log_is_shown_up_to_the_cause() -> None:
    found = cause(log("raises"), Scene("algo-1", HOSTS))

    assert found is not None
    assert found.lines[-1] == "ValueError: no such thing"


def test_an_exception_that_was_survived_is_no_cause() -> None:
    survived = "Traceback (most recent call last):\n  File x\nValueError: survived\n"

    assert cause(survived + "step\n" * 300, Scene("algo-1", HOSTS)) is None


@pytest.mark.parametrize("name", ["exits-3", "killed-by-memory"])
def test_a_log_that_does_not_say_gives_no_cause(name: str) -> None:
    assert cause(log(name), Scene("algo-1", HOSTS)) is None


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("exits-3", "the script exited with 3"),
        ("killed-by-memory", "the script was ended by signal SIGKILL"),
        ("raises-mpi", ""),
    ],
)
def test_how_the_script_ended_is_what_the_toolkit_says(name: str, words: str) -> None:
    assert script_end(log(name)) == words
