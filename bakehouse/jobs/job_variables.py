"""Environment variables of jobs and what their values do. The facts are `recipes/variables.yaml`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from bakehouse.catalog.project import HOME
from bakehouse.errors import Problems, RecipeError
from bakehouse.jobs.instance_groups import InstanceGroup, numbers
from bakehouse.util import yaml_reader
from bakehouse.util.yaml_fields import Fields

EFA, GPU, TOOLKIT, ALL = "efa", "gpu", "toolkit", "all"
"""Jobs that a variable concerns."""
UNKNOWN = "no source states what it does"


@dataclass(frozen=True, slots=True)
class FabricValue:
    """The value of a variable that jobs over EFA need."""

    value: str
    rdma: bool = False
    """Only for instance types whose EFA reads the memory of other hosts."""
    until: tuple[tuple[str, str], ...] = ()
    """Components with their first releases that do not need it."""


@dataclass(frozen=True, slots=True)
class JobVariable:
    """A variable with the effects of its values."""

    name: str
    source: str
    on: str
    """The jobs that it concerns."""
    efa: FabricValue | None
    effects: tuple[tuple[str, str], ...]
    """Patterns of values, and what these do."""
    fine: str
    """Pattern of the values without an effect."""

    def effect(self, value: str) -> str:
        """Return what a value does, as a clause; empty if nothing, and `UNKNOWN` if no source says."""
        known = (effect for pattern, effect in ((self.fine, ""), *self.effects) if _matches(pattern, value))
        return next(known, UNKNOWN)


def fabric_variables(group: InstanceGroup, versions: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for hosts with EFA and an image with these versions of libraries."""
    return {
        variable.name: variable.efa.value
        for variable in job_variables().values()
        if variable.efa
        and (group.rdma_read or not variable.efa.rdma)
        and not _is_obsolete(variable.efa, versions)
    }


def _is_obsolete(needed: FabricValue, versions: Mapping[str, str]) -> bool:
    """Return whether all components are known to be newer. An unknown release may need the variable."""
    return bool(needed.until) and all(
        numbers(versions.get(name, "")) >= numbers(release) for name, release in needed.until
    )


def _matches(pattern: str, value: str) -> bool:
    return bool(re.fullmatch(pattern, value, re.IGNORECASE))


@cache
def job_variables() -> Mapping[str, JobVariable]:
    """Return the variables of the catalogue by name; raise RecipeError if their file has mistakes."""
    path = HOME / "recipes/variables.yaml"
    problems = Problems()
    table = Fields(yaml_reader.load(path), f"`{path.name}`", problems)
    variables = {}
    for name, node in table.pairs("variables"):
        fields = table.inner(node, f"`{name.text}`")
        efa = None
        if needed := fields.child("efa", f"`efa` of `{name.text}`"):
            until = tuple((item.text, release.text) for item, release in needed.text_pairs("until"))
            efa = FabricValue(needed.text("value", required=True), needed.flag("rdma"), until)
            needed.finish()
        effects = []
        for item in fields.children("effects", "an effect"):
            effects.append((item.text("value", required=True), item.text("effect", required=True)))
            item.finish()
        # Without a pattern, no value is fine
        fine = fields.text("fine") or "(?!)"
        source, on = fields.text("source", required=True), fields.text("on") or EFA
        variables[name.text] = JobVariable(name.text, source, on, efa, tuple(effects), fine)
        fields.finish()
    table.finish()
    problems.raise_as(RecipeError)
    return variables
