"""Removes from the engine and the disk what Bakehouse put there and nobody needs."""

import shutil

from bakehouse.engine import docker
from bakehouse.engine.daemon_info import inspect
from bakehouse.fetch.cache import FileCache
from bakehouse.plan.model import BootstrappedBase
from bakehouse.plan.workspace import Workspace, plan_images
from bakehouse.util.format import format_bytes, format_count
from bakehouse.util.terminal import Reporter


def run(workspace: Workspace, say: Reporter, *, everything: bool, cache: bool = False) -> str:
    """Sweep what dead runs left and remove images of older recipes, or all images and build/ too.

    The cache of files serves other projects too: it is told, and removed where `cache` says so.
    """
    inspect()
    plan = plan_images(workspace, ())
    kept: set[str] = set()
    if not everything:
        kept = {name for image in plan.images for name in image.names}
        kept |= {image.base.reference for image in plan.images if isinstance(image.base, BootstrappedBase)}
    engine = docker.connect()
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
    store = FileCache(workspace.project.cache, say)
    files, size = store.weigh()
    if cache:
        store.clear()
        say(f"removed {format_count(files, 'file')} of the cache, {format_bytes(size)}: {store.root}")
    elif size:
        count = format_count(files, "file")
        say(f"the cache has {count}, {format_bytes(size)}: {store.root}; `./bake clean --cache` removes it")
    return (
        f"{swept.containers} containers, {swept.networks} networks, {swept.volumes} volumes of dead runs, "
        f"{len(removed)} images\n"
    )
