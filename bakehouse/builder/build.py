"""Build images: skip those that are up to date, bake the others as one BuildKit graph, verify them all."""

import contextlib
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from bakehouse.builder import base_image, prefetch, registry_auth, up_to_date
from bakehouse.builder.bake import bake_with_inputs, target_of
from bakehouse.builder.build_inputs import BuildInputs, Downloads, build_inputs, remote_inputs
from bakehouse.builder.built_image import BuiltImage, record_configuration
from bakehouse.builder.progress import Progress
from bakehouse.builder.remote import prepare
from bakehouse.builder.remote_builders import RemoteBuilders
from bakehouse.builder.stage_cache import StageCache, open_cache
from bakehouse.builder.verify import verify_image
from bakehouse.catalog.project import Project
from bakehouse.engine import buildx, daemon_info, provision
from bakehouse.engine.buildkit_errors import ImagesFailed
from bakehouse.engine.protocol import Engine
from bakehouse.errors import BuildError, Diagnostic, EngineError
from bakehouse.plan.model import BootstrappedBase, Image
from bakehouse.util.format import format_bytes, format_count, format_names
from bakehouse.util.heartbeat import heartbeat
from bakehouse.util.terminal import Reporter

_PARALLEL_VERIFICATIONS = 3
_MOST_NAMES = 5
"""Each is a container that imports a framework: more would need more memory than they save time."""
_UNPACKED_RATIO = 3.2
"""Size of an installed wheel relative to the wheel file: torch 2.13 with CUDA 13.0, measured."""
_SYSTEM_BYTES = 600_000_000
"""Size of an image without its wheels: the base and the Debian packages."""

Verify = Callable[[BuiltImage], object]
"""Verifies one image and raises BuildError on a mismatch; skips images that it verified before."""


def build_images(
    project: Project,
    images: Sequence[Image],
    engine: Engine,
    progress: Progress,
    *,
    source: str,
    offline: bool,
    builders: Sequence[str] = (),
    cache: str = "",
) -> tuple[BuiltImage, ...]:
    """Return the images in their order, each verified; `source` and `offline` as in `start_downloads`.

    The available ones of the remote `builders` build. `cache` is the repository of a build cache. Raises
    BuildError with all failures, after building what can be built.
    """

    def verify(built: BuiltImage) -> None:
        verify_image(engine, built.image, built.stored, project.state)

    def verify_new(built: BuiltImage) -> None:
        verify(built)
        up_to_date.record_build(built, project.root, project.state)

    current = up_to_date.find_up_to_date(images, project.root, project.state, engine)
    names = {built.image.name for built in current}
    outdated = [image for image in images if image.name not in names]
    new: tuple[BuiltImage, ...] = ()
    if outdated:
        present = [built.image for built in current]
        remote = RemoteBuilders(builders, progress.report) if builders else None
        if remote:
            # Before anything is downloaded
            remote.available()
        new = _build(
            project,
            outdated,
            present,
            engine,
            progress,
            verify_new,
            source=source,
            offline=offline,
            builders=remote,
            cache=cache,
        )
    # After the build, so that a mismatch here does not stop the other images.
    verify_all(current, verify, progress.report)
    by_name = {built.image.name: built for built in (*current, *new)}
    return tuple(by_name[image.name] for image in images)


def _downloads_more(image: Image) -> bool:
    """Return whether steps of an image may download files that are not locked."""
    return bool(image.content.run or not image.locks_apt or not isinstance(image.base, BootstrappedBase))


def _build(
    project: Project,
    images: Sequence[Image],
    present: Sequence[Image],
    engine: Engine,
    progress: Progress,
    verify: Verify,
    *,
    source: str,
    offline: bool,
    builders: RemoteBuilders | None,
    cache: str,
) -> tuple[BuiltImage, ...]:
    bases = {image.name: image.base for image in images if isinstance(image.base, BootstrappedBase)}
    stepping = [image.name for image in images if image.content.run and image.name in bases]
    with contextlib.ExitStack() as stack:
        if bases:
            provision.ensure_tools(provision.ask_at_terminal, progress.report, "mmdebstrap")
        downloads = stack.enter_context(
            prefetch.start_downloads(images, project, engine, progress.report, source=source, offline=offline)
        )
        served_suites = () if offline else [bases[name].suite for name in stepping]
        if builders:
            inputs = remote_inputs(
                state=project.state,
                ca=project.ca,
                report=progress.report,
                suites=served_suites,
                has_own_steps=any(image.content.run for image in images),
            )
        else:
            inputs = build_inputs(
                state=project.state,
                mirrors=project.mirrors,
                ca=project.ca,
                report=progress.report,
                suites=() if offline else [base.suite for base in bases.values()],
                served_suites=served_suites,
                needs_proxies=any(map(_downloads_more, images)),
                downloads=downloads,
            )
        stages = open_cache(project, cache, progress.report, remote=bool(builders)) if cache else None
        used = [*registry_auth.pulled_bases(images), *([stages.reference] if stages else [])]
        logins = registry_auth.ecr_logins(used, project, progress.report)
        return build(
            images,
            root=project.root,
            state=project.state,
            engine=engine,
            downloads=downloads,
            inputs=stack.enter_context(inputs),
            progress=progress,
            verify=verify,
            expected_bytes=partial(expected_bytes, present=present),
            # The engine of another machine is left alone.
            restart=(lambda: False) if builders else partial(restart, progress.report),
            environment=stack.enter_context(logins),
            builders=builders,
            cache=stages,
        )


