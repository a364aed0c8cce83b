"""Turns a Plan into BuiltImages: one BuildKit graph for all, then declared compared with installed."""

import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bakehouse.build import bake as feeding
from bakehouse.build import base_image, prefetch
from bakehouse.build.build_inputs import Feed, Supplies
from bakehouse.build.progress import Progress
from bakehouse.engine import buildx
from bakehouse.engine.buildkit_errors import ImagesFailed
from bakehouse.engine.protocol import Engine
from bakehouse.errors import BuildError, Diagnostic, EngineError
from bakehouse.plan.model import BootstrappedBase, Image
from bakehouse.util.oci import Digest

_VERIFIED_AT_ONCE = 3
"""Each is a container that imports a framework: more would want more memory than they save time."""


@dataclass(frozen=True, slots=True)
class BuiltImage:
    """An image that BuildKit made and that was found to hold what it declares."""

    image: Image
    digest: Digest
    """The manifest's digest in the engine's own store; the image's id where that is no containerd store."""
    bytes: int
    is_rehearsed: bool = False
    """Whether it has stand-ins in it: whatever its name is, it is no build of that image."""


Verify = Callable[[BuiltImage], object]
"""Compares declared with installed and raises where they differ; remembers by itself what it has compared."""


def build(
    images: Sequence[Image],
    *,
    root: Path,
    state: Path,
    engine: Engine,
    feed: Feed,
    supplies: Supplies,
    progress: Progress,
    verify: Verify,
    expected_bytes: Callable[[Sequence[Image]], int],
    restart: Callable[[], bool],
    environment: Mapping[str, str] | None = None,
) -> tuple[BuiltImage, ...]:
    """Build and verify images that are rendered under `root`/images; bases are made first.

    An image that fails doesn't keep others from being built; its failure is raised at the end.
    `expected_bytes` says what images will weigh together, unpacked; `restart` starts an engine anew that
    lost a layer, and says whether it could. `environment` is for docker's programs, such as its logins.
    """
    absent = [image for image in images if not engine.image(image.reference)]
    _check_disk(absent, expected_bytes)
    for base in dict.fromkeys(image.base for image in images if isinstance(image.base, BootstrappedBase)):
        base_image.ensure(base, engine=engine, state=state, say=progress.say, get=partial(prefetch.put, feed))
    failures: list[Diagnostic] = []

    def bake(targets: Sequence[buildx.Target]) -> dict[str, str]:
        return feeding.bake(
            targets,
            cwd=root,
            state=state,
            feed=feed,
            supplies=supplies,
            progress=progress,
            environment=environment,
            first=leaders([image for image in absent if image.name in {one.name for one in targets}]),
        )

    def failed(error: ImagesFailed, left: Sequence[buildx.Target]) -> None:
        failures.extend(error.diagnostics)
        if left:
            names = ", ".join(f"`{name}`" for name in sorted(error.images))
            progress.say(f"{names} did not build; going on with the others")

    digests = buildx.bake_what_goes(map(_target, images), bake, failed, restart, progress.say)
    built = []
    for image in (image for image in images if image.name in digests):
        stored = engine.image(digests[image.name])
        if stored is None:
            message = f"image `{image.name}` was built and then removed from the engine by something else"
            raise BuildError(Diagnostic(message, hint="run the same command again"))
        built.append(BuiltImage(image, Digest(digests[image.name]), stored.bytes))
    try:
        verify_all(built, verify)
    except BuildError as error:
        failures += error.diagnostics
    if failures:
        raise BuildError(*failures)
    return tuple(built)


def verify_all(built: Sequence[BuiltImage], verify: Verify) -> None:
    """Compare declared with installed in all images, and raise BuildError with all that differs."""
    with ThreadPoolExecutor(_VERIFIED_AT_ONCE) as threads:
        failures = [found for found in threads.map(lambda one: _mismatches(one, verify), built) if found]
    if failures:
        raise BuildError(*(one for found in failures for one in found))


def _mismatches(built: BuiltImage, verify: Verify) -> tuple[Diagnostic, ...]:
    try:
        verify(built)
    except BuildError as error:
        return error.diagnostics
    return ()


def leaders(images: Iterable[Image]) -> frozenset[str]:
    """The images to export before the others: one of each set that has layers above the base in common.

    BuildKit unpacks the layers of every image that it exports, also those that it unpacks for another one at
    that moment; what it finds unpacked it leaves. The one with the fewest parts leads: it is done first.
    """
    sets: dict[object, list[Image]] = {}
    for image in images:
        lowest = image.layers[0].key if image.layers else image.key
        sets.setdefault((image.base, image.apt, lowest), []).append(image)
    found = (min(one, key=lambda image: len(image.stages)) for one in sets.values() if len(one) > 1)
    return frozenset(image.name for image in found)


def _target(image: Image) -> buildx.Target:
    sources = {stage.name: stage.source / "install.j2" for stage in image.stages}
    return buildx.Target(image.name, image.target, Path("images", image.name, "docker-bake.json"), sources)


def _check_disk(absent: Sequence[Image], expected_bytes: Callable[[Sequence[Image]], int]) -> None:
    """An engine keeps an image twice: compressed and unpacked, and the stages that it was made of."""
    folder = _engine_folder() if absent else None
    if folder is None:
        return
    needed, free = 2 * expected_bytes(absent), shutil.disk_usage(folder).free
    if needed > free:
        names = ", ".join(f"`{image.name}`" for image in absent)
        message = f"the disk is too full to build {names}"
        facts = (("needed", f"about {_gigabytes(needed)}"), ("free", f"{_gigabytes(free)} in {folder}"))
        hint = "`docker system df` shows what fills it; `docker builder prune` drops unused build cache"
        raise EngineError(Diagnostic(message, facts=facts, hint=hint))


def _engine_folder() -> Path | None:
    """Where the engine keeps images, if that is on this machine."""
    command = ("docker", "info", "--format", "{{.DockerRootDir}}")
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        return None
    return Path(found) if found and Path(found).is_dir() else None


def _gigabytes(number: int) -> str:
    return f"{number / 1e9:.1f} GB"
