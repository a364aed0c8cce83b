"""Batch scripts for Slurm, run with stubs of `srun`, `scontrol` and the launchers."""

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from bakehouse.cluster.scheduled_job import ScheduledJob
from bakehouse.cluster.slurm_job import batch_script

URI = "registry.example:5000/team/churn@sha256:4f1c"
TORCHRUN = ScheduledJob(
    "churn",
    URI,
    ("/opt/ml/code/train.py", "--note", "it's $HOME"),
    3601,
    hosts=2,
    launcher="torchrun",
    processes=8,
    gpus=8,
    efa_interfaces=32,
    instance_type="p5.48xlarge",
    environment={"FI_PROVIDER": "efa", "NOTE": "a b"},
    mounts={"/opt/ml/code": "/home/me/my src"},
    data={"input/data/training": "/opt/ml/input/data/training", "model": "/opt/ml/model"},
)
SRUN_STUB = """\
#!/bin/bash
# A stub of srun: it prints its options, and runs the command once for each node of the job.
while [[ $1 == --* ]]; do echo "option $1"; shift; done
for node in $(seq 0 $((NODES - 1))); do SLURM_NODEID=$node "$@"; done
"""
PRINT_STUB = '#!/bin/bash\nprintf "%s|" "${0##*/}" "$@"; echo; echo "TF_CONFIG ${TF_CONFIG-}"\n'


def run(directory: Path, job: ScheduledJob) -> list[str]:
    """Run a script with the stubs, and return the lines that they print."""
    stubs = {"srun": SRUN_STUB, "scontrol": "#!/bin/sh\nprintf 'node-7\\nnode-9\\n'\n"}
    for name in ("torchrun", "python3"):
        stubs[name] = PRINT_STUB
    bin_directory = directory / "bin"
    bin_directory.mkdir()
    for name, text in stubs.items():
        (bin_directory / name).write_text(text)
        (bin_directory / name).chmod(0o755)
    environment = {
        "PATH": f"{bin_directory}:{os.environ['PATH']}",
        "NODES": str(job.hosts),
        "SLURM_JOB_NODELIST": "node-[7,9]",
        "DATA": str(directory / "my data"),
    }
    command = ["bash", "-c", batch_script(job)]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout.splitlines()


def options(lines: list[str]) -> list[str]:
    return [line.removeprefix("option ") for line in lines if line.startswith("option ")]


def test_the_scheduler_gets_hosts_gpus_limits_and_time() -> None:
    script = batch_script(TORCHRUN, "# churn\n")

    assert script.splitlines()[:10] == [
        "#!/bin/bash",
        "# churn",
        "#SBATCH --job-name=churn",
        "#SBATCH --nodes=2",
        "#SBATCH --ntasks-per-node=1",
        "#SBATCH --gpus-per-node=8",
        "#SBATCH --exclusive",
        "#SBATCH --propagate=NONE",
        "#SBATCH --time=61",
        "set -eu",
    ]


def test_torchrun_starts_on_each_host(tmp_path: Path) -> None:
    lines = run(tmp_path, TORCHRUN)

    ranks = [line for line in lines if line.startswith("torchrun|")]
    assert ranks == [
        f"torchrun|--nnodes=2|--node_rank={node}|--nproc_per_node=8|--master_addr=node-7|"
        "--master_port=29500|/opt/ml/code/train.py|--note|it's $HOME|"
        for node in (0, 1)
    ]


def test_the_image_is_named_by_digest_and_keeps_the_variables_of_the_job(tmp_path: Path) -> None:
    words = options(run(tmp_path, TORCHRUN))

    assert words == [
        "--cpu-bind=none",
        "--kill-on-bad-exit=1",
        "--container-image=docker://registry.example:5000#team/churn@sha256:4f1c",
        f"--container-mounts=/home/me/my src:/opt/ml/code,{tmp_path}/my data/input/data/training:"
        f"/opt/ml/input/data/training,{tmp_path}/my data/model:/opt/ml/model",
        "--container-entrypoint",
        "--container-env=NVIDIA_VISIBLE_DEVICES,NVIDIA_DRIVER_CAPABILITIES,NCCL_SOCKET_IFNAME,FI_PROVIDER,NOTE,"
        "MASTER_ADDR",
        "--no-container-mount-home",
    ]


def test_directories_that_the_job_writes_are_made(tmp_path: Path) -> None:
    run(tmp_path, TORCHRUN)

    assert (tmp_path / "my data/model").is_dir()
    # A missing input must stay an error.
    assert not (tmp_path / "my data/input").exists()


def test_torchrun_on_one_host_needs_no_address(tmp_path: Path) -> None:
    lines = run(tmp_path, replace(TORCHRUN, hosts=1))

    assert "torchrun|--standalone|--nnodes=1|--nproc_per_node=8|/opt/ml/code/train.py|" in "\n".join(lines)


def test_mpi_ranks_are_tasks_of_slurm(tmp_path: Path) -> None:
    job = replace(TORCHRUN, launcher="mpirun", command=("python3", "train.py"), gpus=0)

    assert "#SBATCH --ntasks-per-node=8\n" in batch_script(job)
    lines = run(tmp_path, job)
    assert options(lines)[0] == "--mpi=pmix"
    assert "python3|train.py|" in lines


def test_tensorflow_gets_the_hosts_and_the_index(tmp_path: Path) -> None:
    job = replace(TORCHRUN, launcher="tensorflow", processes=1, command=("python3", "train.py"))

    values = [line.removeprefix("TF_CONFIG ") for line in run(tmp_path, job) if line.startswith("TF_CONFIG")]

    assert [json.loads(value) for value in values] == [
        {"cluster": {"worker": ["node-7:29500", "node-9:29500"]}, "task": {"type": "worker", "index": index}}
        for index in (0, 1)
    ]


@pytest.mark.parametrize(("hosts", "instance_type", "is_exclusive"), [(1, "", False), (1, "c5.large", True)])
def test_a_host_of_a_known_type_is_used_as_a_whole(
    hosts: int, instance_type: str, is_exclusive: bool
) -> None:
    script = batch_script(replace(TORCHRUN, hosts=hosts, instance_type=instance_type))

    assert ("#SBATCH --exclusive" in script) is is_exclusive
