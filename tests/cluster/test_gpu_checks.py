"""Checks of GPUs: each GPU image has one, none passes without a GPU, and each holds its GPUs alone."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from bakehouse.builder.verify import PROBES
from bakehouse.catalog.job_checks import GPU_CHECKS
from bakehouse.catalog.project import HOME
from bakehouse.cluster.smoke import held_gpus
from bakehouse.cluster.smoke_checks import job_checks
from bakehouse.plan.model import Image
from bakehouse.plan.workspace import open_workspace, select
from tests.support.data import text_of
from tests.support.fake_engine import DIGEST, image, part

TABLE = """\
#  Rank  0 Group  0 Pid      7 on     algo-1 device  0 [0000:07:00] NVIDIA A100
#  Rank  1 Group  0 Pid      7 on     algo-1 device  1 [0000:0f:00] NVIDIA A100
# Out of bounds values : {bounds}
# Avg bus bandwidth    : 12.3
"""
COMPONENTS = HOME / "recipes/components"


@pytest.fixture(scope="module")
def images() -> tuple[Image, ...]:
    """All GPU images of the catalogue."""
    return tuple(image for image in select(open_workspace(), ["*"]).plan.images if image.gpu)


def test_every_gpu_image_of_the_catalogue_has_a_check_on_all_its_gpus(images: tuple[Image, ...]) -> None:
    checked = {
        image.name
        for image in images
        for check in job_checks(image, DIGEST, gpus=8)
        if check.name in GPU_CHECKS and check.job and check.job.gpus == 8
    }

    assert len(images) > 100
    assert [image.name for image in images if image.name not in checked] == []


def test_a_gpu_image_must_pass_its_check_before_a_release(images: tuple[Image, ...]) -> None:
    assert [image.name for image in images if "gpu" not in image.required] == []


def run_probe(
    directory: Path, name: str, *arguments: str, **modules: str
) -> subprocess.CompletedProcess[str]:
    """Run a probe as the only rank, with stub modules instead of a framework."""
    for module, text in modules.items():
        (directory / f"{module}.py").write_text(text)
    ranks = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    environment = {
        **ranks,
        **{f"OMPI_COMM_WORLD_{name.removeprefix('WORLD_')}": number for name, number in ranks.items()},
        "STORE_PORT": "29400",
        "PYTHONPATH": f"{directory}:{PROBES}",
        "SM_OUTPUT_DATA_DIR": str(directory / "data"),
        "PATH": str(directory),
    }
    script = next(path for path in (PROBES / name, COMPONENTS / name) if path.is_file())
    command = [sys.executable, str(script), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


TORCH = text_of(__file__, "torch")
"""PyTorch without a GPU: what it computes on the CPU is right."""
HOROVOD = "nccl_built = lambda: True\ninit = lambda: None\nallreduce = lambda numbers, op: numbers\nSum = 1\n"


def image_with(*components: str) -> Image:
    parts = tuple(map(part, components))
    return image("gpus", parts, gpu=True, launchers=("torchrun", "mpirun"))


def scripts(*components: str) -> dict[str, tuple[str, ...]]:
    """The script of each GPU check of an image, with its arguments, by the check's name."""
    found = {}
    for hosts in (1, 2):
        for check in job_checks(image_with(*components), DIGEST, 4, hosts=hosts):
            if check.name in GPU_CHECKS and check.job:
                words = [word.removeprefix("/opt/ml/input/data/code/") for word in check.job.command]
                start = words.index(Path(check.source).name)
                found[check.name] = (str(HOME / check.source), *words[start + 1 :])
    return found


def test_each_gpu_check_of_pytorch_fails_without_a_gpu(tmp_path: Path) -> None:
    found = scripts("pytorch", "efa")

    assert found.keys() == {*GPU_CHECKS}
    for script in found.values():
        done = run_probe(tmp_path, *script, torch=TORCH)
        assert done.returncode, script
        assert "no GPU" in done.stdout or "No CUDA GPUs are available" in done.stderr, script


def test_the_stub_of_pytorch_passes_what_needs_no_gpu(tmp_path: Path) -> None:
    done = run_probe(tmp_path, "torchrun_allreduce.py", "--transport=gloo", torch=TORCH)

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("framework", "stub", "message"),
    [
        ("torch", TORCH, "No CUDA GPUs are available"),
        (
            "tensorflow",
            "from types import SimpleNamespace as S\n"
            "compat = S(v1=S(enable_eager_execution=lambda: None))\n"
            "config = S(experimental=S(list_physical_devices=lambda kind: []))\n",
            "list index out of range",
        ),
    ],
)
def test_horovod_without_a_gpu_is_no_pass(tmp_path: Path, framework: str, stub: str, message: str) -> None:
    (tmp_path / "horovod").mkdir()
    (tmp_path / "horovod" / "__init__.py").touch()
    (tmp_path / "horovod" / f"{framework}.py").write_text(HOROVOD)
    done = run_probe(tmp_path, "mpi_nccl_allreduce.py", **{framework: stub})

    assert done.returncode == 1
    assert message in done.stderr


def test_tensorflow_without_a_gpu_is_no_pass(tmp_path: Path) -> None:
    tensorflow = """
from types import SimpleNamespace as S
__version__ = "2.21.0"
compat = S(v1=S(enable_eager_execution=lambda: None))
config = S(experimental=S(list_physical_devices=lambda kind: []))
"""
    done = run_probe(tmp_path, "tensorflow/gpu.py", "--gpus=2", tensorflow=tensorflow, numpy="")

    assert (done.returncode, done.stdout) == (2, "TensorFlow 2.21.0 finds no GPU\n")


def test_tensorflow_must_find_each_gpu_that_it_was_given(tmp_path: Path) -> None:
    tensorflow = """
from types import SimpleNamespace as S
__version__ = "2.21.0"
compat = S(v1=S(enable_eager_execution=lambda: None))
config = S(experimental=S(list_physical_devices=lambda kind: ["0"], set_memory_growth=print))
"""
    done = run_probe(tmp_path, "tensorflow/gpu.py", "--gpus=2", tensorflow=tensorflow, numpy="")

    assert done.returncode == 1
    assert "TensorFlow finds 1 GPUs, not 2" in done.stderr


def nccl_tests(directory: Path, output: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run the probe with a stub of all_reduce_perf."""
    program = directory / "all_reduce_perf"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{output}END\nexit {code}\n")
    program.chmod(0o755)
    text = (
        (COMPONENTS / "nccl-tests/gpu.py")
        .read_text()
        .replace("/opt/nccl-tests/all_reduce_perf", str(program))
    )
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
