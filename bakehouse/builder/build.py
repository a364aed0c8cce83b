"""Build images: skip those that are up to date, bake the others as one BuildKit graph, verify them all."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Protocol

from bakehouse.builder import base_image, image_owners, prefetch, registry_auth, sent_files, up_to_date
from bakehouse.builder.bake import bake_with_inputs, target_of
from bakehouse.builder.build_context import BuildContext, BuildOptions
from bakehouse.builder.build_inputs import StepNeeds, build_inputs, remote_inputs
from bakehouse.builder.built_image import BuiltImage
from bakehouse.builder.code_copies import require_modes, write_code
from bakehouse.builder.disk_estimate import expected_bytes, layer_bytes
from bakehouse.builder.progress import Progress
from bakehouse.builder.remote import open_remote_build
from bakehouse.builder.remote_builders import RemoteBuilders
from bakehouse.builder.stage_cache import open_cache
from bakehouse.builder.verify import verify_image
from bakehouse.catalog.project import ProjectSettings
from bakehouse.engine import buildx
from bakehouse.engine.buildkit_errors import ImagesFailed
from bakehouse.engine.protocol import Engine, EngineHost
from bakehouse.errors import BuildError, Diagnostic, EngineError
from bakehouse.plan.model import Image
from bakehouse.util.format import format_bytes, format_count, format_names
from bakehouse.util.heartbeat import heartbeat
from bakehouse.util.terminal import Reporter

MAX_TARGETS = 24
"""Maximum per call of the engine: with 60 images, it did not read their training code in time."""
_MAX_NAMES = 5
_MAX_CONCURRENT_VERIFICATIONS = 3
"""Each one runs a container that imports a framework, so more need much memory and save little time."""

Verify = Callable[[BuiltImage], object]
"""Verifies one image and raises BuildError on a mismatch."""


class VersionMemory(Protocol):
    """The images whose installed versions were verified before."""

    def has(self, built: BuiltImage) -> bool: ...

    def add(self, built: BuiltImage) -> None: ...


def build_images(
    project: ProjectSettings,
    images: Sequence[Image],
    engine: Engine,
    progress: Progress,
    options: BuildOptions,
    verified: VersionMemory,
) -> tuple[BuiltImage, ...]:
    """Return the images in their order, each verified.

    Raises BuildError with all failures, after building what can be built.
    """
    image_owners.record(project, image_owners.names_of(images))
    current = up_to_date.find_up_to_date(images, project, engine)
    names = {built.image.name for built in current}
    outdated = [image for image in images if image.name not in names]
    new: tuple[BuiltImage, ...] = ()
    if outdated:
        with open_context(project, outdated, engine, progress, options) as context:
            new = build(outdated, context, present=[built.image for built in current])
    # After the build, so that a mismatch here does not stop the other images.
    unverified = [built for built in current if not verified.has(built)]
    verify_all(unverified, partial(_verify, engine=engine, project=project), progress.report)
    for built in (*unverified, *new):
        verified.add(built)
    by_name = {built.image.name: built for built in (*current, *new)}
    image_owners.record(
        project, {image_owners.digest_name(built.image.reference, built.stored) for built in by_name.values()}
    )
    return tuple(by_name[image.name] for image in images)


@contextlib.contextmanager
def open_context(
    project: ProjectSettings,
    images: Sequence[Image],
    engine: Engine,
    progress: Progress,
    options: BuildOptions,
) -> Iterator[BuildContext]:
    """Yield the context of a build of images: with its tools, downloads, logins and cache.

    Raises EngineError if no builder is available, and the errors of `start_downloads` and `open_cache`.
    """
    report = progress.report
    builders = RemoteBuilders(options.builders, report) if options.builders else None
    if builders:
        # Before anything is downloaded
        builders.available()
    host = EngineHost() if builders else engine.host()
    if host.problem:
        report(f"build steps cannot reach this host ({host.problem}): sending their files with the build")
    with contextlib.ExitStack() as stack:
        downloads = stack.enter_context(
            prefetch.start_downloads(
                images, project, engine, host, report, source=options.source, offline=options.offline
            )
        )
        needs = StepNeeds.of(images, offline=options.offline)
        inputs = (
            build_inputs(project, report, needs, downloads)
            if host.address
            else remote_inputs(project, report, needs)
        )
        cache = open_cache(project, options.cache, report, remote=bool(builders)) if options.cache else None
        references = [*registry_auth.pulled_bases(images), *([cache.reference] if cache else [])]
        logins = registry_auth.ecr_logins(references, project, report)
        yield BuildContext(
            project,
            engine,
            progress,
            downloads,
            inputs=stack.enter_context(inputs),
            environment=stack.enter_context(logins),
            builders=builders,
            cache=cache,
            sends_files=bool(host.problem),
        )


def build(
    images: Sequence[Image], context: BuildContext, present: Sequence[Image] = ()
) -> tuple[BuiltImage, ...]:
    """Make the bases, then build and verify images; `present` ones are up to date.

    A failed image does not stop the others; failures are raised at the end.
    """
    absent = [image for image in images if not context.engine.image(image.reference)]
    _require_disk(absent, present, context)
    for image in images:
        write_code(image, context.project.output)
        require_modes(image, context.project.images, context.project.output)
    base_image.ensure_bases((image.base for image in images), context)
    baked, failures = _bake(images, absent, context)
    built = [_built(image, baked[image.name], context) for image in images if image.name in baked]
    try:
        verify_all(built, partial(_verify_new, context=context), context.progress.report)
    except BuildError as error:
        failures += error.diagnostics
    if failures:
        raise BuildError.of(*failures)
    return tuple(built)


def _bake(
    images: Sequence[Image], absent: Sequence[Image], context: BuildContext
) -> tuple[dict[str, buildx.BakedImage], list[Diagnostic]]:
    """Bake images on the builders or the engine; return the digests of built images, and failures."""
    failures: list[Diagnostic] = []
    report = context.progress.report

    def on_failure(error: ImagesFailed, remaining: Sequence[buildx.Target]) -> None:
        failures.extend(error.diagnostics)
        if remaining:
            names = ", ".join(f"`{name}`" for name in sorted(error.images))
            report(f"{names} failed to build; continuing with the others")

    def bake_on_engine(targets: Sequence[buildx.Target]) -> dict[str, buildx.BakedImage]:
        names = {target.name for target in targets}
        first = leaders(image for image in absent if image.name in names)
        return bake_with_inputs(targets, context, first=first)

    with contextlib.ExitStack() as stack:
        bake: sent_files.Bake
        if context.builders:
            bake = stack.enter_context(open_remote_build(images, context.builders, context)).bake
        else:
            bake = stack.enter_context(sent_files.with_files(images, context, bake_on_engine))
        targets = [target_of(image, context.project.output) for image in images]
        step = max(len(targets), 1) if context.builders else MAX_TARGETS
        digests: dict[str, buildx.BakedImage] = {}
        for start in range(0, len(targets), step):
            batch = targets[start : start + step]
            digests |= buildx.bake_with_retries(batch, bake, on_failure, context.restart_engine, report)
        return digests, failures


def _built(image: Image, digests: buildx.BakedImage, context: BuildContext) -> BuiltImage:
    """Return a baked image as the engine stores it, and record its configuration."""
    stored = context.engine.image(digests.stored)
    if stored is None:
        raise BuildError(
            f"image `{image.name}` was removed from the engine immediately after its build",
            hint="run the same command again",
        )
    return BuiltImage.stored_as(stored, image, context.engine, context.project.state)


def _verify(built: BuiltImage, engine: Engine, project: ProjectSettings) -> None:
    verify_image(engine, built.image, built.stored, project.state)


def _verify_new(built: BuiltImage, context: BuildContext) -> None:
    """Verify an image, and record that it is up to date."""
    _verify(built, context.engine, context.project)
    up_to_date.record_build(built, context.project)


def verify_all(built: Sequence[BuiltImage], verify: Verify, report: Reporter) -> None:
    """Verify all images; raise BuildError with all mismatches."""
    if not built:
        return
    what = built[0].image.name if len(built) == 1 else format_count(len(built), "image")
    with (
        ThreadPoolExecutor(_MAX_CONCURRENT_VERIFICATIONS) as threads,
        heartbeat(report, f"verifying: {what}"),
    ):
        mismatches = [
            diagnostic
            for diagnostics in threads.map(lambda image: _mismatches(image, verify), built)
            for diagnostic in diagnostics
        ]
    if mismatches:
        raise BuildError.of(*mismatches)


def _mismatches(built: BuiltImage, verify: Verify) -> tuple[Diagnostic, ...]:
    try:
        verify(built)
    except BuildError as error:
        return error.diagnostics
    return ()


def leaders(images: Iterable[Image]) -> frozenset[str]:
    """Return the images to export first: one of each set of images that share layers above the base.

    BuildKit unpacks a shared layer once for each image that it exports at the same time, but skips layers
    that are unpacked already. The image with the fewest stages leads because it finishes first.
    """
    sets: dict[object, list[Image]] = {}
    for image in images:
        lowest = image.layers[0].key if image.layers else image.key
        sets.setdefault((image.base, image.apt, lowest), []).append(image)
    first = (min(group, key=lambda image: len(image.stages)) for group in sets.values() if len(group) > 1)
    return frozenset(image.name for image in first)


def _require_disk(absent: Sequence[Image], present: Sequence[Image], context: BuildContext) -> None:
    """Raise EngineError if the engine's disk is too small; it keeps images compressed and unpacked."""
    free = context.engine.host().free if absent else None
    if free is None:
        return
    kept = {key for image in present for key in layer_bytes(image)}
    kept |= up_to_date.kept_layers(context.project, context.engine)
    needed = 2 * expected_bytes(absent, kept)
    if needed > free:
        names = format_names(image.name for image in absent[:_MAX_NAMES])
        more = f" and {len(absent) - _MAX_NAMES} more" if absent[_MAX_NAMES:] else ""
        message = f"not enough disk space to build {names}{more}"
        facts = (
            ("needed", f"about {format_bytes(needed)}"),
            ("free", f"{format_bytes(free)} on the engine's disk"),
        )
        raise EngineError(
            message,
            facts=facts,
            hint="check `docker system df`; `docker builder prune` removes unused build cache",
        )
