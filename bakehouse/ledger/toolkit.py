"""Rules of the toolkits that start a job, which differ between their releases.

The facts are `toolkit.yaml` of the components. The toolkits are in the image, and the drivers in SDK v3.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from bakehouse.catalog.project import HOME
from bakehouse.errors import Problems, RecipeError
from bakehouse.util import yaml_reader
from bakehouse.util.yaml_fields import Fields

if TYPE_CHECKING:
    # Its import takes long.
    from bakehouse.plan.model import Image

NAME = "sagemaker-training"
TOOLKITS = (NAME, "sagemaker-pytorch-training", "sagemaker-tensorflow-training")
"""Components that contain the toolkits."""
DRIVERS = "sagemaker-drivers"
"""Component with the facts about the drivers of SDK v3."""
DRIVERS_RELEASE = "1.27.0"
"""Newest release of sagemaker-train that the facts cover. Jobs for SDK v3 are checked with its drivers."""
GROUPS = "instance_groups"
SHELL, NO_ARGUMENTS, LOST_STATUS, DDP = (
    "shell",
    "script-without-arguments",
    "lost-status",
    "ddp-without-smddp",
)
"""Names of facts about processes."""


@dataclass(frozen=True, slots=True)
class Releases:
    """Releases in which a rule holds."""

    since: str
    until: str = ""
    """First release without it; empty if all newer ones have it."""
    oldest: str = "0"
    """Oldest release that an unknown one may be."""

    def contains(self, version: str) -> bool | None:
        """Return whether the rule holds in a release; None if that depends on an unknown version."""
        try:
            release = Version(version)
        except InvalidVersion:
            return None if self.until or Version(self.since) > Version(self.oldest) else True
        return Version(self.since) <= release and not (self.until and release >= Version(self.until))


@dataclass(frozen=True, slots=True)
class ToolkitRules:
    """Facts about a toolkit."""

    launchers: Mapping[str, Releases]
    """Strategies of `distribution` that it starts, and `instance_groups`."""
    processes: Mapping[str, Releases]
    """Its ways to start the script."""
    provider: Mapping[str, Releases]
    """Instance types for which it sets FI_PROVIDER."""
    rdma: Mapping[str, Releases]
    """Instance types for which it sets FI_EFA_USE_DEVICE_RDMA."""


def toolkit_versions(image: "Image") -> dict[str, str]:
    """Return the releases of the toolkits that the locks of an image install for any requirement."""
    packages = (package for stage in image.stages for package in (*stage.wheels, *stage.sdists))
    return {package.name: package.version for package in packages if package.name in TOOLKITS}


@dataclass(frozen=True, slots=True)
class LegacyKeras:
    """Fact about the Keras of newer TensorFlow, whose `fit` does not train with some strategies."""

    strategies: tuple[str, ...]
    since: str
    """First release of TensorFlow."""
    variable: str
    """Environment variable that selects the older Keras with one of `values`."""
    values: tuple[str, ...]
    message: str
    """It can contain `{strategy}`."""
    hint: str
    """It can contain `{release}`, such as 2.21."""


@cache
def legacy_keras() -> LegacyKeras:
    """Return the fact in the catalogue; raise RecipeError if its file has mistakes."""
    path = HOME / "recipes/components/tensorflow/keras.yaml"
    problems = Problems()
    table = Fields(yaml_reader.load(path), f"`{path.name}`", problems)
    table.text("source", required=True)
    since, variable = table.text("since", required=True), table.text("variable", required=True)
    texts = (table.text("message", required=True), table.text("hint", required=True))
    fact = LegacyKeras(table.texts("strategies"), since, variable, table.texts("values"), *texts)
    table.finish()
    problems.raise_as(RecipeError)
    return fact


@cache
def toolkit_rules(component: str = NAME) -> ToolkitRules:
    """Return the facts in the catalogue; raise RecipeError if their file has mistakes."""
    path = HOME / "recipes/components" / component / "toolkit.yaml"
    problems = Problems()
    table = Fields(yaml_reader.load(path), f"`{path.name}`", problems)
    table.text("source", required=True)
    oldest = table.text("oldest", required=True)
    rules = ToolkitRules(
        *(read_releases(table, key, oldest) for key in ("launchers", "processes", "provider", "rdma"))
    )
    table.finish()
    problems.raise_as(RecipeError)
    return rules


def read_releases(table: Fields, key: str, oldest: str) -> dict[str, Releases]:
    """Read a mapping of names to the releases that have them."""
    releases = {}
    for name, node in table.pairs(key):
        fields = table.inner(node, f"`{name.text}` of `{key}`")
        since = fields.text("since", required=True)
        releases[name.text] = Releases(since, fields.text("until"), oldest)
        fields.finish()
    return releases
