"""Instance types of the catalogue: vCPUs, accelerators and memory, if known."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.component import INSTANCE
from bakehouse.catalog.instance_gpus import NEURON, instance_type_hint
from bakehouse.errors import UsageError


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance type; None means unknown."""

    name: str
    vcpus: int | None = None
    gpus: int | None = None
    memory_gib: float | None = None
    efa_interfaces: int | None = None
    rdma_read: bool | None = None
    """EFA supports RDMA read."""
    gpu_architecture: str = ""
    """Such as `8.0`; empty if it is unknown or there is no GPU."""
    neuron_cores: int | None = None
    """Logical NeuronCores with the default configuration."""
    neuron_architecture: str = ""
    """Version of its NeuronCores, such as `2`; empty without Neuron devices."""

    @property
    def accelerator(self) -> str:
        """Name of the device that a rank of a job uses."""
        return "NeuronCore" if self.neuron_architecture else "GPU"

    @property
    def accelerators(self) -> int | None:
        """Number of its NeuronCores or GPUs; None if unknown."""
        return self.neuron_cores if self.neuron_architecture else self.gpus

    @property
    def family(self) -> str:
        """`ml.g5` of `ml.g5.12xlarge`."""
        return self.name.rpartition(".")[0]


def instances(catalog: Catalog) -> dict[str, Instance]:
    """Return all instance types of the catalogue, by name."""
    component = catalog.components.get(INSTANCE)
    variants = component.releases[0].variants if component and component.releases else ()
    return {variant.name: _instance(variant.name, variant.spec.provides) for variant in variants}


def find_instance(known: Mapping[str, Instance], name: str) -> Instance:
    """Return the instance type of a name. Raises UsageError if there is none."""
    if name not in known:
        raise UsageError(
            f"unknown instance type `{name}`",
            hint=instance_type_hint(name) or "SageMaker's types start with `ml.`, such as `ml.g5.12xlarge`",
        )
    return known[name]


def gpus_text(catalog: Catalog) -> str:
    """Return the committed `instance_gpus.json`: the accelerator architecture of each type.

    It is that of GPUs, `neuron 2`, `none` or `unknown`.
    """
    architectures = {name: _architecture(instance) for name, instance in instances(catalog).items()}
    return json.dumps(architectures, indent=2, sort_keys=True) + "\n"


def _architecture(instance: Instance) -> str:
    if instance.neuron_architecture:
        return f"{NEURON}{instance.neuron_architecture}"
    return "none" if instance.gpus == 0 else instance.gpu_architecture or "unknown"


def _instance(name: str, provides: Mapping[str, str]) -> Instance:
    def number(key: str) -> int | None:
        return int(provides[key]) if key in provides else None

    memory = provides.get("memory-gib")
    interfaces = number("efa-interfaces")
    # Without EFA there is no RDMA either
    reads = number("rdma-read") if interfaces != 0 else 0
    return Instance(
        name,
        number("vcpus"),
        number("gpus"),
        float(memory) if memory else None,
        interfaces,
        None if reads is None else bool(reads),
        provides.get("gpu-architecture", ""),
        number("neuron-cores"),
        provides.get("neuron-architecture", ""),
    )
