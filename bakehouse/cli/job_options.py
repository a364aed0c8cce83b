"""Parses the options of `run`, `estimator`, `launch` and `validate`."""

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from bakehouse.catalog.user_smoke import CHANNEL_NAME, CHANNEL_NAME_HINT
from bakehouse.cluster.job import INSTANCE_TYPE, Group, NetworkPartition
from bakehouse.errors import UsageError
from bakehouse.util.json_reader import parse_json
from bakehouse.util.suggest import suggestion

_NAME = r"[^=,@\n]{1,64}"
"""Name of an instance group: SageMaker allows all characters, but options have separators."""
_GROUP = re.compile(rf"(?P<name>{_NAME})=(?P<type>[a-z0-9.-]+)(?::(?P<count>[0-9]+))?")
_GROUP_HINT = (
    "write `--group data=ml.c5.18xlarge:2`, with a name of at most 64 characters without `=`, `,` or `@`"
)
_KILL = re.compile(r"(?P<host>algo-[0-9]+)@(?:(?P<seconds>[0-9]+(?:\.[0-9]+)?)s?|/(?P<text>.+)/)")
_PARTITION = re.compile(rf"(?P<first>{_NAME}),(?P<second>{_NAME})@(?P<seconds>[0-9]+(?:\.[0-9]+)?)s?")
_LAUNCHER = re.compile("[a-z_]+")
_MAX_GROUPS = 5
_MAX_HOSTS = 64


def cluster(
    groups: Sequence[str], hosts: int, instance_type: str, cpus: Sequence[str], gpus: int
) -> tuple[Group, ...]:
    """Return the groups of `--group name=type:count`, or one group of `--hosts` and `--instance-type`."""
    if groups and (hosts or instance_type):
        hint = "give each group a type and a count: `--group data=ml.c5.18xlarge:2`"
        _refuse("`--group` cannot be combined with `--hosts` or `--instance-type`", hint)
    if groups:
        named = named_groups(groups)
    else:
        named = (Group(instance_type=instance_type or INSTANCE_TYPE, count=hosts or 1),)
    shares = {name: _number(text, "--cpus") for name, text in pairs(cpus, "--cpus").items()}
    names = {group.name for group in named}
    for name in shares.keys() - names:
        _refuse(f"`--cpus` names unknown group `{name}`", f"the groups are {', '.join(sorted(names))}")
    cluster = tuple(replace(group, cpus=shares.get(group.name), gpus=gpus) for group in named)
    if sum(group.count for group in cluster) > _MAX_HOSTS:
        _refuse(f"more than {_MAX_HOSTS} hosts", "use fewer; all hosts share this machine")
    return cluster


def named_groups(words: Sequence[str]) -> tuple[Group, ...]:
    """Return the groups of `--group name=type:count`."""
    groups = tuple(_group(word) for word in words)
    names = [group.name for group in groups]
    if len(set(names)) < len(names):
        _refuse("two groups have the same name", "SageMaker requires unique names")
    if len(groups) > _MAX_GROUPS:
        _refuse(f"{len(groups)} groups", f"SageMaker allows at most {_MAX_GROUPS}")
    return groups


def hyperparameters(words: Sequence[str]) -> dict[str, object]:
    """Return `name=value` pairs. Values are parsed as JSON, as the SDK does; others are strings."""
    values: dict[str, object] = {}
    for name, text in pairs(words, "--hyperparameter").items():
        try:
            values[name] = json.loads(text)
        except (ValueError, RecursionError):
            values[name] = text
    return values


def distribution(text: str) -> Mapping[str, object] | None:
    """Return the value of `--distribution`: JSON, the name of a JSON file, or of a launcher to enable.

    None if it is not set.
    """
    if not text:
        return None
    path = Path(text)
    if _LAUNCHER.fullmatch(text) and not path.exists():
        return {text: {"enabled": True}}
    if not text.lstrip().startswith("{"):
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            hint = "use a launcher such as `torch_distributed`, JSON or a JSON file"
            _refuse(f"cannot read `{path}` as a distribution", hint)
    try:
        settings = parse_json(text)
    except ValueError as error:
        _refuse(f"`--distribution` is not valid JSON: {error}", "keys and strings need double quotes")
    if not isinstance(settings, dict):
        _refuse("`--distribution` is not a JSON object", 'such as `{"mpi": {"enabled": true}}`')
    return settings


def command(text: str, entry_point: str) -> tuple[str, ...]:
    """Return the words of a command, split as in a shell."""
    if text and entry_point:
        _refuse(
            "`--command` cannot be combined with `--entry-point`",
            "name the script in the command: /opt/ml/code/…",
        )
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        _refuse(f"`--command` cannot be split into words: {error}", "quote it as in a shell")


