"""A training job as the SDK's classes describe it, and the properties of its image."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.component import Requirement, VariantSpec
from bakehouse.catalog.efa import is_all_listed
from bakehouse.catalog.names import framework_among
from bakehouse.catalog.recipe import Recipe
from bakehouse.catalog.user_smoke import UserSmoke
from bakehouse.jobs.api_fields import ApiField
from bakehouse.jobs.distribution import OLDEST_MIRRORED, is_below
from bakehouse.jobs.instance_groups import InstanceGroup
from bakehouse.jobs.rules import RELEASE
from bakehouse.ledger.releases import ReleasedComponent, ReleaseRecord
from bakehouse.util.oci import PLATFORM

Sender = Literal["PyTorch", "TensorFlow", "HuggingFace", "Estimator", "ModelTrainer", "API"]
"""Classes of the SDK: the first four of v2, then that of v3. `API` means a CreateTrainingJob request."""
FRAMEWORKS: tuple[Sender, ...] = ("PyTorch", "TensorFlow", "HuggingFace")
"""Classes that pass a `distribution` on."""
LOCAL = ("local", "local_gpu")
_HOST_PROPERTIES = ("gpu-architecture", "neuron-architecture")
"""Requirements of components that are checked with the instance type."""


@dataclass(frozen=True, slots=True)
class HostRequirement:
    """Requirement of a component for the host."""

    component: str
    """Name, version and variant."""
    requirement: Requirement


@dataclass(frozen=True, slots=True)
class LaunchImage:
    """Properties of an image that matter to its jobs."""

    name: str
    uri: str
    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions of its components, and of the names that they provide."""
    launchers: tuple[str, ...] = ()
    training_module: str = ""
    """SAGEMAKER_TRAINING_MODULE; empty for the SageMaker Training Toolkit itself."""
    entry_point: str = ""
    """Script that the image contains in /opt/ml/code."""
    gpu: bool = False
    host_requirements: tuple[HostRequirement, ...] = ()
    components: frozenset[str] = frozenset()
    gpu_architecture: str = ""
    """GPU architectures that the image has code for, according to its release."""
    neuron_architecture: str = ""
    """NeuronCore versions that the image supports; empty if it uses no Neuron devices."""
    source: str = RELEASE
    """Source of its content, as findings name it."""
    platform: str = PLATFORM
    is_oci: bool = False
    """Its manifest has OCI's format instead of Docker's."""
    is_known: bool = True
    """False if its content is unknown, so that only its URI counts."""
    is_complete: bool = False
    """True if `versions` has all content that matters to NCCL over EFA."""
    targets: tuple[str, ...] = ()
    """Instance types that its recipe targets, as globs."""
    requires_gpu: bool = False
    """Its recipe requires the smoke check `gpu`."""
    smoke: UserSmoke | None = None
    """The smoke test of the recipe, whose settings are defaults of the image's jobs."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that its recipe sets."""

    @property
    def framework(self) -> str:
        return framework_among(self.versions)

    @property
    def has_horovod(self) -> bool:
        """True if it contains Horovod, whose ranks need MPI."""
        return not self.versions.keys().isdisjoint({"horovod", "horovod-nccl"})

    @property
    def is_mirrored(self) -> bool:
        """True if its toolkit connects several hosts with MultiWorkerMirroredStrategy by default."""
        is_old = is_below(self.versions.get("tensorflow", ""), OLDEST_MIRRORED)
        has_other = self.has_horovod or self.has_compiler
        return "tensorflow" in self.training_module and not is_old and not has_other

    @property
    def smp(self) -> str:
        """Version of SMP; empty if the image has none."""
        return self.versions.get("smp", "")

    @property
    def has_compiler(self) -> bool:
        """Return whether the image extends one of AWS's with SageMaker Training Compiler."""
        return any(name.startswith("aws-training-compiler-") for name in self.components)


