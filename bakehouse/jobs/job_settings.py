"""Reader of Bakehouse's own keys of a job file."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bakehouse.catalog.user_smoke import CHANNEL_NAME, CHANNEL_NAME_HINT
from bakehouse.cluster.job import Group
from bakehouse.errors import Diagnostic, Location, Problems, Reason, UsageError
from bakehouse.jobs.api_fields import ApiField, flatten, missing_names, unknown_names
from bakehouse.jobs.job_document import JobDocument, Keys, dotted
from bakehouse.jobs.job_spec import S3, JobSpec
from bakehouse.util.directory_handles import repository_of
from bakehouse.util.files import expand_home, relative_path
from bakehouse.util.format import format_names
from bakehouse.util.suggest import suggestion

MI, GI = 2**20, 2**30
SIZE = re.compile(r"(?P<number>[0-9]+)(?P<unit>[mg])", re.IGNORECASE)
SIZE_HINT = "such as `512m` or `2g`"
_GROUP_HINT = "such as `train: {instance_type: ml.p4d.24xlarge, instance_count: 2}`"
_CHANNEL_HINT = (
    "such as `training: s3://bucket/data`, or `training: {source: s3://bucket/data, groups: [train]}`"
)
KEYS = (
    *("image", "sdk", "entry_point", "source_dir", "role", "instance_type", "instance_count", "groups"),
    *("launcher", "processes_per_host", "distribution", "hyperparameters", "environment", "keep_alive"),
    *("channels", "output", "max_run", "volume_size", "spot", "local", "request"),
)
"""Bakehouse's own keys."""
OWN_FIELDS: Mapping[str, str] = {
    "TrainingJobName": "--job-name",
    "RoleArn": "role",
    "AlgorithmSpecification.TrainingImage": "image",
    "AlgorithmSpecification.AlgorithmName": "image",
    "HyperParameters": "hyperparameters",
    "Environment": "environment",
    "ResourceConfig.InstanceType": "instance_type",
    "ResourceConfig.InstanceCount": "instance_count",
    "ResourceConfig.InstanceGroups": "groups",
    "ResourceConfig.VolumeSizeInGB": "volume_size",
    "ResourceConfig.KeepAlivePeriodInSeconds": "keep_alive",
    "OutputDataConfig.S3OutputPath": "output",
    "StoppingCondition.MaxRuntimeInSeconds": "max_run",
    "EnableManagedSpotTraining": "spot",
}
"""Fields of CreateTrainingJob that Bakehouse sets itself, and the keys or options for them."""


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """Settings that apply to the containers of `bake run` only."""

    cpus: Mapping[str, float] = field(default_factory=dict)
    """Cores of each host, by group."""
    memory: int | None = None
    """Bytes for each host."""
    volume_bytes: int | None = None
    """Size of the directories that the job writes to, on each host."""
    stop_grace: int | None = None
    """Seconds between SIGTERM and SIGKILL."""
    sdk: str = ""
    """Directory with version 3 of the SageMaker SDK."""


def read_settings(document: JobDocument) -> tuple[str, JobSpec, LocalSettings]:
    """Return a job as a file with Bakehouse's own keys describes it, and the name or URI of its image.

    The image is empty if the command names it. Raises UsageError with all mistakes.
    """
    problems = Problems()
    table = _Table(document, document.values, (), problems)
    groups = _groups(table)
    inputs, channels = _channels(table)
    distribution = table.value("distribution", (str, dict), "a name or a mapping")
    settings = (
        table.text("image"),
        JobSpec(
            sdk=table.text("sdk"),
            entry_point=table.text("entry_point"),
            source_dir=_source_dir(document, table),
            role=table.text("role"),
            instance_type=table.text("instance_type"),
            instance_count=table.number("instance_count", 1),
            groups=groups,
            launcher=table.text("launcher"),
            processes_per_host=table.number("processes_per_host", 1),
            distribution={distribution: {"enabled": True}} if isinstance(distribution, str) else distribution,
            hyperparameters=table.mapping("hyperparameters"),
            environment=table.texts("environment"),
            keep_alive=table.number("keep_alive", 0),
            channels=channels,
            inputs=inputs,
            output=table.text("output"),
            max_run=table.number("max_run", 1),
            volume_gib=table.gibibytes("volume_size"),
            spot=table.flag("spot"),
            request=_request(table, groups),
        ),
        _local(document, table.child("local")),
    )
    table.finish()
    problems.raise_as(UsageError)
    return settings


