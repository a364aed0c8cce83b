"""Checks of GPUs: each GPU image has one, none passes without a GPU, and each holds its GPUs alone."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from bakehouse.builder.verify import PROBES
from bakehouse.catalog.gpu_checks import GPU_CHECKS
from bakehouse.cluster.smoke import held_gpus
from bakehouse.cluster.smoke_checks import job_checks
from bakehouse.plan.workspace import open_workspace, select
from bakehouse.util.oci import Digest

DIGEST = Digest("sha256:" + 64 * "0")
TABLE = """\
#  Rank  0 Group  0 Pid      7 on     algo-1 device  0 [0000:07:00] NVIDIA A100
#  Rank  1 Group  0 Pid      7 on     algo-1 device  1 [0000:0f:00] NVIDIA A100
# Out of bounds values : {bounds}
# Avg bus bandwidth    : 12.3
"""


def test_every_gpu_image_of_the_catalogue_has_a_check_on_all_its_gpus() -> None:
    images = [image for image in select(open_workspace(), ["*"]).plan.images if image.gpu]
    checked = {
        image.name
        for image in images
        for check in job_checks(image, DIGEST, gpus=8)
        if check.name in GPU_CHECKS and check.job and check.job.gpus == 8
    }

    assert len(images) > 200
    assert [image.name for image in images if image.name not in checked] == []


def test_a_gpu_image_must_pass_its_check_before_a_release() -> None:
    images = select(open_workspace(), ["*"]).plan.images
    unrequired = [image.name for image in images if image.gpu and "gpu" not in image.required]

    assert unrequired == []


def run_probe(
    directory: Path, name: str, *arguments: str, **modules: str
) -> subprocess.CompletedProcess[str]:
    """Run a probe with stub modules instead of a framework."""
    for module, text in modules.items():
        (directory / f"{module}.py").write_text(text)
    command = [sys.executable, "-c", f"import runpy, sys; sys.argv = {[name, *arguments]!r}; {_RUN}"]
    environment = {
        "PYTHONPATH": f"{directory}:{PROBES}",
        "PROBE": str(PROBES / name),
        "PATH": "/usr/bin:/bin",
    }
    return subprocess.run(command, env=environment, capture_output=True, text=True)


_RUN = "import os; runpy.run_path(os.environ['PROBE'], run_name='__main__')"


def test_tensorflow_without_a_gpu_is_no_pass(tmp_path: Path) -> None:
    tensorflow = """
from types import SimpleNamespace as S
__version__ = "2.21.0"
compat = S(v1=S(enable_eager_execution=lambda: None))
config = S(experimental=S(list_physical_devices=lambda kind: []))
"""
    done = run_probe(tmp_path, "tensorflow_gpu.py", "--gpus=2", tensorflow=tensorflow, numpy="")

    assert (done.returncode, done.stdout) == (2, "TensorFlow 2.21.0 finds no GPU\n")


def test_tensorflow_must_find_each_gpu_that_it_was_given(tmp_path: Path) -> None:
    tensorflow = """
from types import SimpleNamespace as S
__version__ = "2.21.0"
compat = S(v1=S(enable_eager_execution=lambda: None))
config = S(experimental=S(list_physical_devices=lambda kind: ["0"], set_memory_growth=print))
"""
    done = run_probe(tmp_path, "tensorflow_gpu.py", "--gpus=2", tensorflow=tensorflow, numpy="")

    assert done.returncode == 1
    assert "TensorFlow finds 1 GPUs, not 2" in done.stderr


def nccl_tests(directory: Path, output: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run the probe with a stub of all_reduce_perf."""
    program = directory / "all_reduce_perf"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{output}END\nexit {code}\n")
    program.chmod(0o755)
    text = (PROBES / "nccl_tests_gpu.py").read_text().replace("/opt/nccl-tests/all_reduce_perf", str(program))
    probe = directory / "probe.py"
    probe.write_text(text.replace("sorted({1, arguments.gpus})", "[arguments.gpus]"))
    return subprocess.run([sys.executable, probe, "--gpus=2"], capture_output=True, text=True)


def test_all_reduce_perf_over_all_gpus_passes(tmp_path: Path) -> None:
    assert nccl_tests(tmp_path, TABLE.format(bounds="0 OK")).returncode == 0


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (TABLE.format(bounds="3 FAILED"), "3 numbers are wrong"),
        (TABLE.replace("# Out of", "# Some of"), "the numbers were not checked"),
        ("", "0 GPUs took part, not 2"),
        ("\n".join(TABLE.format(bounds="0 OK").splitlines()[1:]) + "\n", "1 GPUs took part, not 2"),
    ],
)
def test_all_reduce_perf_that_proves_nothing_fails(tmp_path: Path, output: str, message: str) -> None:
    done = nccl_tests(tmp_path, output)

    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, f"all_reduce_perf over 2: {message}")


def test_all_reduce_perf_without_a_gpu_is_no_pass(tmp_path: Path) -> None:
    message = "Test CUDA failure common.cu:892 'no CUDA-capable device is detected'\n"

    assert nccl_tests(tmp_path, message, code=2).returncode == 2


def test_two_checks_never_use_one_gpu_at_once(tmp_path: Path) -> None:
    users, most = 0, 0

    def check(gpus: tuple[str, ...]) -> None:
        nonlocal users, most
        with held_gpus(gpus, tmp_path):
            users += 1
            most = max(most, users)
            threading.Event().wait(0.05)
            users -= 1

    threads = [threading.Thread(target=check, args=(gpus,)) for gpus in (("0", "1"), ("1", "0"), ("1",))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)

    assert most == 1


def test_checks_on_different_gpus_run_at_once(tmp_path: Path) -> None:
    together = threading.Barrier(2, timeout=20)

    def check(gpu: str) -> None:
        with held_gpus((gpu,), tmp_path):
            together.wait()

    threads = [threading.Thread(target=check, args=(gpu,)) for gpu in "01"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert not together.broken
