"""Prints how a release is started on SageMaker: a snippet that runs when it is pasted.

Written for version 2 of the SageMaker Python SDK. Its generic Estimator takes `distribution` and drops it, so
that the job silently runs one process a host; the classes named after frameworks pass it on, and with
`image_uri` they put no framework of their own into the job. But they insist on sending a script along: for an
image that carries its own, the generic class gets the hyperparameters that `distribution` stands for.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from bakehouse.errors import Diagnostic, UsageError
from bakehouse.registry import is_loopback
from bakehouse.releases import ReleaseRecord

_LAUNCHERS = ("torchrun", "mpirun", "tensorflow")
_URI_LIMIT = 255


@dataclass(frozen=True, slots=True)
class Job:
    """What a person may want otherwise than the snippet's defaults."""

    entry_point: str = "train.py"
    """The script to send along; an image that carries its own gets none."""
    role: str = ""
    """An execution role's ARN; empty is the one that the code itself runs as, within SageMaker."""
    instance_type: str = ""
    instance_count: int = 2
    launcher: str = ""
    processes_per_host: int | None = None
    """None is one for each GPU, or one where there are none."""


def snippet(record: ReleaseRecord, job: Job = Job()) -> str:
    """Python code that starts a training job with a released image."""
    if len(record.image_uri) > _URI_LIMIT:
        message = f"the image_uri of `{record.image}` has {len(record.image_uri)} characters"
        hint = f"SageMaker takes {_URI_LIMIT}: publish it with a shorter `repository_prefix`"
        raise UsageError(Diagnostic(message, hint=hint))
    name = _class(record)
    arguments: dict[str, object] = {"image_uri": record.image_uri}
    if not record.entry_point:
        arguments["entry_point"] = job.entry_point
    arguments["role"] = job.role or _Code("sagemaker.get_execution_role()")
    arguments["instance_type"] = job.instance_type or ("ml.g5.12xlarge" if record.gpu else "ml.c5.2xlarge")
    arguments["instance_count"] = job.instance_count
    arguments |= _launch(_launcher(record, job), job, generic=name == "Estimator")
    if name == "TensorFlow":
        # Without the version the SDK does not take its own strategy; without model_dir=False it hands the
        # script an argument that it may not know.
        arguments["framework_version"] = record.version_of("tensorflow")
        arguments["model_dir"] = False
    # Made of an address with a digest, a job's name would hold an `@`, and SageMaker takes no dot either.
    arguments["base_job_name"] = re.sub("[._]", "-", record.image)
    lines = [f"    {key}={_literal(value)}," for key, value in arguments.items()]
    imports = [] if job.role else ["import sagemaker"]
    imports.append(f"from sagemaker.{name.lower()} import {name}")
    code = [*_notes(record, name), *imports, "", f"estimator = {name}(", *lines, ")", "estimator.fit()"]
    return "\n".join(code) + "\n"


class _Code(str):
    """An expression instead of a text."""


def _class(record: ReleaseRecord) -> str:
    if record.entry_point:
        return "Estimator"
    if record.version_of("tensorflow") and not record.version_of("pytorch"):
        return "TensorFlow"
    return "PyTorch"


def _notes(record: ReleaseRecord, name: str) -> list[str]:
    tested = f"smoke-tested ({record.transport})" if record.tested else "NOT smoke-tested"
    notes = [f"# {record.image}, published {record.date}, {tested}; for version 2 of the SageMaker SDK"]
    if is_loopback(record.registry):
        notes.append(f"# {record.registry} is a registry on this machine: SageMaker pulls from Amazon ECR.")
    if name != "Estimator" and not record.version_of(name.lower()):
        notes.append(f"# {name} is the class that passes `distribution` on; the image needs no {name}.")
    return notes


def _launcher(record: ReleaseRecord, job: Job) -> str:
    """Which launcher starts the processes: the one asked for, or the framework's own before MPI."""
    module = record.training_module
    there = [name for name in _LAUNCHERS if name in record.launchers]
    if "pytorch" not in module and "torchrun" in there:
        # The plain toolkit knows no torchrun.
        there.remove("torchrun")
    if "tensorflow" in module:
        there.insert(0, "tensorflow")
    if not job.launcher:
        chosen = there[0] if there else ""
        return "mpirun" if job.processes_per_host and "mpirun" in there else chosen
    if job.launcher not in there:
        message = f"`{record.image}` can't start a job with `{job.launcher}`"
        hint = "it has " + ", ".join(f"`{name}`" for name in there) if there else "it has no launcher"
        raise UsageError(Diagnostic(message, hint=hint))
    return job.launcher


def _launch(launcher: str, job: Job, *, generic: bool) -> Mapping[str, object]:
    """The arguments that make SageMaker's toolkit use a launcher."""
    if not launcher:
        return {}
    if job.processes_per_host and launcher != "mpirun":
        message = f"`{launcher}` starts one process for each GPU, or one where there are none"
        raise UsageError(Diagnostic(message, hint="a number of processes is for `mpirun`"))
    names = {
        "mpirun": "mpi",
        "torchrun": "torch_distributed",
        "tensorflow": "multi_worker_mirrored_strategy",
    }
    name = names[launcher]
    if generic:
        parameters = {f"sagemaker_{name}_enabled": "true"}
        if job.processes_per_host:
            parameters["sagemaker_mpi_num_of_processes_per_host"] = str(job.processes_per_host)
        return {"hyperparameters": parameters}
    settings: dict[str, object] = {"enabled": True}
    if job.processes_per_host:
        settings["processes_per_host"] = job.processes_per_host
    return {"distribution": {name: settings}}


def _literal(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f'"{key}": {_literal(item)}' for key, item in value.items()) + "}"
    if isinstance(value, str) and not isinstance(value, _Code):
        return json.dumps(value)
    return str(value)
