"""Comparison of an image with its build by another engine, down to the files that differ."""

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from bakehouse.engine.image_archive import Reader
from bakehouse.engine.protocol import ContainerSpec, Engine, StoredImage
from bakehouse.errors import Diagnostic, Table
from bakehouse.maintain import layer_diff
from bakehouse.maintain.layer_diff import EntryDifference, LayerEntry
from bakehouse.plan.dockerfile import layer_owners
from bakehouse.plan.model import Image, RegistryBase
from bakehouse.registry.manifest import digest_of
from bakehouse.util.files import make_directory, write_whole
from bakehouse.util.format import format_table
from bakehouse.util.oci import Digest

MAX_FILES = 20
_MAX_DIFFOSCOPE = 3
_DIFFOSCOPE_BYTES = 50_000_000
_MAX_LINES = 30
_MAX_VALUE_LENGTH = 300
_MISSING = "none"


@dataclass(frozen=True, slots=True)
class Side:
    """One of two engines that are compared, with the kind of its image store."""

    engine: Engine
    store: str


@dataclass(frozen=True, slots=True)
class LayerDifference:
    """A layer that differs between two engines."""

    number: int
    """From 1, the lowest."""
    owner: str
    """The component or recipe key that made it."""
    digests: tuple[str, str]
    files: tuple[EntryDifference, ...]


@dataclass(frozen=True, slots=True)
class Reproduction:
    """The comparison of two builds of an image."""

    image: str
    store: str
    """The image store of the second engine."""
    clock: str
    layers: int
    digests: tuple[Digest, Digest]
    """The digests of both configurations, which determine the digests of published manifests."""
    differing: tuple[LayerDifference, ...] = ()
    settings: tuple[str, ...] = ()
    """If digests differ but layers do not: the differences of the configurations."""
    looked_into: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """The output of diffoscope for files."""
    first_store: str = ""
    """The image store of the first engine, if it is of another kind."""

    @property
    def is_same(self) -> bool:
        return len(set(self.digests)) == 1


def compare(
    image: Image, first: Side, second: Side, *, clock: str, templates: Mapping[str, str], directory: Path
) -> Reproduction:
    """Compare the images of two engines; `directory` receives files for diffoscope."""
    first_image, second_image = _stored(image, first), _stored(image, second)
    numbers = [
        number
        for number in range(max(len(first_image.layers), len(second_image.layers)))
        if first_image.layers[number : number + 1] != second_image.layers[number : number + 1]
    ]
    differing: tuple[LayerDifference, ...] = ()
    looked_into: tuple[tuple[str, tuple[str, ...]], ...] = ()
    if numbers:
        sides = (first, first_image), (second, second_image)
        differing = _differing(image, *sides, numbers, templates)
        looked_into = _diffoscope(differing, *sides, directory)
    configs = _config(first, first_image), _config(second, second_image)
    return Reproduction(
        image=image.name,
        store=second.store,
        clock=clock,
        layers=len(first_image.layers),
        digests=(digest_of(configs[0]), digest_of(configs[1])),
        differing=differing,
        settings=() if numbers else _settings(*configs),
        looked_into=looked_into,
        first_store=first.store if first.store != second.store else "",
    )


def table(reproductions: Sequence[Reproduction]) -> str:
    """Return a line for each image and engine."""
    rows = [
        (
            result.image,
            f"{result.store} store",
            f"{result.layers - len(result.differing)} of {result.layers} layers identical",
            _digest_text(result),
            result.clock,
        )
        for result in reproductions
    ]
    return format_table(rows)


def diagnostic(reproduction: Reproduction) -> Diagnostic:
    """Return the error of an image that differs."""
    message = (
        f"image `{reproduction.image}` differs when an engine with the {reproduction.store} store builds it"
    )
    if not reproduction.differing:
        facts = tuple(zip(("first", "second"), reproduction.digests, strict=True))
        differing = Table(
            "the layers are identical, but these differ", tuple((line,) for line in reproduction.settings)
        )
        return Diagnostic(message, facts=facts, tables=(differing,))
    tables = []
    for layer in reproduction.differing:
        rows = [(file.path, "; ".join(file.aspects)) for file in layer.files[:MAX_FILES]]
        if len(layer.files) > MAX_FILES:
            rows.append((f"and {len(layer.files) - MAX_FILES:,} more", ""))
        tables.append(Table(f"layer {layer.number}, of {layer.owner}", tuple(rows)))
    tables += [
        Table(f"{path} differs in", tuple((line,) for line in lines))
        for path, lines in reproduction.looked_into
    ]
    hint = "a step must not write the time, random numbers, or downloads without a sha256"
    has_other_content = any(
        file.has_other_content for layer in reproduction.differing for file in layer.files
    )
    if reproduction.first_store and not has_other_content:
        store = reproduction.first_store
        hint = f"each store records a step in its own way; the build on `{store}` compares equal stores"
    return Diagnostic(message, tables=tuple(tables), hint=hint)


