"""Reads the strategies of an estimator's `distribution`, and checks each of them by itself.

Where the mapping was written isn't known here: a mistake is named by the path of its key.
"""

import shlex
from collections.abc import Iterable, Mapping

from bakehouse.sagemaker import launch_rules
from bakehouse.sagemaker.findings import Findings
from bakehouse.util.suggest import suggestion

Settings = Mapping[str, object]

GROUPS = "instance_groups"
ENABLED, PROCESSES, OPTIONS, PARAMETERS = "enabled", "processes_per_host", "custom_mpi_options", "parameters"
SINGLE_COPY = "btl_vader_single_copy_mechanism"
_LIBRARIES = "smdistributed"
_KNOWN: Mapping[str, tuple[str, ...]] = {
    "mpi": (ENABLED, PROCESSES, OPTIONS),
    "torch_distributed": (ENABLED,),
    "pytorchddp": (ENABLED, OPTIONS),
    "smdistributed.dataparallel": (ENABLED, OPTIONS),
    "smdistributed.modelparallel": (ENABLED, PARAMETERS),
    "parameter_server": (ENABLED,),
    "multi_worker_mirrored_strategy": (ENABLED,),
}
_ELSEWHERE = {
    "Torchrun": "it is a driver of SDK v3, for its ModelTrainer",
    "MPI": "it is a driver of SDK v3, for its ModelTrainer; an estimator's is `mpi`",
    "torchrun": "`torch_distributed` starts torchrun",
    "horovod": "`mpi` starts Horovod",
    "pytorchxla": "SageMaker Training Compiler alone starts it; `torch_distributed` starts torchrun",
}
"""What one may think of, and what it is here."""
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "pipeline": ("simple", "interleaved", "_only_forward"),
    "placement_strategy": ("spread", "cluster"),
    "optimize": ("speed", "memory"),
}
_FLAGS = ("auto_partition", "contiguous", "load_partition", "horovod", "ddp", "deterministic_server")
_COUNTS = ("microbatches", "partitions", "active_microbatches")


def read_strategies(distribution: Mapping[str, object], findings: Findings) -> dict[str, Settings]:
    """The strategies that a distribution has settings for, enabled or not."""
    found: dict[str, Settings] = {}
    outer = {name.partition(".")[0] for name in _KNOWN}
    for key, value in distribution.items():
        path = f"distribution.{key}"
        if key == GROUPS:
            continue
        if key not in outer:
            hint = _ELSEWHERE.get(key) or suggestion(key, [*outer, GROUPS])
            findings.at(launch_rules.UNKNOWN_STRATEGY, path, "is no launcher that SageMaker knows", hint)
        elif not isinstance(value, Mapping):
            inner = '{"dataparallel": {"enabled": true}}' if key == _LIBRARIES else '{"enabled": true}'
            findings.at(launch_rules.MAPPING, path, "has to be a mapping", f'such as `{{"{key}": {inner}}}`')
        elif key == _LIBRARIES:
            _read_libraries(path, value, found, findings)
        else:
            _read(path, key, value, found, findings)
    return found


def read_options(path: str, words: Iterable[object], findings: Findings) -> None:
    """Options for mpirun, word by word."""
    if SINGLE_COPY in words:
        message = f"repeats `{SINGLE_COPY}`, which is always set to `none`"
        findings.at(launch_rules.SINGLE_COPY, path, message, f"leave out `--mca {SINGLE_COPY}` and its value")


def count(path: str, value: object, findings: Findings) -> None:
    if type(value) is not int or value < 1:
        findings.at(launch_rules.NUMBER, path, "has to be a whole number, 1 or more")


