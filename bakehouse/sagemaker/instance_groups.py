"""The groups of instances that a job asks for, and what can't be asked of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bakehouse.catalog.instance_types import Instance
from bakehouse.sagemaker import launch_rules
from bakehouse.sagemaker.findings import Findings

MOST_GROUPS = 5
_LONGEST_NAME = 64
RDMA = "FI_EFA_USE_DEVICE_RDMA"


@dataclass(frozen=True, slots=True)
class InstanceGroup:
    """Instances of one type. Without a name they are the whole job, given as a type and a count."""

    instance_type: str
    count: int = 1
    name: str = ""
    gpus: int | None = None
    """Of one instance; None where nobody knows."""
    rdma_read: bool | None = None
    """Whether EFA reads the memory of another host there."""
    efa_interfaces: int | None = None
    gpu_architecture: str = ""
    """Such as `8.0`; empty where nobody knows it, or there is none."""
    is_known: bool = True
    """Whether SageMaker is known to have such a type."""


def instance_group(
    known: Mapping[str, Instance], instance_type: str, count: int = 1, name: str = ""
) -> InstanceGroup:
    """A group with what is known of its type; a type that nobody knows is none the worse."""
    found = known.get(instance_type, Instance(instance_type))
    return InstanceGroup(
        instance_type,
        count,
        name,
        found.gpus,
        found.rdma_read,
        found.efa_interfaces,
        found.gpu_architecture,
        is_known=not known or instance_type in known,
    )


def check_groups(groups: Sequence[InstanceGroup], findings: Findings) -> None:
    """That SageMaker takes these groups: each named, five at most; or one without a name."""

    def report(message: str, hint: str = "") -> None:
        findings.add(launch_rules.GROUPS, message, hint)

    if not groups:
        report("the job has no instances", "name an instance type, or instance groups")
    if len(groups) > MOST_GROUPS:
        report(f"the job has {len(groups)} instance groups", f"SageMaker takes {MOST_GROUPS}")
    names = [group.name for group in groups]
    for name in sorted({name for name in names if names.count(name) > 1}):
        message = f"two instance groups are named `{name}`" if name else "instance groups without a name"
        report(message, "give each group a name of its own")
    for group in groups:
        if len(group.name) > _LONGEST_NAME:
            message = f"the name of an instance group has {len(group.name)} characters"
            report(message, f"SageMaker takes {_LONGEST_NAME}")
        if group.count < 1:
            report(f"{group.count} instances of `{group.instance_type}`", "one at least")


def check_rdma(path: str, words: Iterable[str], group: InstanceGroup, findings: Findings) -> None:
    """That options for mpirun don't ask of EFA what an instance type has not: libfabric would abort."""
    if group.rdma_read is False and f"{RDMA}=1" in words:
        message = f"sets `{RDMA}`, and EFA on `{group.instance_type}` reads no memory of other hosts"
        findings.at(launch_rules.RDMA, path, message, "leave it out on this type")


def check_processes(path: str, value: object, group: InstanceGroup, findings: Findings) -> None:
    """That a host gets no more processes than it has GPUs."""
    if group.gpus and isinstance(value, int) and value > group.gpus:
        message = f"is {value}, and `{group.instance_type}` has {group.gpus} GPU" + "s" * (group.gpus > 1)
        findings.at(launch_rules.PROCESSES, path, message, f"{group.gpus} at most")
