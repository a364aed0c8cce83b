"""Rules of the SageMaker Training Toolkit, which differ between its releases.

Their facts are `toolkit.yaml` of the component `sagemaker-training`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from packaging.version import InvalidVersion, Version

from bakehouse.catalog.project import HOME
from bakehouse.errors import Problems, RecipeError
from bakehouse.util import yaml_reader
from bakehouse.util.yaml_fields import Fields

NAME = "sagemaker-training"
_OLDEST_WITH_EFA = "4.2.7"


@dataclass(frozen=True, slots=True)
class Releases:
    """Releases in which a rule holds."""

    since: str
    until: str = ""
    """First release without it; empty if all newer ones have it."""

    def contains(self, version: str) -> bool | None:
        """Return whether the rule holds in a release; None if that depends on an unknown version."""
        try:
            release = Version(version)
        except InvalidVersion:
            return None if self.until or Version(self.since) > Version(_OLDEST_WITH_EFA) else True
        return Version(self.since) <= release and not (self.until and release >= Version(self.until))


@dataclass(frozen=True, slots=True)
class ToolkitRules:
    """Facts about the toolkit."""

    provider: Mapping[str, Releases]
    """Instance types for which it sets FI_PROVIDER."""
    rdma: Mapping[str, Releases]
    """Instance types for which it sets FI_EFA_USE_DEVICE_RDMA."""
    shell: Releases
    """It starts the script through a shell, which reads the values of hyperparameters."""
    without_smddp: Releases
    """It starts `pytorchddp` without SMDDP's `smddprun`."""


@cache
def toolkit_rules() -> ToolkitRules:
    """Return the facts in the catalogue; raise RecipeError if their file has mistakes."""
    path = HOME / "recipes/components" / NAME / "toolkit.yaml"
    problems = Problems()
    table = Fields(yaml_reader.load(path), f"`{path.name}`", problems)
    table.text("source", required=True)
    tables: dict[str, dict[str, Releases]] = {}
    for key in ("provider", "rdma", "processes"):
        tables[key] = {}
        for name, node in table.pairs(key):
            fields = table.inner(node, f"`{name.text}` of `{key}`")
            since = fields.text("since", required=True)
            tables[key][name.text] = Releases(since, fields.text("until"))
            fields.finish()
    table.finish()
    problems.raise_as(RecipeError)
    processes = tables["processes"]
    return ToolkitRules(
        tables["provider"], tables["rdma"], processes["shell"], processes["ddp-without-smddp"]
    )
