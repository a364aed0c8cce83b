"""Removes unneeded containers, networks, images and files of Bakehouse."""

import contextlib

from bakehouse.builder import image_owners, stage_cache
from bakehouse.builder.build_steps import StepKey, read_steps
from bakehouse.builder.code_copies import code_directory, write_code
from bakehouse.engine import docker
from bakehouse.engine.daemon_info import inspect
from bakehouse.errors import UsageError
from bakehouse.fetch.cache import FileCache
from bakehouse.plan import dockerfile
from bakehouse.plan.model import Plan
from bakehouse.plan.workspace import Workspace, raise_failures, require_project, select_own
from bakehouse.registry.layer_cache import LAYERS, remove_unused
from bakehouse.util.files import read_text, remove_tree
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
    """Remove leftovers of ended runs and the project's images of older recipes; `everything` removes more.

    `everything` includes images of the current recipes, the project's state and build/, and images and state
    of directories that no longer exist. Images that another project directory built are kept, even if the
    project once had their tag. All projects share the file cache and the build cache, so their sizes are
    reported.
    `cache` removes the file cache. `build_cache` removes stages that no image of the project has from the
    build cache in a registry.
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
    needed = frozenset[str]() if everything else image_owners.names_of(images)
    if everything:
        image_owners.adopt(workspace.project)
    own = image_owners.read(workspace.project).own
    unneeded = sorted(own - needed)
    removed = 0
    used = set[str]()
    with contextlib.closing(docker.connect()) as engine:
        swept = engine.sweep()
        stored = {name: image for name in own if "@" not in name and (image := engine.image(name))}
        pointed = image_owners.owned_names(stored)
        for name in (name for name in unneeded if name in pointed):
            # Once for each image, because builds of other projects wait meanwhile
            with image_owners.locked(workspace.project) as owners:
                if others := {*pointed[name]} & owners.others.keys():
                    report(f"kept image {name}, which {owners.others[min(others)]} built")
                elif not pointed[name] & own:
                    report(f"kept image {name}, which this project did not build")
                elif engine.remove_image(name):
                    removed += 1
                    report(f"removed image {name}")
                else:
                    used.add(name)
                    report(f"kept image {name}, which a container uses")
        cached = engine.build_cache_bytes()
    # `latest` may point to an image that has no other name any more
    kept = (pointed[name] for name in used.union(own & needed) if name in pointed)
    recorded = frozenset[str]().union(*(names for names in kept if names & own))
    image_owners.forget(workspace.project, {*unneeded} - used - recorded)
    image_owners.record(workspace.project, recorded)
    if everything:
        for directory in dict.fromkeys((workspace.project.output, workspace.project.state)):
            remove_tree(directory)
            report(f"removed {directory}")
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
    if cached:
        report(
            f"the engine's build cache has {format_bytes(cached)}; `docker builder prune` removes the unused "
            "part, for all projects"
        )
    return (
        f"{swept.containers} containers, {swept.networks} networks, {swept.volumes} volumes of ended runs, "
        f"{removed} images\n"
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
                    read_text(root / image.name / "Dockerfile"),
                    root / image.name,
                    code_directory(root, image.name),
                )
            )
        }