class _Table:
    """A mapping of a job file, read by key; wrong values are reported and count as missing."""

    def __init__(
        self, document: JobDocument, values: Mapping[str, Any], keys: Keys, problems: Problems
    ) -> None:
        self.values, self.keys, self.problems = values, keys, problems
        self._document = document
        self._known: list[str] = []

    def place(self, *keys: str | int) -> Location:
        return self._document.place((*self.keys, *keys))

    def report(self, key: str | int, message: str, hint: str = "") -> None:
        name = dotted((*self.keys, key))
        self.problems.add(Diagnostic(f"`{name}` {message}", self.place(key), hint=hint))

    def value(self, key: str, kinds: tuple[type, ...], noun: str) -> Any:
        """Return a value of one of some types; None if it is missing or null."""
        self._known.append(key)
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            hint = "put quotes around it" if kinds == (str,) and isinstance(value, int | float) else ""
            self.report(key, f"must be {noun}", hint)
            return None
        return value

    def text(self, key: str) -> str:
        text = self.value(key, (str,), "a text")
        if text == "":
            self.report(key, "is empty", "remove it, or give it a value")
        return text or ""

    def number(self, key: str, least: int) -> int | None:
        number = self.value(key, (int,), "a whole number")
        if number is not None and number < least:
            self.report(key, f"must be at least {least}, not {number}")
            return None
        return number if isinstance(number, int) else None

    def flag(self, key: str) -> bool | None:
        flag = self.value(key, (bool,), "true or false")
        return flag if isinstance(flag, bool) else None

    def mapping(self, key: str) -> dict[str, Any]:
        return dict(self.value(key, (dict,), "a mapping") or {})

    def texts(self, key: str) -> dict[str, str]:
        """Read a mapping of names to texts."""
        table = self.child(key)
        return {name: text for name in table.values if (text := table.any_text(name)) is not None}

    def any_text(self, key: str) -> str | None:
        """Read a text that may be empty."""
        text = self.value(key, (str,), "a text")
        return text if isinstance(text, str) else None

    def child(self, key: str) -> "_Table":
        return _Table(self._document, self.mapping(key), (*self.keys, key), self.problems)

    def size(self, key: str) -> int | None:
        """Read a number of bytes, such as `512m`."""
        text = self.text(key)
        match = SIZE.fullmatch(text)
        if text and match is None:
            self.report(key, f"is `{text}`, which is not a size", SIZE_HINT)
        return int(match["number"]) * {"m": MI, "g": GI}[match["unit"].lower()] if match else None

    def gibibytes(self, key: str) -> int | None:
        """Read a disk size: a number of GB, as in the API, or a text such as `100g`."""
        if isinstance(self.values.get(key), int):
            return self.number(key, 1)
        size = self.size(key)
        return None if size is None else -(-size // GI)

    def finish(self) -> None:
        """Report the keys that were not read."""
        for key in self.values:
            if key not in self._known:
                name = dotted((*self.keys, key))
                self.problems.add(
                    Diagnostic(
                        f"unknown key `{name}` in {self._document.title}",
                        self.place(key),
                        hint=suggestion(key, self._known) or f"use one of {', '.join(self._known)}",
                    )
                )


def _source_dir(document: JobDocument, table: _Table) -> str:
    """Return the directory that is sent with the job, which must be in the repository of the file."""
    path, repository = _path(document, table.text("source_dir")), repository_of(document.directory / "job")
    is_local = path and not path.startswith(S3)
    real = Path(os.path.abspath(path))  # noqa: PTH100  # Path keeps `..`
    if is_local and repository and not real.is_relative_to(repository):
        hint = "move it into the repository, or set `--source-dir`"
        table.report("source_dir", "is outside the repository", hint)
    return path


def _path(document: JobDocument, text: str) -> str:
    """Return a path relative to the current directory; `text` is relative to the directory of the file."""
    if not text or text.startswith(S3):
        return text
    return str(relative_path((document.directory / expand_home(text)).absolute()))


def _groups(table: _Table) -> tuple[Group, ...]:
    child = table.child("groups")
    if child.values == {} and "groups" in table.values:
        table.report("groups", "is empty", _GROUP_HINT)
    for key in ("instance_type", "instance_count"):
        if child.values and table.values.get(key) is not None:
            reason = Reason("`groups` is here", table.place("groups"))
            message = f"`{key}` and `groups` both give the instances of the job"
            hint = "give each group its type and count, and remove the other"
            table.problems.add(Diagnostic(message, table.place(key), reasons=(reason,), hint=hint))
    groups = []
    for name in child.values:
        group = child.child(name)
        instance_type = group.text("instance_type")
        count = group.number("instance_count", 1)
        group.finish()
        if instance_type:
            groups.append(Group(name, instance_type, 1 if count is None else count))
        elif isinstance(child.values[name], dict):
            child.report(name, "has no `instance_type`", _GROUP_HINT)
    return tuple(groups)


def _channels(table: _Table) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """Read the source and the groups of each channel."""
    child = table.child("channels")
    inputs: dict[str, str] = {}
    groups: dict[str, tuple[str, ...]] = {}
    for name, value in child.values.items():
        if not CHANNEL_NAME.fullmatch(name):
            child.report(name, "is not a valid channel name", CHANNEL_NAME_HINT)
        groups[name] = ()
        if isinstance(value, str):
            inputs[name] = child.text(name)
        elif isinstance(value, dict):
            channel = child.child(name)
            source = channel.text("source")
            if source:
                inputs[name] = source
            names = channel.value("groups", (list,), "a list of group names") or []
            if not all(isinstance(group, str) for group in names):
                channel.report("groups", "must be a list of group names")
                names = []
            groups[name] = tuple(names)
            channel.finish()
        else:
            child.report(name, "must be a source, or a mapping with `source` and `groups`", _CHANNEL_HINT)
    for name, source in inputs.items():
        inputs[name] = _path(table._document, source)
    return inputs, groups


def _local(document: JobDocument, table: _Table) -> LocalSettings:
    cpus = table.child("cpus")
    shares: dict[str, float] = {}
    for name in cpus.values:
        share = cpus.value(name, (int, float), "a number of cores")
        if share is not None and share <= 0:
            cpus.report(name, "must be above 0")
        elif share is not None:
            shares[name] = float(share)
    settings = LocalSettings(
        cpus=shares,
        memory=table.size("memory"),
        volume_bytes=table.size("volume_size"),
        stop_grace=table.number("stop_grace", 0),
        sdk=_path(document, table.text("sdk")),
    )
    table.finish()
    return settings


def _request(table: _Table, groups: tuple[Group, ...]) -> tuple[ApiField, ...]:
    """Read further fields of CreateTrainingJob. Their values are checked with the whole job."""
    child = table.child("request")
    for keys, names in unknown_names(child.values):
        message = f"`{dotted(('request', *keys))}` is not a field of CreateTrainingJob"
        hint = suggestion(str(keys[-1]), names) or f"use one of {format_names(sorted(names))}"
        table.problems.add(Diagnostic(message, child.place(*keys), hint=hint))
    for keys, name in missing_names(child.values):
        message = f"`{dotted(('request', *keys))}` has no `{name}`, which the API needs"
        table.problems.add(Diagnostic(message, child.place(*keys)))
    fields = tuple(flatten(child.values))
    for each in fields:
        key = OWN_FIELDS.get(each.path, "")
        given = key in table.values
        if key:
            _refuse_own(table, each.path.split("."), key, (key,) if given else None)
    for index, channel in enumerate(child.values.get("InputDataConfig") or ()):
        channel_name = channel.get("ChannelName") if isinstance(channel, dict) else None
        if channel_name in table.mapping("channels"):
            path = ("InputDataConfig", index)
            _refuse_own(table, path, f"channels.{channel_name}", ("channels", channel_name))
    return fields


def _refuse_own(
    table: _Table, keys: "list[str] | tuple[str | int, ...]", key: str, given: Keys | None
) -> None:
    """Report a field of `request` that Bakehouse sets, with the place of the other key if it is given."""
    reasons: tuple[Reason, ...] = (Reason(f"Bakehouse sets it from `{key}`"),)
    hint = f"remove it, and set `{key}`"
    if given:
        reasons = (Reason(f"`{key}` sets it too", table.place(*given)),)
        hint = "remove one of them" if key.startswith("channels.") else "remove it from `request`"
    message = f"`{dotted(('request', *keys))}` cannot be set"
    table.problems.add(Diagnostic(message, table.place("request", *keys), reasons=reasons, hint=hint))
