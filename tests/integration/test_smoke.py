"""Smoke tests of real images: passes, and the report of each kind of failure."""

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import docker
import pytest

from bakehouse.builder import verify
from bakehouse.builder.built_image import BuiltImage
from bakehouse.builder.verify import PROBES, Outcome
from bakehouse.catalog.project import ProjectSettings
from bakehouse.catalog.user_smoke import UserSmoke
from bakehouse.cluster import job_runner
from bakehouse.cluster.job import TrainingJob
from bakehouse.cluster.smoke import smoke
from bakehouse.cluster.smoke_checks import SmokeCheck, job_checks
from bakehouse.cluster.smoke_report import CheckResult
from bakehouse.cluster.smoke_results import evaluate_job
from bakehouse.engine import tar
from bakehouse.engine.docker import OWNER_LABEL, DockerEngine, connect
from bakehouse.errors import BuildError, Location
from bakehouse.evidence import check_rows
from bakehouse.evidence.known_checks import known_checks
from bakehouse.plan.model import Image
from bakehouse.util.oci import Digest
from tests.integration import killed_clusters
from tests.support import plans
from tests.support.programs import started

pytestmark = pytest.mark.engine

Built = tuple[Image, BuiltImage]

RECORDED = """\
import os, signal, sys, time
from job_record import recorded
rank, size = (os.environ[name] for name in {names})
with recorded(rank, size) as notes:
"""
MPI = RECORDED.format(names=("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")) + "    from mpi4py import MPI\n"
MPI_END = "\n    notes.arrived()\n    MPI.COMM_WORLD.barrier()\n    time.sleep(60)\n"
TORCH = RECORDED.format(names=("RANK", "WORLD_SIZE")) + "    import torch.distributed as dist\n"


@pytest.fixture
def engine() -> Iterator[DockerEngine]:
    with contextlib.closing(connect()) as connected:
        yield connected


def job_of(built: BuiltImage, name: str, script: str) -> tuple[SmokeCheck, TrainingJob]:
    """A check of the image, with another script in place of ours."""
    check = next(check for check in job_checks(built.image, built.stored) if check.name == name)
    assert check.job is not None
    script_name = Path(check.source).name
    source = {script_name: script.encode(), "job_record.py": (PROBES / "job_record.py").read_bytes()}
    return check, replace(check.job, source=source)


def run(engine: DockerEngine, check: SmokeCheck, job: TrainingJob, directory: Path) -> CheckResult:
    return evaluate_job(check, job, job_runner.run(engine, job, directory), directory)


def left_behind(pid: int) -> list[str]:
    """Containers and networks in the engine that a process made."""
    with contextlib.closing(docker.from_env()) as client:
        filters: dict[str, str | list[str] | bool] = {"label": OWNER_LABEL}
        containers = [
            *client.api.containers(all=True, filters=filters),
            *client.api.networks(filters=filters),
        ]
    return [
        str(container["Id"]) for container in containers if f"-{pid}-" in container["Labels"][OWNER_LABEL]
    ]


def test_an_image_passes_every_check_that_applies(
    engine: DockerEngine, mpi_cpu: Built, tmp_path: Path
) -> None:
    _, built = mpi_cpu

    report = smoke(engine, built, tmp_path)

    assert {check.name: check.reason for check in report.checks if check.outcome is Outcome.FAILED} == {}
    passed = {check.name for check in report.checks if check.outcome is Outcome.PASSED}
    assert passed >= {
        "components.mpi4py",
        "mpi_2x2",
        "mpirun_1x2",
        "train_success",
        "train_failure",
        "no_private_keys",
        "components.libraries.each_library_finds_its_libraries",
        "components.libraries.symbols_are_defined",
    }
    check_rows.record(tmp_path, built.content, report.checks)
    state = known_checks(ProjectSettings(tmp_path, (), state_directory=tmp_path), built.image, built.content)
    assert state.blockers == ()
    logs = tmp_path / "smoke" / built.image.name / "mpi_2x2"
    assert "rank 3 of 4 on algo-2 has arrived" in (logs / "algo-2-rank-3.log").read_text()
    assert left_behind(os.getpid()) == []


def test_an_image_declares_what_is_installed(engine: DockerEngine, mpi_cpu: Built, tmp_path: Path) -> None:
    image, built = mpi_cpu
    verify.verify_image(engine, image, built.stored, tmp_path)


