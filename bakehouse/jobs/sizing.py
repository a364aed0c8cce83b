"""Recommend instances for jobs whose GPUs or NeuronCores wait for data, from the vCPUs that each one needs.

Candidates are larger types of the same family, and heterogeneous clusters in which instances without GPUs
preprocess the data. Prices and step times are never guessed: the user gives them or they are omitted.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bakehouse.catalog.instance_gpus import platform_of
from bakehouse.catalog.instance_types import Instance, find_instance
from bakehouse.errors import Diagnostic, Problems, UsageError
from bakehouse.util.format import format_count, format_table

STEPS = 100
"""Number of steps for which costs are reported."""
HELPERS = ("ml.c5.9xlarge", "ml.c5.18xlarge")
"""Default instance types without GPUs."""
_MAX_LARGER = 3
_MIX_PART = re.compile(r"(?:(?P<count>[0-9]{1,4}) ?[x*]? ?)?(?P<name>[a-z][a-z0-9.-]*)")


@dataclass(frozen=True, slots=True)
class Need:
    """Needs of a job."""

    gpus: int
    """GPUs or NeuronCores."""
    vcpus_per_gpu: float
    batch: int = 0
    """Examples per replica and step; 0 if unknown."""


@dataclass(frozen=True, slots=True)
class Mix:
    """Instances with accelerators that train, and helpers without them that prepare data."""

    instance: Instance
    count: int
    helper: Instance | None = None
    helpers: int = 0

    @property
    def name(self) -> str:
        trainers = f"{self.count} {self.instance.name}"
        return f"{trainers} + {self.helpers} {self.helper.name}" if self.helper else trainers

    @property
    def accelerators(self) -> int:
        """Number of GPUs or NeuronCores. Each takes a rank."""
        return self.count * (self.instance.accelerators or 0)

    @property
    def vcpus(self) -> int:
        helper_vcpus = self.helpers * (self.helper.vcpus or 0) if self.helper else 0
        return self.count * (self.instance.vcpus or 0) + helper_vcpus

    @property
    def ratio(self) -> float:
        """Number of vCPUs per accelerator."""
        return self.vcpus / self.accelerators

    @property
    def counts(self) -> dict[str, int]:
        """Number of instances of each type."""
        return {self.instance.name: self.count} | ({self.helper.name: self.helpers} if self.helper else {})


@dataclass(frozen=True, slots=True)
class Row:
    """A mix with its price and step time, if known."""

    mix: Mix
    is_enough: bool
    price: float | None = None
    """Price of all instances for an hour."""
    seconds: float | None = None
    """Measured time of one step."""

    @property
    def cost(self) -> float | None:
        """Cost of `STEPS` steps."""
        if self.price is None or self.seconds is None:
            return None
        return self.price / 3600 * self.seconds * STEPS


@dataclass(frozen=True, slots=True)
class Recommendation:
    """Recommendation. The first row is the requested instance type."""

    need: Need
    rows: tuple[Row, ...]
    notes: tuple[str, ...]


def recommend(
    need: Need,
    instance: str,
    types: Mapping[str, Instance],
    helpers: Sequence[str] = (),
    prices: Mapping[str, float] | None = None,
    seconds: Mapping[str, float] | None = None,
) -> Recommendation:
    """Return mixes of instances for a need.

    `seconds` maps mixes (`ml.a+2*ml.b`) to measured step times; the key "" means the requested type.
    """
    problems = Problems()
    trainer = find_instance(types, instance)
    for name in prices or {}:
        find_instance(types, name)
    _check_need(need, trainer, problems)
    helper_types = [find_instance(types, name) for name in helpers]
    platform = platform_of(instance)
    helper_types = helper_types or [
        types[name] for name in HELPERS if name in types and platform_of(name) == platform
    ]
    for helper in helper_types:
        if (other := platform_of(helper.name)) != platform:
            message = f"`{helper.name}` is {other}, but `{instance}` is {platform}"
            hint = "use a type of the same platform: all hosts of a job run one image"
            problems.add(Diagnostic(message, hint=hint))
        if not helper.vcpus or helper.accelerators:
            message = f"the number of vCPUs of `{helper.name}` is unknown"
            if helper.accelerators:
                message = f"`{helper.name}` has {format_count(helper.accelerators, helper.accelerator)}"
            problems.add(
                Diagnostic(message, hint=f"use a type without accelerators, such as `{HELPERS[-1]}`")
            )
    problems.raise_as(UsageError)
    first = Mix(trainer, math.ceil(need.gpus / (trainer.accelerators or 1)))
    measured = {
        _read_mix(name, types, trainer) if name else first: value for name, value in (seconds or {}).items()
    }
    mixes, notes = [first], []
    larger = _larger(first, need, types, prices or {})
    if first.ratio < need.vcpus_per_gpu:
        mixes += larger
        mixes += _heterogeneous(first, need, helper_types, only_best=not helpers)
        if not larger:
            ratio = f"{need.vcpus_per_gpu:g} vCPUs per {trainer.accelerator}"
            notes.append(f"no larger type of {trainer.family} has {ratio}")
    if first.accelerators > need.gpus:
        requested = format_count(need.gpus, trainer.accelerator)
        notes.append(f"requested {requested}, got {first.accelerators} with {first.name}")
    mixes += [mix for mix in measured if mix not in mixes]
    rows = tuple(_row(mix, need, prices or {}, measured) for mix in mixes)
    unpriced = sorted({name for mix in mixes for name in mix.counts} - {*(prices or {})})
    if prices and unpriced:
        notes.append(f"no price for {', '.join(unpriced)}")
    return Recommendation(need, rows, (*notes, *_cluster(rows, need)))


def text(recommendation: Recommendation) -> str:
    """Return a recommendation as a table, followed by settings of the job."""
    need, [first, *_] = recommendation.need, recommendation.rows
    vcpus = f"{need.vcpus_per_gpu:g} vCPUs each: {need.gpus * need.vcpus_per_gpu:g} vCPUs"
    accelerator = first.mix.instance.accelerator
    lines = [f"{format_count(need.gpus, accelerator)} with {vcpus}", ""]
    table = [
        ["instances", f"vCPU:{accelerator}", "vCPUs", "enough", "per hour", "s/step", f"{STEPS} steps", ""]
    ]
    table += [_cells(row, first) for row in recommendation.rows]
    columns = [column for column in zip(*table, strict=True) if any(column[1:])]
    lines.append(format_table(zip(*columns, strict=True)))
    return "\n".join([*lines, *recommendation.notes]) + "\n"


def _cells(row: Row, first: Row) -> list[str]:
    return [
        row.mix.name,
        f"{row.mix.ratio:.3g}:1",
        str(row.mix.vcpus),
        "yes" if row.is_enough else "no",
        _number(row.price),
        _number(row.seconds),
        _number(row.cost),
        gain(first, row),
    ]


def gain(first: Row, row: Row) -> str:
    """Return the gain over the first row: `2.2 x faster, 46 % cheaper`."""
    if row is first or not first.seconds or not row.seconds:
        return ""
    ratio = first.seconds / row.seconds
    gains = [f"{ratio:.1f} x faster" if ratio >= 1 else f"{1 / ratio:.1f} x slower"]
    first_cost, cost = first.cost, row.cost
    if first_cost and cost:
        percent = round(100 * (1 - cost / first_cost))
        gains.append(f"{percent} % cheaper" if percent >= 0 else f"{-percent} % more expensive")
    return ", ".join(gains)


def read_step_seconds(values: Iterable[str]) -> dict[str, float]:
    """Return the seconds in values of `--step-seconds`, `MIX=NUMBER` or `NUMBER`, by mix."""
    problems, numbers = Problems(), {}
    for value in values:
        name, _, number = value.rpartition("=")
        if not re.fullmatch(r"[0-9]*\.?[0-9]+", number.strip()) or not float(number):
            hint = "use for example `--step-seconds ml.p4d.24xlarge=1.5`"
            problems.add(Diagnostic(f"`--step-seconds {value}` is not `NAME=NUMBER`", hint=hint))
        else:
            numbers[name.strip()] = float(number)
    problems.raise_as(UsageError)
    return numbers


def _check_need(need: Need, trainer: Instance, problems: Problems) -> None:
    if trainer.accelerators == 0:
        problems.add(Diagnostic(f"`{trainer.name}` has no GPU", hint="use it with `--helper` instead"))
    elif not trainer.accelerators or not trainer.vcpus:
        noun = "vCPUs" if trainer.accelerators else f"{trainer.accelerator}s"
        message = f"the catalogue does not contain the number of {noun} of `{trainer.name}`"
        problems.add(Diagnostic(message, hint="add it to the component `instance`, with its source"))
    elif need.gpus < 1:
        message = f"the job has {need.gpus} {trainer.accelerator}s"
        problems.add(Diagnostic(message, hint="set `--gpus` to at least 1"))
    if need.vcpus_per_gpu <= 0:
        hint = "set `--vcpu-per-gpu` to the vCPUs that keep one GPU busy, for example to 20"
        problems.add(Diagnostic("the number of vCPUs per GPU is missing", hint=hint))


def _larger(first: Mix, need: Need, types: Mapping[str, Instance], prices: Mapping[str, float]) -> list[Mix]:
    """Return sufficient types of the same family: the cheapest, or else the smallest."""
    mixes = []
    for instance in types.values():
        is_larger = (instance.vcpus or 0) > (first.instance.vcpus or 0)
        if instance.family == first.instance.family and instance.accelerators and is_larger:
            mix = Mix(instance, math.ceil(need.gpus / instance.accelerators))
            if mix.ratio >= need.vcpus_per_gpu:
                mixes.append(mix)
    priced = all(mix.instance.name in prices for mix in mixes)
    mixes.sort(key=lambda mix: (_price(mix, prices) or 0 if priced else 0, mix.vcpus, mix.count))
    return mixes[:_MAX_LARGER]


def _heterogeneous(first: Mix, need: Need, helpers: Sequence[Instance], *, only_best: bool) -> list[Mix]:
    """Return mixes with the minimum number of helpers, and with one more, of each type or the best one."""
    missing = first.accelerators * need.vcpus_per_gpu - first.vcpus
    minimum = {helper: math.ceil(missing / (helper.vcpus or 1)) for helper in helpers}
    if only_best and minimum:
        # With equal vCPUs, the larger type wins, because fewer instances can fail.
        best = min(minimum, key=lambda helper: (minimum[helper] * (helper.vcpus or 0), minimum[helper]))
        minimum = {best: minimum[best]}
    return [
        Mix(first.instance, first.count, helper, count + more)
        for helper, count in minimum.items()
        for more in (0, 1)
    ]


def _price(mix: Mix, prices: Mapping[str, float]) -> float | None:
    if not all(name in prices for name in mix.counts):
        return None
    return sum(count * prices[name] for name, count in mix.counts.items())


def _row(mix: Mix, need: Need, prices: Mapping[str, float], seconds: Mapping[Mix, float]) -> Row:
    return Row(mix, mix.ratio >= need.vcpus_per_gpu, _price(mix, prices), seconds.get(mix))


def _read_mix(text: str, types: Mapping[str, Instance], trainer: Instance) -> Mix:
    """Read a mix such as `2 ml.g5.xlarge + 3 ml.c5.xlarge`. A missing number is 1."""
    parts = [_MIX_PART.fullmatch(part.strip()) for part in text.split("+")]
    counts = [(find_instance(types, part["name"]), int(part["count"] or 1)) for part in parts if part]
    if len(counts) != len(parts) or len(counts) > 2 or not all(count for _, count in counts):
        raise UsageError(
            f"`{text}` is not a combination of instances",
            hint=f"use for example `{trainer.name}+2*{HELPERS[-1]}`",
        )
    (instance, count), *rest = counts
    if not instance.accelerators or not instance.vcpus:
        raise UsageError(f"`{instance.name}` has no GPU", hint="name the type with GPUs first")
    return Mix(instance, count, *rest[0]) if rest else Mix(instance, count)


def _cluster(rows: Sequence[Row], need: Need) -> tuple[str, ...]:
    """Return the job's settings for the smallest sufficient mix, or else for the first."""
    mix = next((row.mix for row in rows if row.is_enough), rows[0].mix)
    per_instance = f", {mix.instance.accelerators} on each of {mix.count} instances" if mix.count > 1 else ""
    lines = [f"{mix.name}: {format_count(mix.accelerators, 'rank')}{per_instance}"]
    if need.batch:
        lines.append(
            f"global batch: {format_count(mix.accelerators, 'replica')} x {need.batch} = "
            f"{mix.accelerators * need.batch}"
        )
    if mix.helper:
        groups = f"train={mix.instance.name}:{mix.count} data={mix.helper.name}:{mix.helpers}"
        lines.append(f"instance groups: {groups}; start the launcher in `train`")
    return tuple(lines)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
