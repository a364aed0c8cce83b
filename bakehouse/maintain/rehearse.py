"""The use case `rehearse`: run every build step of images that never ran, with real files where possible."""

import contextlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from bakehouse.builder import base_image, image_owners
from bakehouse.builder import build as builder
from bakehouse.builder.build_context import BuildContext, BuildOptions
from bakehouse.builder.build_inputs import build_inputs
from bakehouse.builder.progress import Progress
from bakehouse.catalog.project import ProjectSettings
from bakehouse.engine.open_engine import BUILD_FEATURES, open_engine
from bakehouse.engine.protocol import Engine
from bakehouse.errors import BuildError, EngineError
from bakehouse.evidence import step_layers, step_results
from bakehouse.evidence.image_state import known_layers
from bakehouse.evidence.step_layers import StepLayer, asked_keys
from bakehouse.fetch.project_fetcher import open_fetcher
from bakehouse.fetch.required_files import RequiredFile
from bakehouse.maintain import rehearsal, single_layers
from bakehouse.maintain.rehearsal import RehearsalResults, Rehearsed
from bakehouse.maintain.single_layers import SingleLayer
from bakehouse.maintain.stub_plan import Rehearsal
from bakehouse.pipeline.build import platforms_of, runnable_plan
from bakehouse.plan import dockerfile
from bakehouse.plan.model import BootstrappedBase, Image
from bakehouse.plan.planner import bootstrapped_bases
from bakehouse.plan.workspace import Selection, Workspace
from bakehouse.util.format import format_count, format_names
from bakehouse.util.json_reader import parse_json
from bakehouse.util.terminal import Reporter

_MAX_LAYERS, _MAX_WEIGHT, _MAX_CACHE = 8, 4_000_000_000, 10_000_000_000
"""Layers and weight of a group, and bytes that the build cache keeps."""
_MAX_DISK, _COPIES = 25_000_000_000, 6
"""Bytes of disk, and how many times its downloads a group needs: them, two unpacked copies, compressed."""


def rehearse(
    selection: Selection, report: Reporter, *, real_packages: bool = False, json: bool = False
) -> RehearsalResults:
    """Run the build steps of images that never ran, each once, the cheapest first.

    Layers whose files are available are built from them, one by one. For the other steps, images are
    rehearsed with stubs, as few as have all of them. Results are recorded after each group, so that the next
    call continues there. A failure does not stop the others.
    """
    workspace = selection.workspace
    project = workspace.project
    plan = runnable_plan(selection, selection.plan, report)
    outcome = RehearsalResults()
    with contextlib.ExitStack() as stack:
        progress = stack.enter_context(Progress.on(sys.stderr, json=json))
        platforms = platforms_of(plan.images)
        engine = stack.enter_context(open_engine(progress.report, *BUILD_FEATURES, platforms=platforms))
        real = {key for (key, _), rows in known_layers(project).items() if any(row.digest for row in rows)}
        with open_fetcher(project, progress.report, offline=True) as fetcher:
            layers = single_layers.single_layers(plan.images, real, lambda file: bool(fetcher.local(file)))
        _build_layers(workspace, layers, engine, progress, outcome)
        images = uncovered(plan.images, {key for key, _ in known_layers(project)})
        if images:
            rehearsed = _with_stubs(workspace, images, engine, progress, real_packages=real_packages)
            outcome.rehearsed += rehearsed.rehearsed
            outcome.failures += rehearsed.failures
            outcome.failed += rehearsed.failed
    report(f"{format_count(len(layers), 'layer')} to build, {format_count(len(images), 'image')} to rehearse")
    return outcome


def uncovered(images: Iterable[Image], known: set[str]) -> list[Image]:
    """Return images that together have all steps that never ran: always the one with most of them next."""
    left = {image.name: (image, _needed(image) - known) for image in images}
    chosen: list[Image] = []
    while left:
        name = max(sorted(left), key=lambda name: len(left[name][1]))
        image, keys = left.pop(name)
        if not keys:
            break
        chosen.append(image)
        left = {other: (rest, needed - keys) for other, (rest, needed) in left.items()}
    return chosen


