"""Removes from the engine and the disk what Bakehouse put there and nobody needs."""

import shutil

from bakehouse import containers
from bakehouse.daemon import inspect
from bakehouse.plan import BootstrappedBase
from bakehouse.workspace import Say, Workspace, plan_images


def run(workspace: Workspace, say: Say, *, everything: bool) -> str:
    """Sweep what dead runs left and remove images of older recipes, or all images and build/ too."""
    inspect()
    plan = plan_images(workspace, ())
    kept: set[str] = set()
    if not everything:
        kept = {image.reference for image in plan.images} | {
            f"bakehouse/{image.name}:latest" for image in plan.images
        }
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
    return (
        f"{swept.containers} containers, {swept.networks} networks, {swept.volumes} volumes of dead runs, "
        f"{len(removed)} images\n"
    )
