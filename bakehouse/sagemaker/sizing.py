"""Works out which instances a job needs whose GPUs wait for data: each GPU wants so many vCPUs beside it.

First a larger type of the same family is tried; then instances without GPUs are added, which preprocess the
data in a heterogeneous cluster. Prices and the time of a step are never guessed: they are given, or left out.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bakehouse.catalog.instance_types import Instance, find_instance
from bakehouse.errors import Diagnostic, Problems, UsageError
from bakehouse.util.format import format_count, format_table

STEPS = 100
"""Costs are told for so many steps."""
HELPERS = ("ml.c5.9xlarge", "ml.c5.18xlarge")
"""Instances without GPUs to choose from where none is named."""
_MOST_LARGER = 3
_PART = re.compile(r"(?:(?P<count>[0-9]{1,4}) ?[x*]? ?)?(?P<name>[a-z][a-z0-9.-]*)")


@dataclass(frozen=True, slots=True)
class Need:
    """What a job asks for."""

    gpus: int
    vcpus_per_gpu: float
    batch: int = 0
    """Examples that one replica takes in a step; 0 where that is not asked."""


@dataclass(frozen=True, slots=True)
class Mix:
    """Instances with GPUs, which train, and others without, which help with the data."""

    instance: Instance
    count: int
    helper: Instance | None = None
    helpers: int = 0

    @property
    def name(self) -> str:
        trains = f"{self.count} {self.instance.name}"
        return f"{trains} + {self.helpers} {self.helper.name}" if self.helper else trains

    @property
    def gpus(self) -> int:
        return self.count * (self.instance.gpus or 0)

    @property
    def vcpus(self) -> int:
        helping = self.helpers * (self.helper.vcpus or 0) if self.helper else 0
        return self.count * (self.instance.vcpus or 0) + helping

    @property
    def ratio(self) -> float:
        """vCPUs for each GPU."""
        return self.vcpus / self.gpus

    @property
    def counts(self) -> dict[str, int]:
        """How many of each type."""
        return {self.instance.name: self.count} | ({self.helper.name: self.helpers} if self.helper else {})


@dataclass(frozen=True, slots=True)
class Row:
    """A mix with what is known of it."""

    mix: Mix
    is_enough: bool
    price: float | None = None
    """For an hour of all its instances."""
    seconds: float | None = None
    """For one step, as measured."""

    def cost(self, steps: int = STEPS) -> float | None:
        """What so many steps cost."""
        if self.price is None or self.seconds is None:
            return None
        return self.price / 3600 * self.seconds * steps


@dataclass(frozen=True, slots=True)
class Sizing:
    """The answer: the instances as they were asked for come first."""

    need: Need
    rows: tuple[Row, ...]
    notes: tuple[str, ...]


def size(
    need: Need,
    instance: str,
    known: Mapping[str, Instance],
    helpers: Sequence[str] = (),
    prices: Mapping[str, float] | None = None,
    seconds: Mapping[str, float] | None = None,
) -> Sizing:
    """Mixes of instances for a need; `seconds` are measured steps by mix (`ml.a+2*ml.b`), or ""."""
    problems = Problems()
    trainer = find_instance(known, instance)
    for name in prices or {}:
        find_instance(known, name)
    _check(need, trainer, problems)
    chosen = [find_instance(known, name) for name in helpers] or _usual_helpers(known)
    for helper in chosen:
        if not helper.vcpus or helper.gpus:
            has = f"has {format_count(helper.gpus, 'GPU')}" if helper.gpus else "has no known number of vCPUs"
            problems.add(Diagnostic(f"`{helper.name}` {has}", hint=f"helpers are such as `{HELPERS[-1]}`"))
    problems.raise_as(UsageError)
    given = Mix(trainer, math.ceil(need.gpus / (trainer.gpus or 1)))
    measured = {
        _read_mix(name, known, trainer) if name else given: value for name, value in (seconds or {}).items()
    }
    mixes, notes = [given], []
    larger = _larger(given, need, known, prices or {})
    if given.ratio < need.vcpus_per_gpu:
        mixes += larger
        mixes += _heterogeneous(given, need, chosen, is_free=not helpers)
        if not larger:
            notes.append(f"no larger type of {trainer.family} has {need.vcpus_per_gpu:g} vCPUs for a GPU")
    if given.gpus > need.gpus:
        notes.append(f"asked for {format_count(need.gpus, 'GPU')}; {given.name} bring {given.gpus}")
    mixes += [mix for mix in measured if mix not in mixes]
    rows = tuple(_row(mix, need, prices or {}, measured) for mix in mixes)
    unpriced = sorted({name for mix in mixes for name in mix.counts} - {*(prices or {})})
    if prices and unpriced:
        notes.append("no price is given for " + ", ".join(unpriced))
    return Sizing(need, rows, (*notes, *_cluster(rows, need)))


def text(sizing: Sizing) -> str:
    """The answer as a table, with what it means for the job below."""
    need, [first, *_] = sizing.need, sizing.rows
    wanted = f"{need.vcpus_per_gpu:g} vCPUs each: {need.gpus * need.vcpus_per_gpu:g} vCPUs"
    lines = [f"{format_count(need.gpus, 'GPU')} with {wanted}", ""]
    table = [["instances", "vCPU:GPU", "vCPUs", "enough", "per hour", "s/step", f"{STEPS} steps", ""]]
    table += [_cells(row, first) for row in sizing.rows]
    shown = [column for column in zip(*table, strict=True) if any(column[1:])]
    lines.append(format_table(zip(*shown, strict=True)))
    return "\n".join([*lines, *sizing.notes]) + "\n"


def _cells(row: Row, first: Row) -> list[str]:
    return [
        row.mix.name,
        f"{row.mix.ratio:.3g}:1",
        str(row.mix.vcpus),
        "yes" if row.is_enough else "no",
        _number(row.price),
        _number(row.seconds),
        _number(row.cost()),
        gain(first, row),
    ]


def gain(first: Row, row: Row) -> str:
    """How much faster and cheaper a row is than the first one: `2.2 x faster, 46 % cheaper`."""
    if row is first or not first.seconds or not row.seconds:
        return ""
    times = first.seconds / row.seconds
    words = [f"{times:.1f} x faster" if times >= 1 else f"{1 / times:.1f} x slower"]
    before, now = first.cost(), row.cost()
    if before and now:
        share = round(100 * (1 - now / before))
        words.append(f"{share} % cheaper" if share >= 0 else f"{-share} % dearer")
    return ", ".join(words)


def read_numbers(words: Iterable[str], what: str, *, is_named: bool = True) -> dict[str, float]:
    """Several `NAME=NUMBER`, above zero; a number alone goes by the name "" where that is allowed."""
    problems, found = Problems(), {}
    for word in words:
        name, _, number = word.rpartition("=")
        if (
            (is_named and not name.strip())
            or not re.fullmatch(r"[0-9]*\.?[0-9]+", number.strip())
            or not float(number)
        ):
            hint = f"such as `{what} ml.p4d.24xlarge=1.5`"
            problems.add(Diagnostic(f"`{what} {word}` is no name and number", hint=hint))
        else:
            found[name.strip()] = float(number)
    problems.raise_as(UsageError)
    return found


def _check(need: Need, trainer: Instance, problems: Problems) -> None:
    if trainer.gpus == 0:
        problems.add(Diagnostic(f"`{trainer.name}` has no GPU", hint="name it with `--helper` instead"))
    elif not trainer.gpus or not trainer.vcpus:
        what = "vCPUs" if trainer.gpus else "GPUs"
        hint = "add it to the component `instance`, with its source"
        problems.add(Diagnostic(f"how many {what} `{trainer.name}` has is not in the catalogue", hint=hint))
    elif need.gpus < 1:
        problems.add(Diagnostic(f"{need.gpus} GPUs", hint="one at least: `--gpus 8`"))
    if need.vcpus_per_gpu <= 0:
        problems.add(Diagnostic("how many vCPUs keep one GPU busy?", hint="such as `--vcpu-per-gpu 20`"))


def _usual_helpers(known: Mapping[str, Instance]) -> list[Instance]:
    return [known[name] for name in HELPERS if name in known]


def _larger(given: Mix, need: Need, known: Mapping[str, Instance], prices: Mapping[str, float]) -> list[Mix]:
    """Types of the same family that are enough by themselves: the cheapest, or else the smallest."""
    found = []
    for one in known.values():
        if (
            one.family == given.instance.family
            and one.gpus
            and (one.vcpus or 0) > (given.instance.vcpus or 0)
        ):
            mix = Mix(one, math.ceil(need.gpus / one.gpus))
            if mix.ratio >= need.vcpus_per_gpu:
                found.append(mix)
    priced = all(mix.instance.name in prices for mix in found)
    found.sort(key=lambda mix: (_price(mix, prices) or 0 if priced else 0, mix.vcpus, mix.count))
    return found[:_MOST_LARGER]


def _heterogeneous(given: Mix, need: Need, helpers: Sequence[Instance], *, is_free: bool) -> list[Mix]:
    """With just enough helpers, and with one more; where no type was named, of the one that adds least."""
    lacking = given.gpus * need.vcpus_per_gpu - given.vcpus
    least = {one: math.ceil(lacking / (one.vcpus or 1)) for one in helpers}
    if is_free and least:
        # Of two that add as many the larger one: fewer instances are fewer that can fail.
        best = min(least, key=lambda one: (least[one] * (one.vcpus or 0), least[one]))
        least = {best: least[best]}
    return [
        Mix(given.instance, given.count, one, count + more) for one, count in least.items() for more in (0, 1)
    ]


def _price(mix: Mix, prices: Mapping[str, float]) -> float | None:
    if not all(name in prices for name in mix.counts):
        return None
    return sum(count * prices[name] for name, count in mix.counts.items())


def _row(mix: Mix, need: Need, prices: Mapping[str, float], seconds: Mapping[Mix, float]) -> Row:
    return Row(mix, mix.ratio >= need.vcpus_per_gpu, _price(mix, prices), seconds.get(mix))


def _read_mix(words: str, known: Mapping[str, Instance], trainer: Instance) -> Mix:
    """`2 ml.g5.xlarge + 3 ml.c5.xlarge`; a number that isn't there is 1."""
    parts = [_PART.fullmatch(part.strip()) for part in words.split("+")]
    found = [(find_instance(known, one["name"]), int(one["count"] or 1)) for one in parts if one]
    if len(found) != len(parts) or len(found) > 2 or not all(count for _, count in found):
        message = f"`{words}` is no mix of instances"
        hint = f"such as `{trainer.name}+2*{HELPERS[-1]}`"
        raise UsageError(Diagnostic(message, hint=hint))
    (instance, count), *rest = found
    if not instance.gpus or not instance.vcpus:
        raise UsageError(Diagnostic(f"`{instance.name}` has no GPU", hint="name the type with GPUs first"))
    return Mix(instance, count, *rest[0]) if rest else Mix(instance, count)


def _cluster(rows: Sequence[Row], need: Need) -> tuple[str, ...]:
    """What the smallest mix that is enough means for the job's settings; of none, the first."""
    mix = next((row.mix for row in rows if row.is_enough), rows[0].mix)
    spread = f", {mix.instance.gpus} on each of {mix.count} instances" if mix.count > 1 else ""
    lines = [f"{mix.name}: {format_count(mix.gpus, 'rank')}{spread}"]
    if need.batch:
        lines.append(
            f"global batch: {format_count(mix.gpus, 'replica')} x {need.batch} = {mix.gpus * need.batch}"
        )
    if mix.helper:
        groups = f"train={mix.instance.name}:{mix.count} data={mix.helper.name}:{mix.helpers}"
        lines.append(f"instance groups: {groups}; the launcher belongs to `train`")
    return tuple(lines)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