def test_another_version_than_declared_fails_the_build(
    engine: DockerEngine, mpi_cpu: Built, tmp_path: Path
) -> None:
    image, built = mpi_cpu
    parts = tuple(
        replace(part, version="3.9.9") if part.component == "mpi4py" else part for part in image.parts
    )

    with pytest.raises(BuildError) as caught:
        verify.verify_image(engine, plans.changed(image, parts=parts), built.stored, tmp_path)

    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.message == f"`mpi4py` in image `{image.name}` does not have the declared version"
    assert ("declared", "3.9.9") in diagnostic.facts


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("raise ValueError('boom')", "ValueError: boom"),
        pytest.param("sys.stdout.flush(); os._exit(3)", "exited with 3", marks=pytest.mark.release),
        ("os.kill(os.getpid(), signal.SIGKILL)", "exited on signal 9 (Killed)"),
    ],
)
def test_the_rank_that_failed_is_named(
    engine: DockerEngine, mpi_cpu: Built, tmp_path: Path, line: str, reason: str
) -> None:
    script = f"{MPI}    if rank == '1':\n        print('this is rank 1', flush=True); {line}{MPI_END}"

    result = run(engine, *job_of(mpi_cpu[1], "mpirun_1x2", script), tmp_path)

    assert (result.outcome, result.failed_rank, result.reason) == (Outcome.FAILED, "algo-1 rank 1", reason)
    assert "this is rank 1" in (tmp_path / "algo-1-rank-1.log").read_text()
    assert "rank 0 stopped with it" in result.exit


def test_a_failing_rank_of_torchrun_is_named(
    engine: DockerEngine, pytorch_cpu: Built, tmp_path: Path
) -> None:
    script = (
        f"{TORCH}    notes.arrived(); dist.init_process_group('gloo')\n"
        "    if rank == '1':\n        raise ValueError('boom')\n    dist.barrier()\n"
    )

    result = run(engine, *job_of(pytorch_cpu[1], "torchrun_1x2", script), tmp_path)

    assert (result.outcome, result.failed_rank, result.reason) == (
        Outcome.FAILED,
        "algo-1 rank 1",
        "ValueError: boom",
    )
    assert any(line.endswith("ValueError: boom") for line in result.tail)


def test_a_failing_rank_on_another_host_ends_the_job_and_is_named(
    engine: DockerEngine, mpi_cpu: Built, tmp_path: Path
) -> None:
    script = f"{MPI}    if rank == '3':\n        raise ValueError('boom'){MPI_END}"

    result = run(engine, *job_of(mpi_cpu[1], "mpi_2x2", script), tmp_path)

    assert (result.failed_rank, result.reason) == ("algo-2 rank 3", "ValueError: boom")
    assert result.seconds < 60
    assert result.tail[-1] == "ValueError: boom"


def test_a_hang_names_the_ranks_that_did_not_arrive(
    engine: DockerEngine, mpi_cpu: Built, tmp_path: Path
) -> None:
    script = f"{MPI}    if rank == '1':\n        time.sleep(600){MPI_END}"
    check, job = job_of(mpi_cpu[1], "mpirun_1x2", script)

    result = run(engine, check, replace(job, deadline=20), tmp_path)

    assert result.reason == "did not end within 20 s; rank 1 did not arrive at the first collective"
    assert result.failed_rank == "algo-1 rank 1"
    assert left_behind(os.getpid()) == []


def test_a_script_that_is_not_there_fails_with_the_toolkit_s_words(
    engine: DockerEngine, mpi_cpu: Built, tmp_path: Path
) -> None:
    check, job = job_of(mpi_cpu[1], "train_success", "")
    environment = {**job.environment, "SAGEMAKER_PROGRAM": "nowhere.py"}

    result = run(engine, check, replace(job, entry_point="nowhere.py", environment=environment), tmp_path)

    assert result.reason == "algo-1 exited with 1"
    assert any("nowhere.py" in line for line in result.tail)


@pytest.fixture(scope="module")
def spoilt(mpi_cpu: Built) -> Iterator[BuiltImage]:
    """An image with a private key, and a `train` that does nothing."""
    _, built = mpi_cpu
    key = b"-----BEGIN OPENSSH PRIVATE KEY-----\n"
    with contextlib.closing(docker.from_env()) as client:
        container = client.containers.create(built.stored)
        container.put_archive("/", tar.pack({"/root/.ssh/id_rsa": key}))
        image = container.commit(changes=['ENTRYPOINT ["sh", "-c", "exit 0"]'])
        container.remove()
        yield replace(built, digest=Digest(str(image.id)), stored=Digest(str(image.id)))
        client.images.remove(str(image.id), force=True)


def test_an_image_that_breaks_the_contract_fails_each_check_that_shows_it(
    engine: DockerEngine, spoilt: BuiltImage, tmp_path: Path
) -> None:
    only = ["train_success", "train_failure", "no_private_keys"]

    report = smoke(engine, spoilt, tmp_path, only=only)

    assert {check.name: check.reason for check in report.checks} == {
        "train_success": "algo-1 wrote no /opt/ml/output/success",
        "train_failure": "a failing script exited with 0 instead of 1",
        "no_private_keys": "the image contains private keys: `/root/.ssh/id_rsa`",
    }