def _needed(image: Image) -> set[str]:
    """Return the keys of an image's layers, or its own if it has no others."""
    own, *layers = asked_keys(image)
    return {*layers} or {own}


def _build_layers(
    workspace: Workspace,
    layers: Sequence[SingleLayer],
    engine: Engine,
    progress: Progress,
    outcome: RehearsalResults,
) -> None:
    """Build layers in groups, and record their digests."""
    project = workspace.project
    root = project.state / "rehearsal" / "layers"
    for image in {item.image.name: item.image for item in layers}.values():
        for file in dockerfile.render_image(image, workspace.templates):
            file.write(root / "images")
    image_owners.record(project, [item.reference for item in layers])
    rest = [*layers]
    for group in single_layers.groups(layers, _MAX_LAYERS, _MAX_WEIGHT):
        rest = rest[len(group) :]
        images = [*{item.image.name: item.image for item in group}.values()]
        progress.report(f"layers: {format_names(item.name for item in group)}")
        size = sum(file.bytes or 0 for file in {file for item in group for file in item.files})
        engine.prune_build_cache(min(_MAX_CACHE, max(0, _MAX_DISK - _COPIES * size)))
        with _only_for_now(project, group, rest, progress.report):
            try:
                with builder.open_context(project, images, engine, progress, BuildOptions()) as context:
                    base_image.ensure_bases((image.base for image in images), context)
                    context = replace(
                        context, project=replace(project, root=root, state_directory=project.state)
                    )
                    built = single_layers.build(group, context, outcome.failures)
            except BuildError as error:
                outcome.failures += error.diagnostics
                continue
        rows = []
        for item, stored in built:
            [digest] = parse_json(engine.read_config(stored))["rootfs"]["diff_ids"]
            rows.append(StepLayer(item.layer.key, item.image.platform, digest))
            engine.remove_image(item.reference)
        step_layers.record(project.state, rows, project.state / "locks")
    if layers:
        engine.prune_build_cache(_MAX_CACHE)


@contextlib.contextmanager
def _only_for_now(
    project: ProjectSettings, group: Sequence[SingleLayer], rest: Sequence[SingleLayer], report: Reporter
) -> Iterator[None]:
    """Remove the files from the cache at the end that were downloaded for a group only."""
    later = {file for item in rest for file in item.files}
    files: set[RequiredFile] = {file for item in group for file in item.files} - later
    with open_fetcher(project, report, offline=True) as fetcher:
        new = [file for file in files if fetcher.local(file) is None]
        yield
        for file in new:
            if (path := fetcher.local(file)) and path.is_relative_to(project.cache):
                path.unlink()


def _with_stubs(
    workspace: Workspace, images: Sequence[Image], engine: Engine, progress: Progress, *, real_packages: bool
) -> RehearsalResults:
    """Rehearse images with stubs, and record which steps ran."""
    project, debian = workspace.project, _debian(workspace)
    prepared = rehearsal.prepare(images, workspace.templates, debian, project.state, real=real_packages)

    def record(rehearsed: Sequence[Rehearsed]) -> None:
        rows = [row for item in rehearsed for row in _rows(item.rehearsal)]
        step_layers.record(project.state, rows, project.state / "locks")

    with contextlib.ExitStack() as stack:
        downloads = stack.enter_context(
            rehearsal.start_downloads(prepared, debian, project, engine.host(), progress.report)
        )
        inputs = build_inputs(project, progress.report, rehearsal.step_needs(images), downloads)
        context = BuildContext(project, engine, progress, downloads, stack.enter_context(inputs))
        return rehearsal.run_rehearsals(prepared, debian, context, record)


def _rows(done: Rehearsal) -> Iterable[StepLayer]:
    components = {need.part.component for need, _ in done.files}
    return step_results.rehearsed_rows(done.real, done.real.base_part.component, components)


def _debian(workspace: Workspace) -> BootstrappedBase:
    """Return the base that stubs of other bases are made from."""
    bases = [
        base
        for base in bootstrapped_bases(workspace.catalog, workspace.apt_locks).values()
        if base.suite == rehearsal.SUITE
    ]
    if not bases:
        raise EngineError(f"no component bootstraps Debian `{rehearsal.SUITE}`, which stubs of bases need")
    return bases[0]