def code(source_dir: str, entry_point: str, command: str = "") -> Path | None:
    """Return the directory of the training code; None if the image contains the code."""
    if not source_dir:
        return None
    source = Path(source_dir)
    if not source.is_dir():
        _refuse(
            f"directory `{source}` does not exist",
            "`--source-dir` is the directory that contains the entry point",
        )
    if command:
        return source
    if not entry_point:
        _refuse("`--source-dir` needs `--entry-point`", "such as `--entry-point train.py`")
    if not (source / entry_point).is_file():
        _refuse(
            f"`{source}` contains no `{entry_point}`", "`--entry-point` is a path relative to `--source-dir`"
        )
    return source


def sdk(directory: str) -> Path | None:
    """Return the directory with the SDK: of `pip install --target`, or of a virtual environment."""
    if not directory:
        return None
    directories = (Path(directory), *Path(directory).glob("lib/python3*/site-packages"))
    installed = next((path for path in directories if (path / "sagemaker").is_dir()), None)
    if installed is None:
        _refuse(
            f"`--sdk {directory}` contains no SageMaker SDK", "run `pip install --target sdk sagemaker-train`"
        )
    return installed


def channels(words: Sequence[str]) -> dict[str, str]:
    """Return the absolute path of each `name=directory` pair."""
    directories = {name: Path(path) for name, path in pairs(words, "--channel").items()}
    for name, directory in directories.items():
        if not CHANNEL_NAME.fullmatch(name):
            _refuse(f"`{name}` is not a valid channel name", CHANNEL_NAME_HINT)
        if not directory.is_dir():
            hint = "`--channel training=data` copies the directory `data`"
            _refuse(f"directory `{directory}` of channel `{name}` does not exist", hint)
    return {name: str(directory.resolve()) for name, directory in directories.items()}


def channel_groups(
    channels: Iterable[str], words: Sequence[str], option: str = "--input"
) -> dict[str, tuple[str, ...]]:
    """Return the instance groups of each channel of `option`; empty means all.

    `words` are the values `name=group,group` of `--input-group` or `--channel-group`.
    """
    groups = pairs(words, f"{option}-group")
    names = list(channels)
    for name in groups:
        if name not in names:
            hint = suggestion(name, names) or f"add `{option} {name}=…`"
            _refuse(f"`{option}-group` names the channel `{name}`, which has no `{option}`", hint)
    return {name: tuple(filter(None, groups.get(name, "").split(","))) for name in names}


def kills(words: Sequence[str]) -> dict[str, float | str]:
    """Return when each host is killed: seconds from `algo-2@10s`, text of a log from `algo-2@/epoch 3/`."""
    moments: dict[str, float | str] = {}
    for word in words:
        match = _KILL.fullmatch(word)
        if match is None:
            hint = "write `--kill algo-2@10s`, or `--kill 'algo-2@/epoch 3/'` for a text in the log"
            _refuse(f"`--kill {word}` does not name a host and a time", hint)
        moments[match["host"]] = match["text"] or float(match["seconds"])
    return moments


def partitions(words: Sequence[str]) -> tuple[NetworkPartition, ...]:
    """Return network partitions between groups or hosts, from `data,dnn@10s`."""
    partitions = []
    for word in words:
        match = _PARTITION.fullmatch(word)
        if match is None:
            _refuse(
                f"`--partition {word}` does not name two groups and a time",
                "write `--partition data,dnn@10s`",
            )
        partitions.append(NetworkPartition(match["first"], match["second"], float(match["seconds"])))
    return tuple(partitions)


def size(text: str, option: str) -> int | None:
    """Return the bytes of `512m` or `2g`; None for an empty text."""
    match = re.fullmatch(r"(?P<number>[0-9]+)(?P<unit>[mg])", text.lower())
    if not text:
        return None
    if match is None:
        _refuse(f"invalid size `{option} {text}`", "such as `512m` or `2g`")
    return int(match["number"]) * {"m": 2**20, "g": 2**30}[match["unit"]]


def _group(word: str) -> Group:
    match = _GROUP.fullmatch(word)
    if match is None or match["count"] == "0":
        _refuse(f"invalid group `--group {word}`", _GROUP_HINT)
    return Group(match["name"], match["type"], int(match["count"] or 1))


def pairs(words: Sequence[str], option: str) -> dict[str, str]:
    """Return the values of `name=value` options by name. Refuse names that are given twice."""
    values: dict[str, str] = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign or not name:
            _refuse(f"`{option} {word}` has no `=`", f"write `{option} name=value`")
        if name in values:
            _refuse(f"`{option}` gives `{name}` twice", "remove one of them")
        values[name] = value
    return values


def _number(text: str, option: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if number <= 0:
        _refuse(f"invalid number `{text}` in `{option}`", "a number of cores above 0, such as `data=1.5`")
    return number


def _refuse(message: str, hint: str) -> NoReturn:
    raise UsageError(message, hint=hint)
