"""A batch script for Slurm with enroot and pyxis, as on HyperPod and ParallelCluster.

Sources:

- enroot 4.0 and newer read an image by digest: github.com/NVIDIA/enroot, `src/docker.sh` of v4.0.0.
- Variables of the image win over those of the job, except for those of `--container-env`:
  github.com/NVIDIA/pyxis, README of v0.24.
- The container has the devices and the shared memory of the host: `conf/mounts/10-system.fstab` of enroot.
- Limits come from slurmd and not from the shell of the user: slurm.schedmd.com/sbatch.html, `--propagate`.
- NCCL's interfaces: github.com/awslabs/awsome-distributed-training, `3.test_cases/pytorch/FSDP/slurm`.
"""

import shlex

from bakehouse.cluster.scheduled_job import PORT, ScheduledJob, tensorflow_configuration

INPUT = "input/"
"""Prefix of the directories that the job reads."""
_DATA = "DATA"
"""Variable with the directory of the job's data."""
_GPU_VARIABLES = {
    # enroot mounts the driver only if the image or the job has these.
    "NVIDIA_VISIBLE_DEVICES": "all",
    "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
    # The container has the network of the host, with bridges of other containers.
    "NCCL_SOCKET_IFNAME": "^docker,lo,veth",
}


def batch_script(job: ScheduledJob, comments: str = "") -> str:
    """Return a script for `sbatch`. Comments are lines that start with `#`."""
    variables = {**(_GPU_VARIABLES if job.gpus else {}), **job.all_variables}
    options = [
        f"--job-name={job.name}",
        f"--nodes={job.hosts}",
        f"--ntasks-per-node={job.processes if job.launcher == 'mpirun' else 1}",
        *([f"--gpus-per-node={job.gpus}"] if job.gpus else []),
        # A host of a known type is used as a whole.
        *(["--exclusive"] if job.hosts > 1 or job.instance_type else []),
        "--propagate=NONE",
        f"--time={-(-job.seconds // 60)}",
    ]
    lines = ["#!/bin/bash", *comments.splitlines(), *(f"#SBATCH {option}" for option in options), "set -eu"]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    if job.data:
        lines.append(f': "${{{_DATA}:=/fsx/{job.name}}}"')
        # Mounted directories must exist.
        lines += [f'mkdir -p "${_DATA}/{path}"' for path in job.data if not path.startswith(INPUT)]
    computed = _computed(job)
    lines += [f"export {name}\n{name}={value}" for name, value in computed.items()]
    words = ["srun", *_options(job, [*variables, *computed]), _command(job)]
    return "\n".join([*lines, " \\\n    ".join(words)]) + "\n"


def _computed(job: ScheduledJob) -> dict[str, str]:
    """Return variables that the script finds with the hosts of the job."""
    hosts = 'scontrol show hostnames "$SLURM_JOB_NODELIST"'
    if job.hosts == 1:
        return {}
    if job.launcher == "torchrun":
        return {"MASTER_ADDR": f"$({hosts} | head -n 1)"}
    if job.launcher == "tensorflow":
        return {"WORKERS": f"$({hosts} | sed 's/.*/\"&:{PORT}\"/' | paste -s -d ,)"}
    return {}


def _options(job: ScheduledJob, variables: list[str]) -> list[str]:
    """Return the options of srun and pyxis as words of a shell."""
    host, _, image = job.uri.partition("/")
    mounts = [shlex.quote(f"{source}:{path}") for path, source in job.mounts.items()]
    mounts += [f'"${_DATA}/{directory}:{path}"' for directory, path in job.data.items()]
    return [
        *(["--mpi=pmix"] if job.launcher == "mpirun" else []),
        # One task may use all cores of the job.
        "--cpu-bind=none",
        "--kill-on-bad-exit=1",
        shlex.quote(f"--container-image=docker://{host}#{image}"),
        *([f"--container-mounts={','.join(mounts)}"] if mounts else []),
        *([] if job.replaces_entrypoint else ["--container-entrypoint"]),
        *([f"--container-env={','.join(variables)}"] if variables else []),
        "--no-container-mount-home",
    ]


def _command(job: ScheduledJob) -> str:
    """Return the command of each task. A shell in the container reads what depends on the host."""
    words = shlex.join(job.command)
    if job.launcher == "torchrun" and job.hosts == 1:
        return f"torchrun --standalone --nnodes=1 --nproc_per_node={job.processes} {words}"
    if job.launcher == "torchrun":
        ranks = f'--nnodes={job.hosts} --node_rank="$SLURM_NODEID" --nproc_per_node={job.processes}'
        rendezvous = f'--master_addr="$MASTER_ADDR" --master_port={PORT}'
        return _in_shell(f"exec torchrun {ranks} {rendezvous} {words}")
    if job.launcher == "tensorflow" and job.hosts > 1:
        value = tensorflow_configuration("[$WORKERS]", "$SLURM_NODEID").replace('"', '\\"')
        return _in_shell(f'export TF_CONFIG="{value}"; exec {words}')
    return words


def _in_shell(text: str) -> str:
    return f"sh -c {shlex.quote(text)}"
