"""Smoke tests on other runners than SageMaker: over ssh, or as a job of Slurm, Kubernetes or AWS Batch.

All run the script of `cluster/remote_smoke` in one container. Bakehouse starts it over ssh. For the others,
it prints the job and reads the results from a file.
"""

import base64
import contextlib
import json
import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from bakehouse.cluster import remote_smoke
from bakehouse.cluster.remote_smoke import MARK, RemoteSmoke
from bakehouse.errors import EngineError, SmokeError, UsageError
from bakehouse.util.files import display_path
from bakehouse.util.hashing import key_of
from bakehouse.util.terminal import Reporter

SSH = "ssh://"
PRINTED = ("slurm", "kubernetes", "batch")
MAX_CONFIG_MAP = 1024**2
"""Bytes of all data in a ConfigMap."""
_MOUNT = "/bakehouse"
_SCRIPT = "smoke.py"
_SHARED_MEMORY_MIB = 2048
_BATCH_VCPUS, _BATCH_MIB = 4, 16384
_FETCH = (
    "import sys, urllib.request as request; "
    "exec(compile(request.urlopen(sys.argv.pop(1)).read(), 'smoke.py', 'exec'))"
)


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


def write_job(runner: str, remote: RemoteSmoke, tag: str, directory: Path, seconds: int) -> PrintedJob:
    """Write the script and a job that runs it, and return how to start it.

    `tag` is the candidate's, for runners that cannot pull by digest.
    """
    directory.mkdir(parents=True, exist_ok=True)
    script = directory / _SCRIPT
    script.write_bytes(remote.script())
    name, job, log = job_id(remote), directory / "job.json", directory / "results.log"
    if runner == "slurm":
        job = directory / "job.sbatch"
        commands: tuple[str, ...] = (f"sbatch --wait {_quoted(job)}",)
        text = slurm_script(remote, tag, directory, seconds)
        printed = PrintedJob(job, commands, directory / "results.json")
    elif runner == "kubernetes":
        text = _json(kubernetes_job(remote, script.read_bytes(), seconds))
        commands = (
            # `apply` would copy the script into an annotation, which has a limit.
            f"kubectl create -f {_quoted(job)}",
            f"kubectl wait --for=condition=complete --timeout={seconds}s job/{name}",
            f"kubectl logs job/{name} > {_quoted(log)}",
        )
        printed = PrintedJob(job, commands, log)
    else:
        text = _json(batch_definition(remote, seconds))
        commands = (
            f"aws s3 cp {_quoted(script)} s3://BUCKET/{name}/{_SCRIPT}",
            f"aws batch register-job-definition --cli-input-json file://{_quoted(job)}",
            f"aws batch submit-job --job-name {name} --job-queue QUEUE --job-definition {name} "
            # The job may wait in the queue for longer than the default, an hour.
            f'--parameters "script=$(aws s3 presign s3://BUCKET/{name}/{_SCRIPT} --expires-in 86400)"',
            # `get-log-events` returns at most 1 MB of the log.
            "aws logs filter-log-events --log-group-name /aws/batch/job --log-stream-names STREAM "
            f"--filter-pattern '\"{MARK}\"' > {_quoted(log)}",
        )
        printed = PrintedJob(job, commands, log)
    job.write_text(text)
    return printed


def _quoted(path: Path) -> str:
    """Return a path as a word of a shell."""
    return shlex.quote(display_path(path))


def _json(document: object) -> str:
    return json.dumps(document, indent=2) + "\n"


def slurm_script(remote: RemoteSmoke, tag: str, directory: Path, seconds: int) -> str:
    """Return a batch script for Slurm with enroot and pyxis.

    The documentation of enroot has no form for a digest, so the image is named by the candidate's tag.
    """
    host, _, path = remote.uri.partition("@")[0].partition("/")
    command = [
        "srun",
        f"--container-image=docker://{host}#{path}:{tag}",
        f"--container-mounts={directory.resolve()}:{_MOUNT}",
        "--no-container-mount-home",
        *("python3", f"{_MOUNT}/{_SCRIPT}", "--out", f"{_MOUNT}/results.json"),
    ]
    lines = [
        "#!/bin/bash",
        f"#SBATCH --job-name={job_id(remote)}",
        "#SBATCH --nodes=1",
        "#SBATCH --ntasks=1",
        *([f"#SBATCH --gpus-per-node={remote.gpus}"] if remote.gpus else []),
        f"#SBATCH --time={-(-seconds // 60)}",
        shlex.join(command),
    ]
    return "\n".join(lines) + "\n"


def kubernetes_job(remote: RemoteSmoke, script: bytes, seconds: int) -> dict[str, object]:
    """Return a ConfigMap with the script, and a Job that runs it. Raises UsageError if it is too big."""
    if len(script) * 4 // 3 > MAX_CONFIG_MAP:
        raise UsageError("the checks are too big for a ConfigMap", hint="select some with `--check`")
    metadata = {"name": job_id(remote)}
    limits = {"limits": {"nvidia.com/gpu": str(remote.gpus)}} if remote.gpus else {}
    container = {
        "name": "smoke",
        "image": remote.uri,
        "command": ["python3", f"{_MOUNT}/{_SCRIPT}"],
        "resources": limits,
        "volumeMounts": [
            {"name": "script", "mountPath": _MOUNT, "readOnly": True},
            {"name": "shm", "mountPath": "/dev/shm"},
        ],
    }
    pod = {
        "restartPolicy": "Never",
        "hostname": "algo-1",
        "automountServiceAccountToken": False,
        "containers": [container],
        "volumes": [
            {"name": "script", "configMap": metadata},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{_SHARED_MEMORY_MIB}Mi"}},
        ],
    }
    content = {"binaryData": {_SCRIPT: base64.b64encode(script).decode()}}
    spec = {"backoffLimit": 0, "activeDeadlineSeconds": seconds, "template": {"spec": pod}}
    return {
        "apiVersion": "v1",
        "kind": "List",
        "items": [
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **content},
            {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec},
        ],
    }


def batch_definition(remote: RemoteSmoke, seconds: int) -> dict[str, object]:
    """Return a RegisterJobDefinition request of AWS Batch; the parameter `script` is the script's URL."""
    needs = {"VCPU": _BATCH_VCPUS, "MEMORY": _BATCH_MIB, "GPU": remote.gpus}
    return {
        "jobDefinitionName": job_id(remote),
        "type": "container",
        "platformCapabilities": ["EC2"],
        "retryStrategy": {"attempts": 1},
        "timeout": {"attemptDurationSeconds": max(seconds, 60)},
        "containerProperties": {
            "image": remote.uri,
            "command": ["python3", "-c", _FETCH, "Ref::script"],
            "resourceRequirements": [
                {"type": kind, "value": str(count)} for kind, count in needs.items() if count
            ],
            "linuxParameters": {"sharedMemorySize": _SHARED_MEMORY_MIB},
        },
    }