def unlocked(image: Image) -> tuple[str, ...]:
    """Return the inputs of an image that are not locked, so that two builds may differ."""
    reasons = []
    if isinstance(image.base, RegistryBase) and not image.base.digest:
        reasons.append("its base has no digest")
    if not image.locks_apt and (
        image.installs_apt or image.toolchain or any(stage.build_apt for stage in image.stages)
    ):
        reasons.append("its Debian packages are not locked")
    reasons += [f"the sha256 of `{artifact.file}` is unknown" for artifact in image.unpinned]
    if any(step.network for step in image.content.run):
        reasons.append("its own steps may download anything")
    return tuple(reasons)


def _digest_text(reproduction: Reproduction) -> str:
    return "digest identical" if reproduction.is_same else "digest differs"


def _stored(image: Image, side: Side) -> StoredImage:
    stored = side.engine.image(image.reference)
    assert stored is not None, f"{image.reference} was just built"
    return stored


def _differing(
    image: Image,
    first: tuple[Side, StoredImage],
    second: tuple[Side, StoredImage],
    numbers: Sequence[int],
    templates: Mapping[str, str],
) -> tuple[LayerDifference, ...]:
    first_entries, second_entries = (_entries(side, stored, numbers) for side, stored in (first, second))
    above = [owner.name for owner in layer_owners(image, templates)]
    below = max(len(first[1].layers) - len(above), 0)
    owners = [*[image.base_part.component or "the base"] * below, *above]
    return tuple(
        LayerDifference(
            number + 1,
            owners[number] if number < len(owners) else "unknown",
            (_digest_at(first[1], number), _digest_at(second[1], number)),
            layer_diff.differences(first_entries.get(number, {}), second_entries.get(number, {})),
        )
        for number in numbers
    )


def _digest_at(stored: StoredImage, number: int) -> str:
    return stored.layers[number] if number < len(stored.layers) else _MISSING


def _config(side: Side, stored: StoredImage) -> bytes:
    return side.engine.read_config(stored.digest)


def _settings(first: bytes, second: bytes) -> tuple[str, ...]:
    """Return the differences of two configurations."""
    settings = json.loads(first), json.loads(second)
    differences = []
    for key in sorted({*settings[0], *settings[1]}):
        values = settings[0].get(key), settings[1].get(key)
        if values[0] != values[1]:
            differences.append(f"`{key}`: {_cut(values[0])} and {_cut(values[1])}")
    return tuple(differences)


def _cut(value: object) -> str:
    return json.dumps(value)[:_MAX_VALUE_LENGTH]


def _entries(side: Side, stored: StoredImage, numbers: Sequence[int]) -> dict[int, dict[str, LayerEntry]]:
    """Return the entries of the layers with these numbers."""
    read: dict[str, dict[str, LayerEntry]] = {}

    def reader_of(digest: str) -> Reader:
        def take(layer: IO[bytes]) -> None:
            read[digest] = layer_diff.read(layer)

        return take

    saved = side.engine.read_image(stored.digest, reader_of)
    return {number: read[layer.digest] for number, layer in enumerate(saved.layers) if number in numbers}


def _diffoscope(
    differing: Sequence[LayerDifference],
    first: tuple[Side, StoredImage],
    second: tuple[Side, StoredImage],
    directory: Path,
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the output of diffoscope for some files that differ; empty if it is not installed."""
    program = shutil.which("diffoscope")
    paths = [file.path for layer in differing for file in layer.files if file.has_other_content]
    if program is None or not paths:
        return ()
    outputs = []
    for path in paths[:_MAX_DIFFOSCOPE]:
        copies = [
            _copied(path, *side, directory / str(number)) for number, side in enumerate((first, second))
        ]
        if not all(copies):
            continue
        command = [program, "--text=-", "--text-color=never", "--max-report-size=20000", *map(str, copies)]
        result = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        outputs.append((path, tuple(result.stdout.splitlines()[:_MAX_LINES])))
    return tuple(outputs)


def _copied(path: str, side: Side, stored: StoredImage, directory: Path) -> Path | None:
    """Copy a file of an image to a directory; None if it is too large, or hidden by a higher layer."""
    with side.engine.container(ContainerSpec(image=stored.digest, command=("true",))) as container:
        sizes = container.sizes(path)
        if len(sizes) != 1 or sum(sizes.values()) > _DIFFOSCOPE_BYTES:
            return None
        (content,) = container.read(path).values()
    make_directory(directory)
    copy = directory / path.rpartition("/")[2]
    write_whole(copy, content)
    return copy
