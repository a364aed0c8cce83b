"""The groups of instances that a job asks for, and what can't be asked of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bakehouse.errors import Diagnostic, Problems
from bakehouse.instances import Instance
from bakehouse.strategies import Mistakes

MOST_GROUPS = 5
_LONGEST_NAME = 64
_RDMA = "FI_EFA_USE_DEVICE_RDMA"


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


def instance_group(
    known: Mapping[str, Instance], instance_type: str, count: int = 1, name: str = ""
) -> InstanceGroup:
    """A group with what is known of its type; a type that nobody knows is none the worse."""
    found = known.get(instance_type, Instance(instance_type))
    return InstanceGroup(instance_type, count, name, found.gpus, found.rdma_read)


def check_groups(groups: Sequence[InstanceGroup], problems: Problems) -> None:
    """That SageMaker takes these groups: each named, five at most; or one without a name."""

    def report(message: str, hint: str = "") -> None:
        problems.add(Diagnostic(message, hint=hint))

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


def check_rdma(path: str, words: Iterable[str], group: InstanceGroup, mistakes: Mistakes) -> None:
    """That options for mpirun don't ask of EFA what an instance type has not: libfabric would abort."""
    if group.rdma_read is False and f"{_RDMA}=1" in words:
        message = f"sets `{_RDMA}`, and EFA on `{group.instance_type}` reads no memory of other hosts"
        mistakes.add(path, message, "leave it out: it is set by itself on the types that have it")


def check_processes(path: str, value: object, group: InstanceGroup, mistakes: Mistakes) -> None:
    """That a host gets no more processes than it has GPUs."""
    if group.gpus and isinstance(value, int) and value > group.gpus:
        message = f"is {value}, and `{group.instance_type}` has {group.gpus} GPU" + "s" * (group.gpus > 1)
        mistakes.add(path, message, f"{group.gpus} at most")