@pytest.mark.parametrize(("sign", "sweeps"), [(signal.SIGINT, 0), (signal.SIGKILL, killed_clusters.SWEEPS)])
def test_nothing_stays_of_a_run_that_was_ended_in_the_middle(
    mpi_cpu: Built, tmp_path: Path, sign: signal.Signals, sweeps: int
) -> None:
    program = f"""
import contextlib, pickle, sys
from pathlib import Path
from bakehouse.engine.docker import connect
from bakehouse.cluster.smoke import smoke
built = pickle.load(sys.stdin.buffer)
with contextlib.closing(connect()) as engine:
    smoke(engine, built, Path({str(tmp_path)!r}), only=["mpi_2x2", "train_success"])
"""
    with started([sys.executable, "-c", program], stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(pickle.dumps(mpi_cpu[1]))
        process.stdin.close()
        deadline = time.monotonic() + 60
        while (left := len(left_behind(process.pid))) < 4 and time.monotonic() < deadline:
            time.sleep(0.2)
        assert left
        process.send_signal(sign)
        process.wait(60)
    _, left_over = killed_clusters.swept(lambda: [*killed_clusters.in_engine(process.pid)], sweeps)
    assert left_over == []


USER_SCRIPT = b"""\
import argparse, json, os
from pathlib import Path
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
epochs = parser.parse_args().epochs
data = json.loads(Path("/opt/ml/input/data/training/numbers.json").read_text())
print(f"rank {os.environ.get('OMPI_COMM_WORLD_RANK', 0)} trained {epochs} epochs on {sum(data)}", flush=True)
"""


@pytest.fixture(scope="module")
def with_code(mpi_cpu: Built) -> Iterator[BuiltImage]:
    """An image that contains a script."""
    image, built = mpi_cpu
    with contextlib.closing(docker.from_env()) as client:
        container = client.containers.create(built.stored)
        container.put_archive("/", tar.pack({"/opt/ml/code/train.py": USER_SCRIPT}))
        committed = container.commit(changes=["ENV SAGEMAKER_PROGRAM=train.py"])
        container.remove()
        yield replace(
            built,
            digest=Digest(str(committed.id)),
            stored=Digest(str(committed.id)),
            image=plans.changed(image, entry_point="train.py"),
        )
        client.images.remove(str(committed.id), force=True)


def test_the_user_s_code_runs_beside_the_standard_checks(
    engine: DockerEngine, with_code: BuiltImage, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/numbers.json").write_text("[1, 2, 3]")
    user_smoke = UserSmoke(
        entry_point="train.py",
        hosts=1,
        processes=2,
        launcher="mpirun",
        hyperparameters=(("epochs", "2"),),
        channels=(("training", tmp_path / "data"),),
        expect="rank 1 trained 2 epochs on 6",
        timeout=300,
        location=Location(Path("small.yaml"), 1, 1),
    )
    built = replace(with_code, image=replace(with_code.image, smoke=user_smoke))
    other_text = replace(user_smoke, launcher="", processes=1, expect="rank 7")

    report = smoke(engine, built, tmp_path, only=["user_code", "train_success"])
    failed = smoke(
        engine,
        replace(built, image=replace(built.image, smoke=other_text)),
        tmp_path,
        only=["user_code"],
    )

    assert {check.name: (check.outcome, check.reason) for check in report.checks} == {
        "user_code": (Outcome.PASSED, ""),
        "train_success": (Outcome.PASSED, ""),
    }
    assert [check.reason for check in failed.checks] == [
        "exit 0, but the log does not contain `rank 7`",
    ]


def test_an_image_without_the_toolkit_is_tested_with_its_launcher(
    engine: DockerEngine, mpi_cpu: Built, tmp_path: Path
) -> None:
    with contextlib.closing(docker.from_env()) as client:
        container = client.containers.create(
            mpi_cpu[1].stored, entrypoint="mv", command=["/opt/venv/bin/train", "/opt/venv/bin/not-train"]
        )
        container.start()
        container.wait()
        committed = container.commit(changes=["ENTRYPOINT []", "CMD []"])
        container.remove()
        bare = replace(mpi_cpu[1], digest=Digest(str(committed.id)), stored=Digest(str(committed.id)))
        try:
            report = smoke(engine, bare, tmp_path, only=["mpirun_1x2", "train_success", "train_failure"])
        finally:
            client.images.remove(str(committed.id), force=True)

    assert {check.name: (check.outcome, check.reason) for check in report.checks} == {
        "mpirun_1x2": (Outcome.PASSED, ""),
        "train_success": (Outcome.NOT_TESTED, "the image contains no `train`"),
        "train_failure": (Outcome.NOT_TESTED, "the image contains no `train`"),
    }
    assert report.transport == "mpi"
