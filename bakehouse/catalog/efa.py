"""The components that NCCL needs to communicate over EFA."""

from collections.abc import Collection
from dataclasses import dataclass

EFA = "efa"
PLUGIN = "aws-ofi-nccl"


@dataclass(frozen=True, slots=True)
class EfaGap:
    """A component that an image lacks for NCCL over EFA."""

    missing: str
    """`EFA` or `PLUGIN`."""
    is_certain: bool
    """The description of the image is complete."""


def efa_gap(content: Collection[str], components: Collection[str]) -> EfaGap | None:
    """Return the first component that NCCL lacks in an image to use EFA; None if it has all.

    `content` are the image's components and the names that they provide. A base with a Python of its own
    may contain more than the catalogue knows. Each known release of EFA provides a libfabric.
    """
    missing = next((name for name in (EFA, PLUGIN) if name not in content), "")
    if not missing:
        return None
    is_base_known = "python" in components or "python" not in content
    is_efa_known = missing == EFA or "libfabric" in content
    return EfaGap(missing, is_base_known and is_efa_known)
