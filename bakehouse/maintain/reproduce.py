"""The `reproduce` task: builds images again on a new engine and compares their layers."""

import contextlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from bakehouse.builder.built_image import BuiltImage
from bakehouse.engine import daemon_info, docker
from bakehouse.engine.daemon_paths import CONTAINERD, DaemonPaths
from bakehouse.engine.protocol import Engine
from bakehouse.errors import BuildError, Diagnostic, DifferenceError, Problems, StaleError, Table
from bakehouse.maintain.isolated_engine import isolated_engine
from bakehouse.pipeline.build import build_plan, manifest_digests, record_layers, runnable_plan
from bakehouse.plan.dockerfile import layer_owners
from bakehouse.plan.model import Image
from bakehouse.plan.unpinned import unpinned_lines
from bakehouse.plan.workspace import Selection, Workspace, select
from bakehouse.publish import signing
from bakehouse.publish.attest import Bundler
from bakehouse.registry.manifest import digest_of
from bakehouse.util import process
from bakehouse.util.format import format_table
from bakehouse.util.oci import Digest
from bakehouse.util.tempdir import private_directory
from bakehouse.util.terminal import Reporter


@dataclass(frozen=True, slots=True)
class LayerDifference:
    """A layer that differs between two engines."""

    number: int
    """From 1, the lowest."""
    owner: str
    """The component or recipe key that made it."""
    digests: tuple[str, str]


@dataclass(frozen=True, slots=True)
class Reproduction:
    """The comparison of two builds of an image."""

    image: str
    layers: int
    digests: tuple[Digest, Digest]
    """The digests of both configurations, which determine the digests of published manifests."""
    differing: tuple[LayerDifference, ...] = ()

    @property
    def is_same(self) -> bool:
        return len(set(self.digests)) == 1

    @property
    def diagnostic(self) -> Diagnostic:
        """The error of an image that differs."""
        rows = [(f"layer {layer.number}, of {layer.owner}", *layer.digests) for layer in self.differing]
        rows = rows or [("the layers are identical, but not the configuration", *self.digests)]
        return Diagnostic(
            f"image `{self.image}` differs when another engine builds it",
            tables=(Table("different", tuple(rows)),),
            hint="a step must not write the time, random numbers, or downloads without a sha256",
        )


def reproduce(selection: Selection, report: Reporter) -> tuple[Reproduction, ...]:
    """Build images here and on a new engine with the same kind of store; return the differences."""
    plan = runnable_plan(selection, selection.plan, report)
    workspace, names = selection.workspace, [image.name for image in plan.images]
    for line in unpinned_lines(plan.images):
        report(f"note: {line}")
    build_plan(selection, plan, report)
    here = daemon_info.inspect()
    with (
        contextlib.closing(docker.connect()) as first,
        private_directory(workspace.project.state) as directory,
        isolated_engine(CONTAINERD if here.containerd_store else here.store, report) as paths,
    ):
        report("building again on a new engine")
        _build_again(paths, workspace.project.root, directory, names)
        with contextlib.closing(docker.connect(paths.endpoint)) as second:
            require_same_recipes(plan.images, second)
            state = workspace.project.state
            stored = [(image, second.image(image.reference)) for image in plan.images]
            again = [BuiltImage.stored_as(found, image, second, state) for image, found in stored if found]
            # Another layer of a step makes its images not reproducible, on all pages
            record_layers(workspace.project, again, second)
            return tuple(compare(image, first, second, workspace.templates) for image in plan.images)


def compare(image: Image, first: Engine, second: Engine, templates: Mapping[str, str]) -> Reproduction:
    """Compare the images of two engines."""
    stored = [(engine, engine.image(image.reference)) for engine in (first, second)]
    configs = [digest_of(engine.read_config(found.digest)) for engine, found in stored if found]
    layers = [found.layers for _, found in stored if found]
    above = [owner.name for owner in layer_owners(image, templates)]
    owners = [*[image.base_part.component or "the base"] * max(len(layers[0]) - len(above), 0), *above]
    differing = tuple(
        LayerDifference(number, owner or "unknown", (before, after))
        for number, (owner, before, after) in enumerate(zip_longest(owners, *layers, fillvalue=""), 1)
        if before != after
    )
    return Reproduction(image.name, len(layers[0]), (configs[0], configs[1]), differing)


def table(reproductions: Sequence[Reproduction]) -> str:
    """Return a line for each image."""
    rows = [
        (
            result.image,
            f"{result.layers - len(result.differing)} of {result.layers} layers identical",
            "digest identical" if result.is_same else "digest differs",
        )
        for result in reproductions
    ]
    return format_table(rows)


def require_same(reproductions: Sequence[Reproduction]) -> None:
    """Raise DifferenceError for images that differ."""
    different = [reproduction.diagnostic for reproduction in reproductions if not reproduction.is_same]
    if different:
        raise DifferenceError.of(*different)


def sign(
    workspace: Workspace, reproductions: Sequence[Reproduction], bundler: Bundler, report: Reporter
) -> None:
    """Sign, for each published image, that it was built again with the same digest."""
    store = daemon_info.inspect().store
    names = [reproduction.image for reproduction in reproductions]
    for built, digest in manifest_digests(select(workspace, names), report):
        signing.sign_rebuild(workspace.project, built.image, digest, [store], bundler, report)


def require_same_recipes(images: Sequence[Image], engine: Engine) -> None:
    """Raise StaleError for images that the second build made from other recipes than the first."""
    problems = Problems()
    for image in images:
        if engine.image(image.reference) is None:
            message = f"the recipe of `{image.name}` changed between the two builds"
            problems.add(Diagnostic(message, hint=f"run `bake reproduce {image.name}` again"))
    problems.raise_as(StaleError)


def _build_again(paths: DaemonPaths, root: Path, directory: Path, names: Sequence[str]) -> None:
    """Build in a new process, which shares no state with this one."""
    command = [sys.executable, "-P", "-c", "from bakehouse.cli.main import main; main()", "build", *names]
    environment = {
        "DOCKER_HOST": paths.endpoint,
        "BAKEHOUSE_STATE": str(directory / "state"),
        "NO_COLOR": "1",
    }

    def forward(output: bytes) -> None:
        sys.stderr.write(output.decode(errors="replace"))
        sys.stderr.flush()

    with process.running(command, cwd=root, environment=environment) as bake:
        assert bake.stderr
        process.read({bake.stderr: forward}, lambda: None)
        if bake.wait():
            raise BuildError(
                f"{', '.join(f'`{name}`' for name in names)} could not be built again on another engine",
                hint="see the error above",
            )
