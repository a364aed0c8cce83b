"""Bases of the catalogue, made under names of their own."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from uuid import uuid4

from bakehouse.catalog.project import HOME
from bakehouse.plan.model import BootstrappedBase
from bakehouse.plan.planner import bootstrapped_bases
from bakehouse.plan.workspace import open_workspace


def base(name: str = "debian-12", reference: str = "") -> BootstrappedBase:
    """Return a base of the catalogue, under another name on request."""
    workspace = open_workspace(HOME)
    made = bootstrapped_bases(workspace.catalog, workspace.apt_locks)[name]
    return replace(made, reference=reference or made.reference)


@contextmanager
def own_reference() -> Iterator[str]:
    """Yield a name for a base, and remove the image at the end."""
    reference = f"bakehouse/test-base:{uuid4().hex[:8]}"
    try:
        yield reference
    finally:
        subprocess.run(["docker", "image", "rm", "-f", reference], capture_output=True, check=False)
