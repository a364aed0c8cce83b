"""Layers that are built one by one, without the images that they belong to: for the digest of each.

A layer that an image only links depends on none below it, so its copy onto an empty image is the same layer.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from bakehouse.builder.bake import bake_with_inputs, target_of
from bakehouse.builder.build_context import BuildContext
from bakehouse.engine import buildx
from bakehouse.engine.buildkit_errors import ImagesFailed
from bakehouse.errors import Diagnostic
from bakehouse.fetch.required_files import RequiredFile, files_of
from bakehouse.maintain.stub_plan import OUTPUT
from bakehouse.plan import dockerfile
from bakehouse.plan.image_layer import ImageLayer
from bakehouse.plan.model import BootstrappedBase, Image
from bakehouse.util import dockerfile_reader
from bakehouse.util.oci import Digest

_REPOSITORY = "bakehouse/layer"
_STEPS = ("ADD", "COPY", "RUN", "WORKDIR")
"""Instructions that make a layer."""
_SDIST = 1_000_000_000


@dataclass(frozen=True, slots=True)
class SingleLayer:
    """A linked layer of an image that can be built from real files."""

    image: Image
    layer: ImageLayer
    dockerfile: str
    """The Dockerfile of the image, with a last stage that has this layer only."""
    files: frozenset[RequiredFile] = frozenset()
    """Files that its stages download, except those of the base and the toolchain."""

    @property
    def name(self) -> str:
        return f"{self.image.name}:{self.layer.stages[0]}"

    @property
    def cost(self) -> tuple[int, int]:
        """Weight of the files, and the number of stages."""
        return weight(self.files), len(self.layer.stages)

    @property
    def reference(self) -> str:
        return f"{_REPOSITORY}:{self.layer.key}"


def single_layers(
    images: Iterable[Image], known: Collection[str], is_here: Callable[[RequiredFile], bool]
) -> tuple[SingleLayer, ...]:
    """Return the layers that can be built and whose keys are not known, each once, the cheapest first.

    `is_here` tells whether this machine has a file that comes neither from an index nor from Debian.
    """
    found: dict[str, SingleLayer] = {}
    for image in images:
        if isinstance(image.base, BootstrappedBase) and image.rendered:
            new = (item for item in _of_image(image) if item.layer.key not in {*known, *found})
            found |= {
                item.layer.key: item
                for item in new
                if all(is_here(file) for file in item.files if file.kind == "url")
            }
    return tuple(sorted(found.values(), key=lambda item: (item.cost, item.name)))


def _of_image(image: Image) -> Iterator[SingleLayer]:
    """Yield the linked layers of an image whose files are pinned."""
    assert image.rendered
    text = image.rendered[dockerfile.FILE].decode()
    lines, steps = text.split("\n"), list(dockerfile_reader.instructions(text))
    first = max(number for number, step in enumerate(steps) if step.keyword == "FROM")
    ends = (*(step.line - 1 for step in steps[first + 1 :]), len(lines))
    made = [pair for pair in zip(steps[first:], ends, strict=True) if pair[0].keyword in _STEPS]
    for layer, (step, end) in zip(image.layer_keys[len(image.layer_keys) - len(made) :], made, strict=True):
        if layer.is_pinned and layer.key and layer.stages and "--link" in step.flags:
            stages = [stage for stage in image.stages if {stage.name, stage.wheels_stage} & {*layer.stages}]
            files = frozenset(file for stage in stages for file in files_of(stage))
            head = lines[: steps[first].line - 1]
            own = "\n".join([*head, "FROM scratch AS single-layer", *lines[step.line - 1 : end]])
            yield SingleLayer(image, layer, f"{own.rstrip()}\n", files)


def weight(files: Iterable[RequiredFile]) -> int:
    """Return the bytes of files; source distributions, which take time to compile, weigh more."""
    return sum((file.bytes or 0) + _SDIST * (file.kind == "sdist") for file in files)


def groups(layers: Sequence[SingleLayer], count: int, size: int) -> Iterator[list[SingleLayer]]:
    """Yield groups of at most `count` layers, with files of at most this weight if they are several."""
    group: list[SingleLayer] = []
    for item in layers:
        files = {file for each in [*group, item] for file in each.files}
        if group and (len(group) == count or weight(files) > size):
            yield group
            group = []
        group.append(item)
    if group:
        yield group


def build(
    group: Sequence[SingleLayer], context: BuildContext, failures: list[Diagnostic]
) -> list[tuple[SingleLayer, Digest]]:
    """Build the layers of a group; return the successful ones with their digests in the engine."""

    def on_failure(error: ImagesFailed, remaining: Sequence[buildx.Target]) -> None:
        failures.extend(error.diagnostics)

    users = {
        file: tuple(item.name for item in group if file in item.files)
        for item in group
        for file in item.files
    }
    required = context.downloads.required
    required = replace(required, images={**required.images, **users})
    context = replace(context, downloads=replace(context.downloads, required=required))
    images = buildx.bake_with_retries(
        [_target(item, context.project.output) for item in group],
        partial(bake_with_inputs, context=context),
        on_failure,
        context.restart_engine,
        context.progress.report,
    )
    return [(item, images[item.name].stored) for item in group if item.name in images]


def _target(item: SingleLayer, output: Path) -> buildx.Target:
    target = target_of(item.image, output)
    return replace(
        target,
        name=item.name,
        target=f"layer-{item.layer.key}",
        part_of=target.target,
        dockerfile=item.dockerfile,
        stage="single-layer",
        tags=(item.reference,),
        output=OUTPUT,
    )
