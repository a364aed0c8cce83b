"""Smoke tests on other runners than SageMaker: over ssh, as a job of Slurm or Kubernetes, or by hand.

All run the script of `cluster/remote_smoke` in one container, or in the image's files on a machine without an
engine. Bakehouse starts it over ssh. For the others, it prints the job and reads the results from a file.
"""

import contextlib
import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from bakehouse.cluster import remote_smoke
from bakehouse.cluster.bare_machine import ARCHIVE, RESULTS, RootFileSystem, bare_script
from bakehouse.cluster.kubernetes_job import kubernetes_manifests
from bakehouse.cluster.remote_smoke import RemoteSmoke
from bakehouse.cluster.scheduled_job import ScheduledJob
from bakehouse.cluster.slurm_job import batch_script
from bakehouse.errors import EngineError, SmokeError, UsageError
from bakehouse.util.files import display_path, make_directory, read_bytes, write_whole
from bakehouse.util.hashing import key_of
from bakehouse.util.terminal import Reporter
from bakehouse.util.yaml_writer import dump_documents

SSH = "ssh://"
PRINTED = ("slurm", "kubernetes")
BARE = "bare"
"""A machine without a container engine and without a scheduler."""
_MOUNT = "/bakehouse"
_SCRIPT = "smoke.py"
_SHARED_MEMORY_MIB = 2048


def job_id(remote: RemoteSmoke) -> str:
    """Return a name for the containers and jobs of a smoke test, valid on all runners."""
    name = re.sub(r"[^a-z0-9]+", "-", remote.image.name.lower()).strip("-")[:40]
    return f"smoke-{name}-{key_of(remote.uri)[:8]}"


def run_over_ssh(remote: RemoteSmoke, target: str, seconds: int, report: Reporter) -> dict[str, object]:
    """Run the script in a container on a host with docker, and return its results.

    Raises EngineError if the host cannot be reached, SmokeError without results.
    """
    ssh, name = _ssh_command(target), job_id(remote)
    command = [*ssh, shlex.join(_docker_run(remote, name))]
    report(f"{remote.image.name}: running {remote.uri} on {target}; Ctrl-C stops it")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            output, _ = process.communicate(remote.script(), timeout=seconds)
        except BaseException as error:
            process.kill()
            # The end of ssh does not end the container.
            with contextlib.suppress(subprocess.TimeoutExpired):
                remove = shlex.join(["docker", "rm", "--force", name])
                subprocess.run([*ssh, remove], stdout=subprocess.DEVNULL, timeout=30, check=False)
            if isinstance(error, subprocess.TimeoutExpired):
                raise SmokeError(
                    f"the checks on `{target}` did not end within {seconds} s",
                    hint="set a higher `max_run` in a job file, for `--job`",
                ) from None
            raise
    if process.returncode == 255:
        raise EngineError(
            f"`{target}` cannot be reached over ssh",
            hint=f"run `{shlex.join([*ssh, 'docker', 'version'])}` to see why",
        )
    return remote_smoke.read_results(output.decode(errors="replace"), f"the output of `{target}`")


def _ssh_command(target: str) -> list[str]:
    parts = urlsplit(target)
    try:
        port = parts.port
    except ValueError:
        port = 0
    if parts.password is not None:
        # The address of the host goes into the report.
        raise UsageError(
            "the address of the host contains a password", hint="remove it; ssh uses keys or an agent"
        )
    if not parts.hostname or port == 0 or parts.path.strip("/") or parts.hostname.startswith("-"):
        raise UsageError(
            f"`{target}` is not the address of a host", hint="use `ssh://user@host` or `ssh://host:port`"
        )
    host = f"{parts.username}@{parts.hostname}" if parts.username else parts.hostname
    return ["ssh", "-o", "BatchMode=yes", *(["-p", str(port)] if port else []), "--", host]


def _docker_run(remote: RemoteSmoke, name: str) -> list[str]:
    # Docker reads CSV: without quotes, the second id would be a setting.
    ids = f'"device={",".join(remote.gpu_ids)}"' if remote.gpu_ids else ""
    gpus = ["--gpus", ids or str(remote.gpus)] if remote.gpus else []
    options = ["--rm", "--interactive", "--name", name, "--hostname", "algo-1"]
    options += ["--shm-size", f"{_SHARED_MEMORY_MIB}m", *gpus, "--entrypoint", "python3"]
    return ["docker", "run", *options, remote.uri, "-"]


@dataclass(frozen=True, slots=True)
class PrintedJob:
    """A job for a runner that Bakehouse does not start, and how to start it."""

    path: Path
    commands: tuple[str, ...]
    results: Path
    """File that the last command or the job itself writes."""
    text: str
    """Text for standard output."""


def write_job(runner: str, remote: RemoteSmoke, directory: Path, seconds: int) -> PrintedJob:
    """Write the script and a job that runs it, and return how to start it."""
    make_directory(directory)
    script = directory / _SCRIPT
    write_whole(script, remote.script())
    scheduled = scheduled_job(runner, remote, script, seconds)
    name, log = scheduled.name, directory / "results.log"
    if runner == "slurm":
        job = directory / "job.sbatch"
        text = batch_script(scheduled)
        write_whole(job, text)
        return PrintedJob(job, (f"sbatch --wait {_quoted(job)}",), directory / "results.json", text)
    job = directory / "job.yaml"
    text = dump_documents(kubernetes_manifests(scheduled))
    write_whole(job, text)
    commands = (
        # `apply` would copy the script into an annotation, which has a limit.
        f"kubectl create -f {_quoted(job)}",
        f"kubectl wait --for=condition=complete --timeout={seconds}s job/{name}",
        f"kubectl logs job/{name} > {_quoted(log)}",
    )
    return PrintedJob(job, commands, log, text)


def write_bare_script(remote: RemoteSmoke, root: RootFileSystem, directory: Path, seconds: int) -> PrintedJob:
    """Write the script for a machine without a container engine next to the image's files."""
    script = directory / "smoke.sh"
    write_whole(script, bare_script(remote, root, seconds))
    results = directory / RESULTS
    commands = (
        f"scp {_quoted(directory / ARCHIVE)} {_quoted(script)} gpu-host:",
        f"ssh -t gpu-host sh {script.name}",
        f"scp gpu-host:{RESULTS} {_quoted(results)}",
    )
    return PrintedJob(script, commands, results, f"{display_path(directory)}\n")


def scheduled_job(runner: str, remote: RemoteSmoke, script: Path, seconds: int) -> ScheduledJob:
    """Return the job that runs a script on one host. Slurm's hosts share its directory with this machine."""
    results = ("--out", f"{_MOUNT}/results.json") if runner == "slurm" else ()
    return ScheduledJob(
        job_id(remote),
        remote.uri,
        ("python3", f"{_MOUNT}/{_SCRIPT}", *results),
        seconds,
        gpus=remote.gpus,
        directory=_MOUNT,
        files={_SCRIPT: read_bytes(script)},
        mounts={_MOUNT: str(script.parent.resolve())},
        shared_memory_mib=_SHARED_MEMORY_MIB,
        hostname="algo-1",
        replaces_entrypoint=True,
    )


def _quoted(path: Path) -> str:
    """Return a path as a word of a shell."""
    return shlex.quote(display_path(path))
