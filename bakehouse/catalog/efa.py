"""The components that NCCL needs to communicate over EFA."""

from collections.abc import Collection
from dataclasses import dataclass

from bakehouse.catalog.recipe import Content

EFA = "efa"
PLUGIN = "aws-ofi-nccl"
_BASES_WITHOUT_EFA = frozenset({"debian", "nvidia-cuda"})
"""Bases that contain neither. Other bases may contain more than they provide."""


@dataclass(frozen=True, slots=True)
class EfaGap:
    """A component that an image lacks for NCCL over EFA."""

    missing: str
    """`EFA` or `PLUGIN`."""
    is_certain: bool
    """The description of the image is complete."""


def is_all_listed(components: Collection[str], content: Content | None) -> bool:
    """Return whether EFA in an image would be one of its components, or of the names that they provide.

    `content` is that of its recipe; None if it is not known. Its steps can install EFA, and its files can
    contain it. Distribution packages, Python packages and training code do not contain it.
    """
    is_base_known = not _BASES_WITHOUT_EFA.isdisjoint(components)
    return is_base_known and content is not None and not content.run and not content.files


def efa_gap(content: Collection[str], *, is_complete: bool) -> EfaGap | None:
    """Return the first component that NCCL lacks in an image to use EFA; None if it has all.

    `content` are the image's components and the names that they provide; `is_complete` means that it has no
    others. Each known release of EFA provides a libfabric.
    """
    missing = next((name for name in (EFA, PLUGIN) if name not in content), "")
    if not missing:
        return None
    is_efa_known = missing == EFA or "libfabric" in content
    return EfaGap(missing, is_complete and is_efa_known)
