"""Options of a job, declared once for `run`, `smoke`, `validate`, `estimator` and `launch`."""

import functools
import inspect
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from bakehouse.cli.tasks.declare import Context
from bakehouse.errors import UsageError

if TYPE_CHECKING:
    from bakehouse.jobs.job_spec import JobSpec

UNSET = -1
"""Default of a number that may be zero: the command line finds the type of an option by its default."""
HELP = {
    "job": "a job of [tool.bakehouse.jobs], a YAML or JSON file, or JSON; other options win over it",
    "instance-type": "such as ml.p4d.24xlarge",
    "instance-count": "number of hosts",
    "group": "instance group `name=type:count`, instead of one type and count; repeatable",
    "distribution": "`distribution` of the estimator or ModelTrainer: a strategy, JSON or a JSON file",
    "entry-point": "the script to send; default: the script of the image",
    "source-dir": "directory to send that contains the script",
    "hyperparameter": "`name=value`; repeatable",
    "environment": "`NAME=value`; repeatable",
    "channel": "`name=s3://bucket/data`, or `name=directory` for `run`; repeatable",
    "role": "ARN of the execution role of the job",
}
"""Help of the options."""
_COUNT = re.compile(r"[0-9]{1,3}")
_GPU = re.compile(r"[0-9]{1,4}(:[0-9]{1,2})?|(GPU|MIG)-[0-9a-zA-Z/-]{1,100}")
"""Number of a GPU, with that of a MIG device after a colon, or a UUID."""
_LISTS = ("group", "hyperparameter", "environment", "channel")
_HOSTS = ("job", "instance_type", "instance_count")
_SCRIPT = (
    *("group", "distribution", "entry_point", "source_dir", "hyperparameter", "environment", "channel"),
)
LOCAL = (*_HOSTS, *_SCRIPT)
"""Options of a job on this machine."""
SMOKE = (*_HOSTS, "role")
"""Options of a job that runs smoke tests."""
SAGEMAKER = (*_HOSTS, *_SCRIPT, "role")
"""Options of a job on SageMaker."""


def line_job(
    group: Sequence[str] = (),
    hyperparameter: Sequence[str] = (),
    environment: Sequence[str] = (),
    channel: Sequence[str] = (),
    instance_type: str = "",
    instance_count: int = UNSET,
    distribution: str = "",
    entry_point: str = "",
    source_dir: str = "",
    role: str = "",
) -> "JobSpec":
    """Return the job that the options give."""
    from bakehouse.cli import job_options
    from bakehouse.jobs.job_spec import JobSpec

    inputs = job_options.pairs(channel, "--channel")
    return JobSpec(
        groups=job_options.named_groups(group),
        hyperparameters=job_options.hyperparameters(hyperparameter),
        environment=job_options.pairs(environment, "--environment"),
        distribution=job_options.read_distribution(distribution),
        entry_point=entry_point,
        source_dir=source_dir,
        role=role,
        instance_type=instance_type,
        instance_count=given(instance_count),
        channels=dict.fromkeys(inputs, ()),
        inputs=inputs,
    )


def with_job(names: Sequence[str]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add options of a job to a task, which receives them as its arguments `line` and `job`."""
    common = inspect.signature(line_job).parameters
    first = inspect.Parameter("job", inspect.Parameter.POSITIONAL_OR_KEYWORD, default="", annotation=str)

    def declare(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def run(context: Context, **values: Any) -> None:
            line = line_job(**{name: values.pop(name) for name in common if name in names})
            function(context, line=line, **values)

        own = inspect.signature(function).parameters
        parameters = [parameter for name, parameter in own.items() if name not in ("line", "job")]
        parameters.append(first)
        for name in filter(names.__contains__, common):
            # the command line finds the lists among the options by their lack of a default.
            default = inspect.Parameter.empty if name in _LISTS else common[name].default
            parameters.append(common[name].replace(default=default))
        parameters.sort(key=lambda parameter: parameter.default is not parameter.empty)
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return run

    return declare


def lists(names: Sequence[str]) -> list[str]:
    """Return the options in `names` that can be repeated."""
    return [name for name in _LISTS if name in names]


def help_of(names: Sequence[str]) -> dict[str, str]:
    """Return the help of some options."""
    return {name: text for name, text in HELP.items() if name.replace("-", "_") in names}


def gpu_ids(gpus: str) -> tuple[str, ...]:
    """Return the GPUs of `--gpus`: the first ones for a count, or those of `device=0,2`."""
    from bakehouse.cluster.job import numbered_gpus

    devices, is_list, ids = gpus.partition("device=")
    if is_list and not devices:
        names = tuple(name.strip() for name in ids.split(","))
        if all(map(_GPU.fullmatch, names)) and len({*names}) == len(names):
            return names
        raise UsageError(
            f"`--gpus {gpus}` does not name GPUs",
            hint="separate different numbers or UUIDs with commas: `--gpus device=0,2`",
        )
    if gpus and not _COUNT.fullmatch(gpus):
        raise UsageError(
            f"`--gpus` must be a number up to 999 or `device=` with GPUs, not `{gpus}`",
            hint="`--gpus 2` gives the first two GPUs, `--gpus device=0,2` the first and the third",
        )
    return numbered_gpus(int(gpus or 0))


def given(number: int) -> int | None:
    """Return the value of a number; None if the option is not given."""
    return None if number == UNSET else number
