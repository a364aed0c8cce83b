import subprocess
import sys
import time
from pathlib import Path

import pytest

from bakehouse.util import process as processes
from tests.support.programs import started


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists() and "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()


def wait_until_gone(pid: int) -> None:
    for _ in range(100):
        if not alive(pid):
            return
        time.sleep(0.05)
    pytest.fail(f"{pid} still lives")


def test_output_is_passed_on_as_it_is_written_with_regular_ticks() -> None:
    chunks: list[bytes] = []
    ticks: list[int] = []
    script = "echo one >&2; sleep 0.6; echo two >&2"
    with processes.running(["sh", "-c", script]) as process:
        assert process.stderr
        processes.read({process.stderr: chunks.append}, lambda: ticks.append(len(chunks)))
        assert process.wait() == 0
    assert b"".join(chunks) == b"one\ntwo\n"
    assert ticks.count(1) >= 2


def test_two_pipes_at_once() -> None:
    out: list[bytes] = []
    errors: list[bytes] = []
    with processes.running(["sh", "-c", "echo out; echo err >&2"], stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        processes.read({process.stdout: out.append, process.stderr: errors.append}, lambda: None)
    assert (b"".join(out), b"".join(errors)) == (b"out\n", b"err\n")


def test_an_exception_stops_the_program() -> None:
    with pytest.raises(KeyboardInterrupt), processes.running(["sleep", "60"]) as process:
        raise KeyboardInterrupt
    assert process.returncode is not None


@pytest.mark.skipif(
    not Path("/proc/self").exists(), reason="the kernel ends children with their parent on Linux"
)
def test_a_killed_run_takes_its_programs_along() -> None:
    script = (
        "from bakehouse.util import process as processes\n"
        "with processes.running(['sleep', '60']) as process:\n"
        "    print(process.pid, flush=True)\n"
        "    process.wait()\n"
    )
    with started([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout
        child = int(run.stdout.readline())
        # Only when it has become `sleep` has setpriv said what is to happen to it.
        while Path(f"/proc/{child}/comm").read_text() != "sleep\n":
            time.sleep(0.01)
        run.kill()
    wait_until_gone(child)
