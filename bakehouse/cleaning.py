"""Removes from the engine and the disk what Bakehouse put there and nobody needs."""

import shutil

from bakehouse import containers
from bakehouse.daemon import inspect
from bakehouse.fetching import megabytes
from bakehouse.plan import BootstrappedBase
from bakehouse.store import Store
from bakehouse.workspace import Say, Workspace, plan_images


def run(workspace: Workspace, say: Say, *, everything: bool, cache: bool = False) -> str:
    """Sweep what dead runs left and remove images of older recipes, or all images and build/ too.

    The cache of files serves other projects too: it is told, and removed where `cache` says so.
    """
    inspect()
    plan = plan_images(workspace, ())
    kept: set[str] = set()
    if not everything:
        kept = {name for image in plan.images for name in image.names}
        kept |= {image.base.reference for image in plan.images if isinstance(image.base, BootstrappedBase)}
    engine = containers.connect()
    try:
        swept = engine.sweep()
        removed = engine.remove_images("bakehouse/", kept)
    finally:
        engine.close()
    for reference in removed:
        say(f"removed image {reference}")
    if everything:
        shutil.rmtree(workspace.project.state, ignore_errors=True)
        say(f"removed {workspace.project.state}")
    store = Store(workspace.project.cache, say)
    files, size = store.weigh()
    if cache:
        store.clear()
        say(f"removed {files} files of the cache, {megabytes(size)}: {store.root}")
    elif size:
        say(
            f"the cache has {files} files, {megabytes(size)}: {store.root}; `./bake clean --cache` removes it"
        )
    return (
        f"{swept.containers} containers, {swept.networks} networks, {swept.volumes} volumes of dead runs, "
        f"{len(removed)} images\n"
    )
