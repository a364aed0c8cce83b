"""Reads the strategies of an estimator's `distribution`, and checks each of them by itself.

Where the mapping was written isn't known here: a mistake is named by the path of its key.
"""

import shlex
from collections.abc import Iterable, Mapping

from bakehouse.errors import Diagnostic, Problems
from bakehouse.yamlfile import suggestion

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


class Mistakes:
    """Collects what is wrong, each by the path of its key."""

    def __init__(self) -> None:
        self.problems = Problems()

    def add(self, path: str, message: str, hint: str = "") -> None:
        self.problems.add(Diagnostic(f"`{path}` {message}", hint=hint))


def read_strategies(distribution: Mapping[str, object], mistakes: Mistakes) -> dict[str, Settings]:
    """The strategies that a distribution has settings for, enabled or not."""
    found: dict[str, Settings] = {}
    outer = {name.partition(".")[0] for name in _KNOWN}
    for key, value in distribution.items():
        path = f"distribution.{key}"
        if key == GROUPS:
            continue
        if key not in outer:
            hint = _ELSEWHERE.get(key) or suggestion(key, [*outer, GROUPS])
            mistakes.add(path, "is no launcher that SageMaker knows", hint)
        elif not isinstance(value, Mapping):
            inner = '{"dataparallel": {"enabled": true}}' if key == _LIBRARIES else '{"enabled": true}'
            mistakes.add(path, "has to be a mapping", f'such as `{{"{key}": {inner}}}`')
        elif key == _LIBRARIES:
            _read_libraries(path, value, found, mistakes)
        else:
            _read(path, key, value, found, mistakes)
    return found


def read_options(path: str, words: Iterable[object], mistakes: Mistakes) -> None:
    """Options for mpirun, word by word."""
    if SINGLE_COPY in words:
        message = f"repeats `{SINGLE_COPY}`, which is always set to `none`"
        mistakes.add(path, message, f"leave out `--mca {SINGLE_COPY}` and its value")


def count(path: str, value: object, mistakes: Mistakes) -> None:
    if type(value) is not int or value < 1:
        mistakes.add(path, "has to be a whole number, 1 or more")


def _list(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _read_libraries(path: str, value: Settings, found: dict[str, Settings], mistakes: Mistakes) -> None:
    libraries = [name.partition(".")[2] for name in _KNOWN if name.startswith(_LIBRARIES)]
    if len(value) != 1:
        mistakes.add(path, f"takes exactly one of {_list(libraries)}", "a job uses one of the libraries")
    for name, settings in value.items():
        if name not in libraries:
            mistakes.add(f"{path}.{name}", "is no library of SageMaker", suggestion(name, libraries))
        elif not isinstance(settings, Mapping):
            hint = f'such as `{{"{name}": {{"enabled": true}}}}`'
            mistakes.add(f"{path}.{name}", "has to be a mapping", hint)
        else:
            _read(f"{path}.{name}", f"{_LIBRARIES}.{name}", settings, found, mistakes)


def _read(path: str, name: str, settings: Settings, found: dict[str, Settings], mistakes: Mistakes) -> None:
    found[name] = settings
    for key, value in settings.items():
        here = f"{path}.{key}"
        if key not in _KNOWN[name]:
            mistakes.add(here, "is unknown", suggestion(key, _KNOWN[name]))
        elif key == ENABLED and not isinstance(value, bool):
            mistakes.add(here, "is `true` or `false`")
        elif key == PROCESSES:
            count(here, value, mistakes)
        elif key == OPTIONS:
            _read_text(here, value, mistakes)
        elif key == PARAMETERS:
            _read_parameters(here, value, mistakes)
    if ENABLED not in settings:
        mistakes.add(path, "has no `enabled`", 'SageMaker takes that for `false`: add `"enabled": true`')


def _read_text(path: str, value: object, mistakes: Mistakes) -> None:
    if not isinstance(value, str):
        mistakes.add(path, "has to be one text", 'such as `"-x NCCL_DEBUG=INFO"`')
        return
    try:
        read_options(path, shlex.split(value), mistakes)
    except ValueError as error:
        mistakes.add(path, f"can't be split into words: {str(error).lower()}", "close the quote")


def _read_parameters(path: str, value: object, mistakes: Mistakes) -> None:
    """The SDK's own rules for the model parallel library."""
    if not isinstance(value, Mapping):
        hint = "put the file's content there" if isinstance(value, str) else ""
        mistakes.add(path, "has to be a mapping", hint)
        return
    for name in _there(value, _COUNTS):
        count(f"{path}.{name}", value[name], mistakes)
    for name in _there(value, _CHOICES):
        if value[name] not in _CHOICES[name]:
            mistakes.add(f"{path}.{name}", f"is one of {_list(_CHOICES[name])}")
    for name in _there(value, _FLAGS):
        if not isinstance(value[name], bool):
            mistakes.add(f"{path}.{name}", "is `true` or `false`")
    weight = value.get("memory_weight", 0)
    if not isinstance(weight, int | float) or not 0 <= weight <= 1:
        mistakes.add(f"{path}.memory_weight", "has to lie between 0 and 1")
    _check_partitions(path, value, mistakes)
    for name in _there(value, ("ddp_port", "ddp_dist_backend")):
        if "ddp" not in value:
            mistakes.add(f"{path}.{name}", "needs `ddp`", 'add `"ddp": true`')
    if value.get("ddp") and value.get("horovod"):
        mistakes.add(path, "has both `ddp` and `horovod`", "take one of them")


def _there(value: Settings, names: Iterable[str]) -> list[str]:
    return [name for name in names if name in value]


def _check_partitions(path: str, value: Settings, mistakes: Mistakes) -> None:
    default, partitions = value.get("default_partition"), value.get("partitions")
    if "default_partition" not in value:
        if value.get("auto_partition") is False:
            mistakes.add(path, "has no `default_partition`, and `auto_partition` is off", "name one")
    elif not (isinstance(default, int) and isinstance(partitions, int) and default < partitions):
        mistakes.add(f"{path}.default_partition", "has to be a number less than `partitions`")
