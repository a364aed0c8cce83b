"""Parameters of SMP, SageMaker's model parallel library: their names, types and degrees.

Their facts are `parameters.yaml` of the components `smp` (SMP 1) and `aws-smp2` (SMP 2).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from bakehouse.catalog.names import FRAMEWORKS
from bakehouse.catalog.project import HOME
from bakehouse.errors import Problems, RecipeError
from bakehouse.jobs import rules
from bakehouse.jobs.instance_groups import numbers
from bakehouse.jobs.rules import Findings
from bakehouse.util import yaml_reader
from bakehouse.util.format import format_names
from bakehouse.util.suggest import nearest, suggestion
from bakehouse.util.yaml_fields import Fields

_COMPONENTS = {1: "smp", 2: "aws-smp2"}
_TYPES = ("whole", "number", "flag", "text")
PIPELINE, PARTITIONS = "pipeline_parallel_degree", "partitions"
_TENSOR, _SHARDED, _HYBRID = "tensor_parallel_degree", "sharded_data_parallel_degree", "hybrid_shard_degree"
_CONTEXT, _EXPERT = "context_parallel_degree", "expert_parallel_degree"
_RENAMED = (1, 6)
"""Release of SMP that renamed `partitions` with PyTorch."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of the library."""

    kind: str
    """One of `whole`, `number`, `flag` and `text`; empty with `choices`."""
    least: int = 1
    most: int | None = None
    choices: tuple[str, ...] = ()
    since: str = ""
    """First release that has it; empty if it is unknown, or if all releases have it."""
    framework: str = ""
    """The only framework that has it; empty means both."""


@dataclass(frozen=True, slots=True)
class SmpContext:
    """Facts about a job that the parameters of SMP depend on."""

    version: str
    """Version of SMP in the image; empty if unknown."""
    major: int
    framework: str
    ranks: int | None
    """Ranks of the job; None if unknown."""

    @property
    def numbers(self) -> tuple[int, ...]:
        """First two numbers of the version; empty if unknown."""
        return numbers(self.version)

    @property
    def has(self) -> str:
        return f"the image has {self.version}" if self.version else f"the job uses SMP {self.major}"

    @property
    def degree(self) -> str:
        """Name of the required parameter in this release."""
        is_old = bool(self.numbers) and self.numbers < _RENAMED
        return PARTITIONS if self.framework == "tensorflow" or is_old else PIPELINE


@cache
def parameters(major: int) -> Mapping[str, Parameter]:
    """Return the parameters of SMP 1 or 2 by name, in the order of their reference."""
    path = HOME / "recipes/components" / _COMPONENTS[major] / "parameters.yaml"
    problems = Problems()
    table = Fields(yaml_reader.load(path), f"`{path.name}`", problems)
    table.text("source", required=True)
    table_of = {}
    for name, node in table.pairs("parameters"):
        fields = table.inner(node, f"parameter `{name.text}`")
        table_of[name.text] = Parameter(
            kind=fields.choice("type", ("", *_TYPES), ""),
            least=fields.number("least", 1),
            most=fields.number("most", 0) or None,
            choices=fields.texts("choices"),
            since=fields.text("since"),
            framework=fields.text("framework"),
        )
        fields.finish()
    table.finish()
    problems.raise_as(RecipeError)
    return table_of


def check_value(path: str, name: str, value: object, findings: Findings) -> None:
    """Check the type and range of a parameter that SMP 1 or 2 has; others are ignored."""
    parameter = parameters(1).get(name) or parameters(2).get(name)
    if parameter is None:
        return
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if parameter.choices and value not in parameter.choices:
        findings.at(rules.MP_PARAMETERS, path, f"must be one of {format_names(parameter.choices)}")
    elif parameter.kind == "flag" and not isinstance(value, bool):
        findings.at(rules.MP_PARAMETERS, path, "must be `true` or `false`")
    elif parameter.kind == "text" and not isinstance(value, str):
        findings.at(rules.MP_PARAMETERS, path, "must be a string")
    elif parameter.kind == "whole" and (type(value) is not int or value < parameter.least):
        findings.at(rules.NUMBER, path, f"must be a whole number of at least {parameter.least}")
    elif parameter.kind == "number" and parameter.most and not (is_number and 0 <= value <= parameter.most):  # type: ignore[operator]
        findings.at(rules.MP_PARAMETERS, path, f"must be between {parameter.least} and {parameter.most}")
    elif parameter.kind == "number" and not is_number:
        findings.at(rules.MP_PARAMETERS, path, "must be a number")


