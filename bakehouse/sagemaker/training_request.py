"""What a person wants to send to SageMaker, and what the image has that has to fit."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.component import Requirement, VariantSpec
from bakehouse.publish.releases import ReleasedComponent, ReleaseRecord
from bakehouse.sagemaker.distribution import Framework
from bakehouse.sagemaker.instance_groups import InstanceGroup

Sender = Literal["PyTorch", "TensorFlow", "Estimator", "ModelTrainer"]
"""The classes of the SDK: the first three of version 2, the last of version 3."""
LOCAL = ("local", "local_gpu")
_HOST_HAS = ("gpu-architecture",)
"""What parts ask of the host, and an instance type is known to have."""


@dataclass(frozen=True, slots=True)
class HostNeed:
    """What a part of an image asks of the host that it runs on."""

    part: str
    requirement: Requirement


@dataclass(frozen=True, slots=True)
class LaunchImage:
    """What of an image matters to the job that it is for."""

    name: str
    uri: str
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of its parts, and of what these provide."""
    launchers: tuple[str, ...] = ()
    training_module: str = ""
    """What SAGEMAKER_TRAINING_MODULE names; empty for the plain toolkit."""
    entry_point: str = ""
    """Training code that it brings at /opt/ml/code."""
    gpu: bool = False
    needs: tuple[HostNeed, ...] = ()
    parts: frozenset[str] = frozenset()
    """The components themselves, without what they provide."""
    gpu_architecture: str = ""
    """The GPUs that it has code for, as its release says."""

    @property
    def framework(self) -> Framework:
        if "pytorch" in self.versions:
            return "pytorch"
        return "tensorflow" if "tensorflow" in self.versions else ""


@dataclass(frozen=True, slots=True)
class TrainingRequest:
    """A training job as it is asked for with one of the SDK's classes."""

    sender: Sender = "PyTorch"
    groups: tuple[InstanceGroup, ...] = ()
    """One without a name is `instance_type` and `instance_count`."""
    beside_groups: str = ""
    """An `instance_type` that is given although there are groups."""
    distribution: Mapping[str, object] = field(default_factory=dict)
    """Of version 3: `{"Torchrun": {…}}` or `{"MPI": {…}}`."""
    entry_point: str = ""
    """Version 3 calls it `entry_script`."""
    source_dir: str = ""
    requirements: str = ""
    command: str = ""
    """What version 3 runs in place of the entry script."""
    hyperparameters: Mapping[str, object] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    framework_version: str = ""
    py_version: str = ""
    keep_alive: int | None = None
    compiler: bool | None = None
    """Whether there is a TrainingCompilerConfig, and it is enabled."""
    channels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The groups that each channel is for; none means all."""
    folder: Path | None = None
    """Where the code is looked for; None: it isn't."""

    @property
    def hosts(self) -> int:
        return sum(group.count for group in self.groups)

    @property
    def is_local(self) -> bool:
        return any(group.instance_type in LOCAL for group in self.groups)

    @property
    def sends_code(self) -> bool:
        return bool(self.entry_point or self.source_dir)

    def is_on(self, strategy: str) -> bool:
        """Whether a strategy, such as `mpi` or `smdistributed.modelparallel`, is enabled."""
        found: object = self.distribution
        for key in strategy.split("."):
            found = found.get(key) if isinstance(found, Mapping) else None
        return isinstance(found, Mapping) and found.get("enabled") is True


def launch_image(record: ReleaseRecord, catalog: Catalog | None = None) -> LaunchImage:
    """What a release has for a job; with the catalogue also what its parts provide and ask of the host."""
    versions = {part.component: part.version for part in record.parts}
    needs: list[HostNeed] = []
    for part, spec in _specs(record, catalog):
        versions = {**spec.provides, **versions}
        told = f"{part.component} {part.version}" + (f" ({part.variant})" if part.variant else "")
        asked = (*spec.requires, *spec.constraints)
        needs += [HostNeed(told, one) for one in asked if one.name in _HOST_HAS]
    return LaunchImage(
        record.image,
        record.image_uri,
        versions,
        record.launchers,
        record.training_module,
        record.entry_point,
        record.gpu,
        tuple(needs),
        frozenset(part.component for part in record.parts),
        record.gpu_architecture,
    )


def _specs(record: ReleaseRecord, catalog: Catalog | None) -> Iterator[tuple[ReleasedComponent, VariantSpec]]:
    """The catalogue's word on each part that it still has."""
    for part in record.parts if catalog else ():
        component = catalog.components.get(part.component) if catalog else None
        for release in component.releases if component else ():
            for variant in release.variants:
                if (release.version, variant.name) == (part.version, part.variant):
                    yield part, variant.spec
