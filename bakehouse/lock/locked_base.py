"""Debian bases in which locking runs programs. A base is made if the engine does not have it."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from bakehouse.builder import base_image, prefetch
from bakehouse.builder.build_inputs import Downloads
from bakehouse.catalog.apt_lock import AptLock, Deb, NotLocked
from bakehouse.catalog.component import BaseSource
from bakehouse.engine import docker
from bakehouse.errors import EngineError
from bakehouse.fetch.downloader import Fetcher
from bakehouse.fetch.project_fetcher import open_fetcher
from bakehouse.fetch.required_files import RequiredFiles, debs
from bakehouse.plan.model import BootstrappedBase
from bakehouse.plan.planner import bootstrapped
from bakehouse.plan.workspace import Workspace
from bakehouse.util.oci import PLATFORM
from bakehouse.util.terminal import Reporter


def base_with_apt(workspace: Workspace, suite: str) -> BootstrappedBase:
    """Return the locked base whose apt resolves the packages of a suite.

    It is a base of the suite, or of another suite if the suite or packages of its base are not locked yet.
    Its platform is that of most images, because apt also resolves packages of other architectures.
    """
    bases = [base for base in _locked(workspace) if base.platform == PLATFORM]
    if not bases:
        raise EngineError(
            "no base of Debian is locked, whose apt could lock packages",
            hint="restore `apt/*.packages` from version control",
        )
    return min(bases, key=lambda base: (base.suite != suite, base.reference))


def _locked(workspace: Workspace) -> Iterator[BootstrappedBase]:
    """Yield the bases of the catalogue from their locks, without their own packages if one is not locked."""
    for component in workspace.catalog.components.values():
        for release in component.releases:
            sources = (variant.spec.base for variant in release.variants)
            for source in (source for source in sources if source and source.suite):
                if lock := workspace.apt_locks.suites.get(source.lock_name):
                    own, debs = _packages(source, lock)
                    yield bootstrapped(component.name, release.version, replace(source, packages=own), debs)


def _packages(source: BaseSource, lock: AptLock) -> tuple[tuple[str, ...], tuple[Deb, ...]]:
    """Return the names of a base's own packages, and all its packages from the lock."""
    try:
        return source.packages, lock.base(source.packages)
    except NotLocked:
        return (), lock.base(())


def ensure(workspace: Workspace, base: BootstrappedBase, report: Reporter) -> None:
    """Make a base on this machine unless the engine has it."""
    with open_fetcher(workspace.project, report) as fetcher:
        ensure_with(fetcher, workspace, base, report)


def ensure_with(fetcher: Fetcher, workspace: Workspace, base: BootstrappedBase, report: Reporter) -> None:
    """Make a base from files of a fetcher unless the engine has it."""
    with contextlib.closing(docker.connect()) as engine:
        if not engine.image(base.reference):
            packages = debs(base.debs)
            needed = RequiredFiles(
                packages, dict.fromkeys(packages, (f"base {base.reference}",)), (packages,)
            )
            get = partial(prefetch.download_packages, Downloads(needed, fetcher))
            state = workspace.project.state
            base_image.ensure_base(base, engine=engine, state=state, report=report, get=get)