@dataclass(frozen=True, slots=True)
class TrainingRequest:
    """Arguments of one of the SDK's classes."""

    sender: Sender = "PyTorch"
    groups: tuple[InstanceGroup, ...] = ()
    """A group without a name is `instance_type` and `instance_count`."""
    extra_instance_type: str = ""
    """An `instance_type` in addition to instance groups."""
    distribution: Mapping[str, object] = field(default_factory=dict)
    """In SDK v3: `{"Torchrun": {…}}` or `{"MPI": {…}}`."""
    entry_point: str = ""
    """SDK v3 calls it `entry_script`."""
    source_dir: str = ""
    requirements: str = ""
    command: str = ""
    """SDK v3 runs it instead of the entry script."""
    hyperparameters: Mapping[str, object] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    framework_version: str = ""
    """HuggingFace calls it `pytorch_version` or `tensorflow_version`."""
    py_version: str = ""
    keep_alive: int | None = None
    compiler: bool | None = None
    """The TrainingCompilerConfig is enabled; None if there is none."""
    channels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Groups of each channel; empty means all."""
    code_root: Path | None = None
    """Directory that relative paths of code start at; None if the code is not checked."""
    fields: tuple[ApiField, ...] = ()
    """Fields of the API that the job sets, except for hyperparameters and environment of the SDK."""
    transformers_version: str = ""
    """Only of the class HuggingFace."""
    has_tensorflow_version: bool = False
    """The class HuggingFace is for TensorFlow."""

    @property
    def hosts(self) -> int:
        return sum(group.count for group in self.groups)

    @property
    def framework_class(self) -> Literal["PyTorch", "TensorFlow"]:
        """The class whose checks of `distribution` and versions the SDK applies."""
        is_tensorflow = self.sender == "TensorFlow" or self.has_tensorflow_version
        return "TensorFlow" if is_tensorflow else "PyTorch"

    @property
    def is_local(self) -> bool:
        return any(group.instance_type in LOCAL for group in self.groups)

    @property
    def sends_code(self) -> bool:
        return bool(self.entry_point or self.source_dir)

    def is_on(self, strategy: str) -> bool:
        """Return whether a strategy, such as `mpi` or `smdistributed.modelparallel`, is enabled."""
        settings: object = self.distribution
        for key in strategy.split("."):
            settings = settings.get(key) if isinstance(settings, Mapping) else None
        return isinstance(settings, Mapping) and settings.get("enabled") is True


def launch_image(
    record: ReleaseRecord, catalog: Catalog | None = None, recipe: Recipe | None = None
) -> LaunchImage:
    """Return the properties of a release.

    The catalogue adds the names and requirements of its components, and the recipe its smoke test. Without
    the recipe, or the provided names that old records lack, other content is possible.
    """
    image = LaunchImage(
        record.image,
        record.image_uri,
        launchers=record.launchers,
        training_module=record.training_module,
        entry_point=record.entry_point,
        gpu=record.gpu,
        gpu_architecture=record.gpu_architecture,
        neuron_architecture=record.neuron_architecture,
        platform=record.platform,
        is_oci=".oci." in record.media_type,
    )
    image = with_recipe(image, recipe) if recipe else image
    image = add_parts(image, record.parts, catalog)
    content = recipe.content if recipe else None
    is_complete = bool(record.provides) and is_all_listed(image.components, content)
    provided = {provided.name: provided.version for provided in record.provides}
    return replace(image, versions={**provided, **image.versions}, is_complete=is_complete)


def with_recipe(image: LaunchImage, recipe: Recipe) -> LaunchImage:
    """Return an image with what its recipe states about its jobs."""
    requires_gpu = image.gpu and (recipe.required is None or "gpu" in recipe.required)
    targets = tuple(glob.text for glob in recipe.targets.instances)
    variables = dict(recipe.content.environment)
    return replace(
        image, smoke=recipe.smoke, requires_gpu=requires_gpu, targets=targets, environment=variables
    )


def add_parts(image: LaunchImage, parts: Sequence[ReleasedComponent], catalog: Catalog | None) -> LaunchImage:
    """Return an image with the versions and the requirements of its components."""
    versions = {part.component: part.version for part in parts}
    host_requirements: list[HostRequirement] = []
    for part, spec in _specs(parts, catalog):
        versions = {**spec.provides, **versions}
        component = f"{part.component} {part.version}" + (f" ({part.variant})" if part.variant else "")
        host_requirements += [
            HostRequirement(component, requirement)
            for requirement in (*spec.requires, *spec.constraints)
            if requirement.name in _HOST_PROPERTIES
        ]
    if "libfabric" not in versions and "efa" in versions and catalog is not None:
        releases = catalog.components["efa"].releases
        variants = (
            variant
            for release in releases
            if release.version == versions["efa"]
            for variant in release.variants
        )
        versions = {**next((variant.spec.provides for variant in variants), {}), **versions}
    return replace(
        image,
        versions=versions,
        host_requirements=tuple(host_requirements),
        components=frozenset(part.component for part in parts),
    )


def _specs(
    parts: Sequence[ReleasedComponent], catalog: Catalog | None
) -> Iterator[tuple[ReleasedComponent, VariantSpec]]:
    """Yield the components that the catalogue still has, with their specifications."""
    components = catalog.components if catalog else {}
    for part in parts:
        component = components.get(part.component)
        for release in component.releases if component else ():
            for variant in release.variants:
                if (release.version, variant.name) == (part.version, part.variant):
                    yield part, variant.spec
