"""Removes unneeded containers, networks, images and files of Bakehouse."""

import contextlib
import shutil

from bakehouse.builder import stage_cache
from bakehouse.builder.build_steps import StepKey, read_steps
from bakehouse.builder.code_copies import code_directory, write_code
from bakehouse.catalog.project import HOME
from bakehouse.engine import docker
from bakehouse.engine.daemon_info import inspect
from bakehouse.errors import UsageError
from bakehouse.fetch.cache import FileCache
from bakehouse.plan import dockerfile
from bakehouse.plan.model import BootstrappedBase, Plan
from bakehouse.plan.workspace import Workspace, raise_failures, require_project, select_own
from bakehouse.registry.layer_cache import LAYERS, remove_unused
from bakehouse.util.format import format_bytes, format_count
from bakehouse.util.tempdir import scratch_directory
from bakehouse.util.terminal import Reporter

_LAYER_SECONDS = 14 * 24 * 3600.0


def run(
    workspace: Workspace,
    report: Reporter,
    *,
    everything: bool,
    cache: bool = False,
    build_cache: bool = False,
) -> str:
    """Remove remains of ended runs and the project's images of older recipes, or all of these and build/ too.

    Images of other projects are kept, and so are the bases of this one, because projects share them. In
    Bakehouse's checkout, all images of Bakehouse belong to the project. The file cache serves all projects:
    its size is reported, and `cache` removes it. `build_cache` removes the stages that no image of the
    project has from the build cache in a registry.
    """
    repository = workspace.project.build_cache
    if build_cache and not repository:
        raise UsageError(
            "this project has no build cache in a registry",
            hint="set `build_cache` in [tool.bakehouse], or BAKEHOUSE_BUILD_CACHE",
        )
    require_project(workspace)
    inspect()
    plan = select_own(workspace).plan
    images = plan.images
    # The images of those left out are unknown, so they could be neither kept nor removed
    raise_failures(workspace)
    bases = {image.base.reference for image in images if isinstance(image.base, BootstrappedBase)}
    kept = bases if everything else {*bases, *(name for image in images for name in image.names)}
    prefixes = ["bakehouse/"]
    if workspace.project.root != HOME:
        prefixes = [f"bakehouse/{kind}{image.name}:" for image in images for kind in ("", "rehearsal/")]
    with contextlib.closing(docker.connect()) as engine:
        swept = engine.sweep()
        removed = [name for prefix in prefixes for name in engine.remove_images(prefix, kept)]
        shared = [base for base in sorted(bases) if everything and engine.image(base)]
    for reference in removed:
        report(f"removed image {reference}")
    for base in shared:
        report(f"kept base {base}, which other projects may use; `docker image rm {base}` removes it")
    if everything:
        shutil.rmtree(workspace.project.state, ignore_errors=True)
        report(f"removed {workspace.project.state}")
    if build_cache:
        stages = stage_cache.remove_unused(workspace.project, repository, _stages(workspace, plan))
        report(f"removed {format_count(stages, 'stage')} from the build cache {repository}")
    layers = workspace.project.cache / LAYERS
    if size := remove_unused(layers, 0 if cache else _LAYER_SECONDS):
        unused = "" if cache else " that no push used for two weeks"
        report(f"removed {format_bytes(size)} of compressed layers{unused}")
    store = FileCache(workspace.project.cache, report)
    files, size = store.weigh()
    if cache:
        store.clear()
        report(f"removed {format_count(files, 'file')} of the cache, {format_bytes(size)}: {store.root}")
    elif size:
        count = format_count(files, "file")
        report(f"the cache has {count}, {format_bytes(size)}: {store.root}; `bake clean --cache` removes it")
    return (
        f"{swept.containers} containers, {swept.networks} networks, {swept.volumes} volumes of ended runs, "
        f"{len(removed)} images\n"
    )


def _stages(workspace: Workspace, plan: Plan) -> set[StepKey]:
    """Return the keys of the stages of all images, also of those that were never rendered."""
    with scratch_directory() as root:
        for file in dockerfile.render(plan, workspace.templates):
            file.write(root)
        for image in plan.images:
            write_code(image, root)
        return {
            step.key
            for image in plan.images
            for step in stage_cache.stage_ends(
                read_steps(
                    (root / image.name / "Dockerfile").read_text(encoding="utf-8"),
                    root / image.name,
                    code_directory(root, image.name),
                )
            )
        }