def check_names(path: str, values: Mapping[str, object], context: SmpContext, findings: Findings) -> None:
    """Check that the release of SMP has all parameters."""
    known = parameters(context.major)
    others = parameters(3 - context.major)
    for name in values:
        here = f"{path}.{name}"
        parameter = known.get(name)
        if parameter is None and context.major == 2 and name in (PIPELINE, PARTITIONS):
            message = f"is a parameter of SMP 1, but {context.has}"
            findings.at(rules.SMP_PARAMETER, here, message, "remove it: SMP 2 has no pipeline parallelism")
        elif parameter is None and name in others:
            message = f"is a parameter of SMP {3 - context.major}, but {context.has}"
            findings.at(rules.SMP_PARAMETER, here, message, "remove it")
        elif parameter is None and nearest(name, known):
            findings.at(rules.SMP_PARAMETER, here, "is unknown", suggestion(name, known))
        elif parameter is None:
            hint = "remove it, unless you know that this release has it"
            findings.at(
                rules.SMP_UNDOCUMENTED, here, f"is not a documented parameter of SMP {context.major}", hint
            )
        elif parameter.framework and context.framework and parameter.framework != context.framework:
            hint = f"use `{PARTITIONS}`" if name == PIPELINE else "remove it"
            title = FRAMEWORKS[parameter.framework].title
            findings.at(rules.SMP_PARAMETER, here, f"is only for {title}", hint)
        elif parameter.since and context.numbers and context.numbers < numbers(parameter.since):
            hint = f"use `{PARTITIONS}`, the name in older releases" if name == PIPELINE else "remove it"
            message = f"needs SMP {parameter.since}, but {context.has}"
            findings.at(rules.SMP_PARAMETER, here, message, hint)
    if PARTITIONS in values and PIPELINE not in values and context.numbers and context.degree == PIPELINE:
        message = f"SMP {context.version} calls `{PARTITIONS}` `{PIPELINE}`"
        findings.add(rules.PARTITIONS, message, f"rename it to `{PIPELINE}`")


def check_degrees(path: str, values: Mapping[str, object], context: SmpContext, findings: Findings) -> None:
    """Check that the degrees of parallelism divide the ranks of the job. The types must be correct."""
    degrees = {name: value for name, value in values.items() if isinstance(value, int)}
    if context.ranks is None:
        return
    if context.major == 2:
        names = [name for name in (_HYBRID, _TENSOR, _CONTEXT, _EXPERT) if name in degrees]
        for name in names:
            _check_degree(
                f"{path}.{name}", degrees[name], context.ranks, findings, is_divisor=name != _HYBRID
            )
        hybrid = degrees.get(_HYBRID, 0)
        if hybrid and degrees.get(_CONTEXT, 1) > hybrid:
            message = f"is {degrees[_CONTEXT]}, but `{_HYBRID}` is {hybrid}"
            findings.at(rules.SMP_DEGREE, f"{path}.{_CONTEXT}", message, f"use at most {hybrid}")
        return
    name = PIPELINE if PIPELINE in degrees else PARTITIONS
    pipeline, tensor = degrees.get(name, 1), degrees.get(_TENSOR, 1)
    before = len(findings.errors)
    _check_degree(f"{path}.{name}", pipeline, context.ranks, findings)
    _check_degree(f"{path}.{_TENSOR}", tensor, context.ranks, findings)
    if len(findings.errors) > before:
        return
    if context.ranks % (pipeline * tensor):
        message = (
            f"`{name}` times `{_TENSOR}` is {pipeline * tensor}, which does not divide {context.ranks} ranks"
        )
        findings.add(rules.SMP_DEGREE, message, "reduce one of them")
    elif _SHARDED in degrees:
        _check_degree(
            f"{path}.{_SHARDED}", degrees[_SHARDED], context.ranks // pipeline, findings, "replicas"
        )
    if tensor > 1 and not values.get("ddp"):
        findings.at(rules.SMP_REQUIRED, f"{path}.{_TENSOR}", "needs `ddp`", 'add `"ddp": true`')


def _check_degree(
    path: str, degree: int, ranks: int, findings: Findings, noun: str = "ranks", *, is_divisor: bool = True
) -> None:
    if degree > ranks:
        message = f"is {degree}, but the job has {ranks} {noun}"
        findings.at(rules.SMP_DEGREE, path, message, f"use at most {ranks}")
    elif is_divisor and ranks % degree:
        message = f"is {degree}, which does not divide the job's {ranks} {noun}"
        below = next(number for number in range(degree - 1, 0, -1) if not ranks % number)
        findings.at(rules.SMP_DEGREE, path, message, f"use a divisor, such as {below}")
