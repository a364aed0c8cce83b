"""Instance groups of a job, and their checks."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bakehouse.catalog.instance_types import Instance
from bakehouse.jobs import rules
from bakehouse.jobs.rules import Findings
from bakehouse.util.format import format_count, format_names
from bakehouse.util.suggest import suggestion

MAX_GROUPS = 5
_MAX_NAME = 64
RDMA = "FI_EFA_USE_DEVICE_RDMA"
_ABORTS = (1, 17)
"""First libfabric that aborts if RDMA is requested but unavailable."""


@dataclass(frozen=True, slots=True)
class InstanceGroup:
    """Instances of one type. A group without a name is the whole job, given as type and count."""

    instance_type: str
    count: int = 1
    name: str = ""
    gpus: int | None = None
    """GPUs of each instance; None if unknown."""
    rdma_read: bool | None = None
    """EFA can read the memory of other hosts."""
    efa_interfaces: int | None = None
    gpu_architecture: str = ""
    """For example `8.0`; empty if unknown or without GPUs."""
    neuron_architecture: str = ""
    """Version of the NeuronCores; empty if unknown or without Neuron devices."""
    neuron_cores: int | None = None
    """NeuronCores of each instance; None without Neuron devices."""
    is_known: bool = True
    """SageMaker is known to have this type."""
    is_listed: bool = False
    """The catalogue lists this type, so that facts that are None are missing there."""


def instance_group(
    instances: Mapping[str, Instance], instance_type: str, count: int = 1, name: str = ""
) -> InstanceGroup:
    """Return a group with the known properties of its type. Unknown types are allowed."""
    instance = instances.get(instance_type, Instance(instance_type))
    return InstanceGroup(
        instance_type,
        count,
        name,
        instance.gpus,
        instance.rdma_read,
        instance.efa_interfaces,
        instance.gpu_architecture,
        instance.neuron_architecture,
        instance.neuron_cores,
        is_known=not instances or instance_type in instances,
        is_listed=instance_type in instances,
    )


def check_groups(groups: Sequence[InstanceGroup], findings: Findings) -> None:
    """Check that there are up to five named groups, or one without a name."""

    def add(message: str, hint: str = "") -> None:
        findings.add(rules.GROUPS, message, hint)

    if not groups:
        add("the job has no instances", "set an instance type, or instance groups")
    if len(groups) > MAX_GROUPS:
        add(f"the job has {len(groups)} instance groups", f"use at most {MAX_GROUPS}")
    names = [group.name for group in groups]
    for name in sorted({name for name in names if names.count(name) > 1}):
        message = f"two instance groups are named `{name}`" if name else "instance groups have no name"
        add(message, "give each group its own name")
    for group in groups:
        if len(group.name) > _MAX_NAME:
            message = f"the name of an instance group has {len(group.name)} characters"
            add(message, f"use at most {_MAX_NAME}")
        if group.count < 1:
            add(f"the job has {group.count} instances of `{group.instance_type}`", "use at least one")


def check_channels(
    channels: Mapping[str, Sequence[str]], groups: Sequence[InstanceGroup], findings: Findings
) -> None:
    """Check that the groups of channels exist, and that either all channels or none have groups."""
    group_names = [group.name for group in groups if group.name]
    for channel, names in channels.items():
        for name in names:
            if name not in group_names:
                hint = suggestion(name, group_names) or "remove it: the job has no instance groups"
                message = f"channel `{channel}` names `{name}`, which is not a group of this job"
                findings.add(rules.GROUPS_CHANNELS, message, hint)
    with_groups = [name for name, names in channels.items() if names]
    if with_groups and len(with_groups) < len(channels):
        others = format_names(name for name in channels if name not in with_groups)
        message = f"channel `{with_groups[0]}` has instance groups, but {others} has none"
        findings.add(rules.GROUPS_CHANNELS, message, "set groups for all channels, or for none")


def check_rdma(
    path: str, words: Iterable[str], group: InstanceGroup, libfabric: str, findings: Findings
) -> None:
    """Check that RDMA is only requested if the instance type has it. Otherwise libfabric 1.17 aborts.

    AWS's guide sets it for P3dn too, which works with the libfabric that was current then.
    """
    if group.rdma_read is False and f"{RDMA}=1" in words:
        message = f"sets `{RDMA}`, but EFA on `{group.instance_type}` cannot read the memory of other hosts"
        version = numbers(libfabric)
        if version and version < _ABORTS and group.efa_interfaces != 0:
            hint = f"remove it: libfabric {libfabric} of the image ignores it, but newer releases abort"
            findings.at(rules.RDMA_IGNORED, path, message, hint)
        else:
            findings.at(rules.RDMA, path, message, "remove it for this type")


def numbers(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version; empty if it is unknown or has no numbers there."""
    words = version.split(".")[:2]
    return tuple(int(word) for word in words) if all(word.isdigit() for word in words) else ()


def check_processes(path: str, value: object, group: InstanceGroup, findings: Findings) -> None:
    """Check that a host has no more processes than GPUs."""
    if group.gpus and isinstance(value, int) and value > group.gpus:
        message = f"is {value}, but `{group.instance_type}` has {format_count(group.gpus, 'GPU')}"
        findings.at(rules.PROCESSES, path, message, f"use at most {group.gpus}")
