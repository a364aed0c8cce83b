"""Variables with which a job uses EFA. The facts are `variables.yaml` of the component `efa`."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from bakehouse.catalog.project import HOME
from bakehouse.errors import Problems, RecipeError
from bakehouse.jobs.instance_groups import InstanceGroup, numbers
from bakehouse.util import yaml_reader
from bakehouse.util.yaml_fields import Fields


@dataclass(frozen=True, slots=True)
class FabricVariable:
    """A variable, and the jobs that need it."""

    name: str
    value: str
    rdma: bool = False
    """Only for instance types whose EFA reads the memory of other hosts."""
    until: tuple[tuple[str, str], ...] = ()
    """Components with their first releases that do not need it."""


def fabric_variables(group: InstanceGroup, versions: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for hosts with EFA and an image with these versions of libraries."""
    return {
        variable.name: variable.value
        for variable in known_variables()
        if (group.rdma_read or not variable.rdma) and not _is_obsolete(variable, versions)
    }


def _is_obsolete(variable: FabricVariable, versions: Mapping[str, str]) -> bool:
    """Return whether all components are known to be newer. An unknown release may need the variable."""
    return bool(variable.until) and all(
        numbers(versions.get(name, "")) >= numbers(release) for name, release in variable.until
    )


@cache
def known_variables() -> tuple[FabricVariable, ...]:
    """Return the facts in the catalogue; raise RecipeError if their file has mistakes."""
    path = HOME / "recipes/components/efa/variables.yaml"
    problems = Problems()
    table = Fields(yaml_reader.load(path), f"`{path.name}`", problems)
    table.text("source", required=True)
    variables = []
    for name, node in table.pairs("variables"):
        fields = table.inner(node, f"`{name.text}`")
        until = tuple((component.text, release.text) for component, release in fields.text_pairs("until"))
        variables.append(
            FabricVariable(name.text, fields.text("value", required=True), fields.flag("rdma"), until)
        )
        fields.finish()
    table.finish()
    problems.raise_as(RecipeError)
    return tuple(variables)