def restart(report: Reporter) -> bool:
    """Restart an engine that lost a layer, if nothing else uses it; return whether it was restarted."""
    if not provision.restart(report):
        return False
    report("the engine lost a layer (a BuildKit bug): restarted the engine, building again")
    return True


def expected_bytes(images: Sequence[Image], present: Sequence[Image] = ()) -> int:
    """Estimate the unpacked size of images; stages that `present` images share take no further space."""
    present_keys = {stage.key for image in present for stage in image.stages}
    stages = {stage.key: stage for image in images for stage in image.stages if stage.key not in present_keys}
    wheels = sum(package.bytes for stage in stages.values() for package in (*stage.wheels, *stage.sdists))
    return int(wheels * _UNPACKED_RATIO) + _SYSTEM_BYTES * len(images)


def build(
    images: Sequence[Image],
    *,
    root: Path,
    state: Path,
    engine: Engine,
    downloads: Downloads,
    inputs: BuildInputs,
    progress: Progress,
    verify: Verify,
    expected_bytes: Callable[[Sequence[Image]], int],
    restart: Callable[[], bool],
    environment: Mapping[str, str] | None = None,
    builders: RemoteBuilders | None = None,
    cache: StageCache | None = None,
) -> tuple[BuiltImage, ...]:
    """Bootstrap the bases, then build and verify images that are rendered under `root`/images.

    A failed image does not stop the others; failures are raised at the end. `expected_bytes` estimates the
    unpacked size of images; `restart` restarts an engine that lost a layer and returns whether it did.
    `environment` is for docker's programs, such as registry logins. `builders` build instead of the engine,
    which then loads the images. Stages are read from `cache`, and written to it.
    """
    absent = [image for image in images if not engine.image(image.reference)]
    _check_disk(absent, expected_bytes)
    for base in dict.fromkeys(image.base for image in images if isinstance(image.base, BootstrappedBase)):
        base_image.ensure_base(
            base,
            engine=engine,
            state=state,
            report=progress.report,
            get=partial(prefetch.download_packages, downloads),
        )
    failures: list[Diagnostic] = []

    def bake_here(targets: Sequence[buildx.Target]) -> dict[str, buildx.BakedImage]:
        return bake_with_inputs(
            targets,
            cwd=root,
            state=state,
            downloads=downloads,
            inputs=inputs,
            progress=progress,
            environment=environment,
            first=leaders([image for image in absent if image.name in {target.name for target in targets}]),
            cache=cache,
        )

    def on_failure(error: ImagesFailed, remaining: Sequence[buildx.Target]) -> None:
        failures.extend(error.diagnostics)
        if remaining:
            names = ", ".join(f"`{name}`" for name in sorted(error.images))
            progress.report(f"{names} failed to build; continuing with the others")

    with contextlib.ExitStack() as stack:
        bake: Callable[[Sequence[buildx.Target]], dict[str, buildx.BakedImage]] = bake_here
        if builders:
            remote = prepare(
                images,
                builders,
                root=root,
                state=state,
                engine=engine,
                downloads=downloads,
                progress=progress,
                cache=cache,
            )
            bake = partial(stack.enter_context(remote).bake, inputs=inputs, environment=environment)
        baked = buildx.bake_with_retries(map(target_of, images), bake, on_failure, restart, progress.report)
    built = []
    for image in (image for image in images if image.name in baked):
        digests = baked[image.name]
        stored = engine.image(digests.stored)
        if stored is None:
            raise BuildError(
                f"image `{image.name}` was removed from the engine right after its build",
                hint="run the same command again",
            )
        record_configuration(digests.stored, digests.config, state)
        built.append(BuiltImage(image, digests.config, digests.stored, stored.bytes))
    try:
        verify_all(built, verify, progress.report)
    except BuildError as error:
        failures += error.diagnostics
    if failures:
        raise BuildError.of(*failures)
    return tuple(built)


def verify_all(built: Sequence[BuiltImage], verify: Verify, report: Reporter) -> None:
    """Verify all images; raise BuildError with all mismatches."""
    what = built[0].image.name if len(built) == 1 else format_count(len(built), "image")
    with ThreadPoolExecutor(_PARALLEL_VERIFICATIONS) as threads, heartbeat(report, f"verifying: {what}"):
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


def _check_disk(absent: Sequence[Image], expected_bytes: Callable[[Sequence[Image]], int]) -> None:
    """Raise EngineError if the engine's disk is too small; it keeps images compressed and unpacked."""
    directory = _engine_directory() if absent else None
    if directory is None:
        return
    needed, free = 2 * expected_bytes(absent), shutil.disk_usage(directory).free
    if needed > free:
        names = format_names(image.name for image in absent[:_MOST_NAMES])
        more = f" and {len(absent) - _MOST_NAMES} more" if absent[_MOST_NAMES:] else ""
        message = f"not enough disk space to build {names}{more}"
        facts = (
            ("needed", f"about {format_bytes(needed)}"),
            ("free", f"{format_bytes(free)} in {directory}"),
        )
        raise EngineError(
            message,
            facts=facts,
            hint="check `docker system df`; `docker builder prune` removes unused build cache",
        )


def _engine_directory() -> Path | None:
    """Return the engine's data directory; None if it is not on this machine."""
    path = daemon_info.docker("info", "--format", "{{.DockerRootDir}}").out.strip()
    return Path(path) if path and Path(path).is_dir() else None
