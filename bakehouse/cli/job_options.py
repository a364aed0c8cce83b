"""Reads what `./bake run`, `estimator` and `launch` are asked for, as words of a command line."""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from bakehouse.cluster.job import Group, NetworkPartition, homogeneous
from bakehouse.errors import Diagnostic, UsageError

_GROUP = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9-]{0,63})=(?P<type>[a-z0-9.-]+)(?::(?P<count>[0-9]+))?")
_KILL = re.compile(r"(?P<host>algo-[0-9]+)@(?P<seconds>[0-9]+(?:\.[0-9]+)?)s?")
_NAME = r"[A-Za-z0-9][A-Za-z0-9-]*"
_CUT = re.compile(rf"(?P<one>{_NAME}),(?P<other>{_NAME})@(?P<seconds>[0-9]+(?:\.[0-9]+)?)s?")
_MOST_GROUPS = 5
_MOST_HOSTS = 64


def cluster(
    groups: Sequence[str], hosts: int, instance_type: str, cpus: Sequence[str], gpus: int
) -> tuple[Group, ...]:
    """The groups of `--group name=type:count`, or the one of `--hosts` and `--instance-type`."""
    if groups and (hosts or instance_type):
        hint = "give every group its type and count: `--group data=ml.c5.18xlarge:2`"
        _refuse("`--group` takes the place of `--hosts` and `--instance-type`", hint)
    if groups:
        found = named_groups(groups)
    else:
        [one] = homogeneous(hosts or 1)
        found = (replace(one, instance_type=instance_type or one.instance_type),)
    shares = {name: _number(text, "--cpus") for name, text in _pairs(cpus, "--cpus").items()}
    known = {group.name for group in found}
    for name in shares.keys() - known:
        _refuse(f"`--cpus` names group `{name}`", f"there are {', '.join(sorted(known))}")
    found = tuple(replace(group, cpus=shares.get(group.name), gpus=gpus) for group in found)
    if sum(group.count for group in found) > _MOST_HOSTS:
        _refuse(f"more than {_MOST_HOSTS} hosts", "try fewer: they share this machine")
    return found


def named_groups(words: Sequence[str]) -> tuple[Group, ...]:
    """The groups of `--group name=type:count`."""
    found = tuple(_group(word) for word in words)
    names = [group.name for group in found]
    if len(set(names)) < len(names):
        _refuse("two groups have the same name", "SageMaker takes each name once")
    if len(found) > _MOST_GROUPS:
        _refuse(f"{len(found)} groups", f"SageMaker takes at most {_MOST_GROUPS}")
    return found


def hyperparameters(words: Sequence[str]) -> dict[str, object]:
    """`k=v` pairs; a value that is JSON is taken as that, as the SDK's are, and others as text."""
    found: dict[str, object] = {}
    for name, text in _pairs(words, "--hyperparameter").items():
        try:
            found[name] = json.loads(text)
        except ValueError:
            found[name] = text
    return found


def distribution(text: str) -> Mapping[str, object]:
    """What `distribution` says: JSON, or the name of a file that holds it."""
    if not text:
        return {}
    path = Path(text)
    if not text.lstrip().startswith("{"):
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            hint = """JSON as in `'{"torch_distributed": {"enabled": true}}'`, or a file that holds it"""
            _refuse(f"can't read `{path}` as a distribution", hint)
    try:
        found = json.loads(text)
    except ValueError as error:
        _refuse(f"the distribution is no JSON: {error}", "keys and texts need double quotes")
    if not isinstance(found, dict):
        _refuse("the distribution is no JSON object", 'such as `{"mpi": {"enabled": true}}`')
    return found


def command(text: str, entry_point: str) -> tuple[str, ...]:
    """The words of a command as a shell would part them."""
    if text and entry_point:
        _refuse("`--command` takes the place of `--entry-point`", "name it in the command: /opt/ml/code/…")
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        _refuse(f"`--command` cannot be split into words: {error}", "as a shell would take it")