def _list(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _read_libraries(path: str, value: Settings, found: dict[str, Settings], findings: Findings) -> None:
    libraries = [name.partition(".")[2] for name in _KNOWN if name.startswith(_LIBRARIES)]
    if len(value) != 1:
        findings.at(
            launch_rules.ONE_LIBRARY,
            path,
            f"takes exactly one of {_list(libraries)}",
            "a job uses one of the libraries",
        )
    for name, settings in value.items():
        if name not in libraries:
            findings.at(
                launch_rules.LIBRARY,
                f"{path}.{name}",
                "is no library of SageMaker",
                suggestion(name, libraries),
            )
        elif not isinstance(settings, Mapping):
            hint = f'such as `{{"{name}": {{"enabled": true}}}}`'
            findings.at(launch_rules.MAPPING, f"{path}.{name}", "has to be a mapping", hint)
        else:
            _read(f"{path}.{name}", f"{_LIBRARIES}.{name}", settings, found, findings)


def _read(path: str, name: str, settings: Settings, found: dict[str, Settings], findings: Findings) -> None:
    found[name] = settings
    for key, value in settings.items():
        here = f"{path}.{key}"
        if key not in _KNOWN[name]:
            findings.at(launch_rules.UNKNOWN_KEY, here, "is unknown", suggestion(key, _KNOWN[name]))
        elif key == ENABLED and not isinstance(value, bool):
            findings.at(launch_rules.ENABLED, here, "is `true` or `false`")
        elif key == PROCESSES:
            count(here, value, findings)
        elif key == OPTIONS:
            _read_text(here, value, findings)
        elif key == PARAMETERS:
            _read_parameters(here, value, findings)
    if ENABLED not in settings:
        findings.at(
            launch_rules.ENABLED,
            path,
            "has no `enabled`",
            'SageMaker takes that for `false`: add `"enabled": true`',
        )


def _read_text(path: str, value: object, findings: Findings) -> None:
    if not isinstance(value, str):
        findings.at(launch_rules.OPTIONS, path, "has to be one text", 'such as `"-x NCCL_DEBUG=INFO"`')
        return
    try:
        read_options(path, shlex.split(value), findings)
    except ValueError as error:
        findings.at(
            launch_rules.OPTIONS, path, f"can't be split into words: {str(error).lower()}", "close the quote"
        )


def _read_parameters(path: str, value: object, findings: Findings) -> None:
    """The SDK's own rules for the model parallel library."""
    if not isinstance(value, Mapping):
        hint = "put the file's content there" if isinstance(value, str) else ""
        findings.at(launch_rules.MP_PARAMETERS, path, "has to be a mapping", hint)
        return
    for name in _there(value, _COUNTS):
        count(f"{path}.{name}", value[name], findings)
    for name in _there(value, _CHOICES):
        if value[name] not in _CHOICES[name]:
            findings.at(launch_rules.MP_PARAMETERS, f"{path}.{name}", f"is one of {_list(_CHOICES[name])}")
    for name in _there(value, _FLAGS):
        if not isinstance(value[name], bool):
            findings.at(launch_rules.MP_PARAMETERS, f"{path}.{name}", "is `true` or `false`")
    weight = value.get("memory_weight", 0)
    if not isinstance(weight, int | float) or not 0 <= weight <= 1:
        findings.at(launch_rules.MP_PARAMETERS, f"{path}.memory_weight", "has to lie between 0 and 1")
    _check_partitions(path, value, findings)
    if not isinstance(value.get("partition_file", ""), str):
        findings.at(launch_rules.MP_PARAMETERS, f"{path}.partition_file", "has to be a text")
    port = value.get("ddp_port", 0)
    if not isinstance(port, int) or port < 0:
        findings.at(launch_rules.MP_PARAMETERS, f"{path}.ddp_port", "has to be a number, 0 or more")
    for name in _there(value, ("ddp_port", "ddp_dist_backend")):
        if "ddp" not in value:
            findings.at(launch_rules.MP_PARAMETERS, f"{path}.{name}", "needs `ddp`", 'add `"ddp": true`')
    if value.get("ddp") and value.get("horovod"):
        findings.at(launch_rules.MP_PARAMETERS, path, "has both `ddp` and `horovod`", "take one of them")


def _there(value: Settings, names: Iterable[str]) -> list[str]:
    return [name for name in names if name in value]


def _check_partitions(path: str, value: Settings, findings: Findings) -> None:
    default, partitions = value.get("default_partition"), value.get("partitions")
    if "default_partition" not in value:
        if value.get("auto_partition") is False:
            findings.at(
                launch_rules.MP_PARAMETERS,
                path,
                "has no `default_partition`, and `auto_partition` is off",
                "name one",
            )
    elif not (isinstance(default, int) and isinstance(partitions, int) and default < partitions):
        findings.at(
            launch_rules.MP_PARAMETERS,
            f"{path}.default_partition",
            "has to be a number less than `partitions`",
        )