def code(source_dir: str, entry_point: str, command: str = "") -> Path | None:
    """The folder of the training code; None where the image brings its own."""
    if not source_dir:
        return None
    source = Path(source_dir)
    if not source.is_dir():
        _refuse(f"there is no folder `{source}`", "`--source-dir` is the folder that holds the entry point")
    if command:
        return source
    if not entry_point:
        _refuse("`--source-dir` without `--entry-point`", "`--entry-point train.py` names the script")
    if not (source / entry_point).is_file():
        _refuse(f"`{source}` holds no `{entry_point}`", "`--entry-point` is a path below `--source-dir`")
    return source


def sdk(folder: str) -> Path | None:
    """The folder that the SDK is installed in: of `pip install --target`, or of a virtual environment."""
    if not folder:
        return None
    places = (Path(folder), *Path(folder).glob("lib/python3*/site-packages"))
    found = next((place for place in places if (place / "sagemaker").is_dir()), None)
    if found is None:
        _refuse(f"`--sdk {folder}` holds no SageMaker SDK", "`pip install --target sdk sagemaker-train`")
    return found


def channels(words: Sequence[str]) -> dict[str, Path]:
    """`name=folder` pairs."""
    found = {name: Path(folder) for name, folder in _pairs(words, "--channel").items()}
    for name, folder in found.items():
        if not folder.is_dir():
            hint = "`--channel training=data` mounts the folder `data`"
            _refuse(f"channel `{name}` has no folder `{folder}`", hint)
    return found


def inputs(words: Sequence[str]) -> dict[str, str]:
    """`name=s3://…` pairs."""
    return _pairs(words, "--input")


def environment(words: Sequence[str]) -> dict[str, str]:
    """`NAME=value` pairs."""
    return _pairs(words, "--environment")


def kills(words: Sequence[str]) -> dict[str, float]:
    """`algo-2@10s`: which host dies, and when."""
    found = {}
    for word in words:
        match = _KILL.fullmatch(word)
        if match is None:
            _refuse(f"`--kill {word}` names no host and time", "write `--kill algo-2@10s`")
        found[match["host"]] = float(match["seconds"])
    return found


def cuts(words: Sequence[str]) -> tuple[NetworkPartition, ...]:
    """`data,dnn@10s`: which groups or hosts are cut off from each other, and when."""
    found = []
    for word in words:
        match = _CUT.fullmatch(word)
        if match is None:
            _refuse(
                f"`--partition {word}` does not name two groups and a time",
                "write `--partition data,dnn@10s`",
            )
        found.append(NetworkPartition(match["one"], match["other"], float(match["seconds"])))
    return tuple(found)


def size(text: str, option: str) -> int | None:
    """Bytes of `512m` or `2g`; None where nothing is said."""
    match = re.fullmatch(r"(?P<number>[0-9]+)(?P<unit>[mg])", text.lower())
    if not text:
        return None
    if match is None:
        _refuse(f"`{option} {text}` is no size", "such as `512m` or `2g`")
    return int(match["number"]) * {"m": 2**20, "g": 2**30}[match["unit"]]


def _group(word: str) -> Group:
    match = _GROUP.fullmatch(word)
    if match is None or match["count"] == "0":
        _refuse(f"`--group {word}` is no group", "write `--group data=ml.c5.18xlarge:2`")
    return Group(match["name"], match["type"], int(match["count"] or 1))


def _pairs(words: Sequence[str], option: str) -> dict[str, str]:
    """The values by their names, each of which is given once."""
    found: dict[str, str] = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign or not name:
            _refuse(f"`{option} {word}` has no `=`", f"write `{option} name=value`")
        if name in found:
            _refuse(f"`{option}` names `{name}` twice", "leave one of them out")
        found[name] = value
    return found


def _number(text: str, option: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if number <= 0:
        _refuse(f"`{option}` with `{text}`", "a number of cores above 0, such as `data=1.5`")
    return number


def _refuse(message: str, hint: str) -> NoReturn:
    raise UsageError(Diagnostic(message, hint=hint))
