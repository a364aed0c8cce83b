"""Compares an image with what another engine built from the same lock, and names the files that differ."""

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from bakehouse.analysis import image_archive, layer_diff
from bakehouse.analysis.image_archive import Reader, SavedImage
from bakehouse.analysis.layer_diff import EntryDifference, LayerEntry
from bakehouse.engine.protocol import ContainerSpec, Engine, StoredImage
from bakehouse.errors import Diagnostic, Table
from bakehouse.plan.dockerfile import layer_owners
from bakehouse.plan.model import Image, RegistryBase
from bakehouse.util.format import format_table
from bakehouse.util.oci import Digest

MOST_FILES = 20
_LOOKED_INTO = 3
_LOOKED_INTO_BYTES = 50_000_000
_MOST_LINES = 30
_LONGEST_VALUE = 300
_MISSING = "none"
_COMPRESSED = "as it is compressed"


@dataclass(frozen=True, slots=True)
class Side:
    """An engine, and what it is called where two are compared."""

    engine: Engine
    store: str

    @property
    def has_manifests(self) -> bool:
        """Whether what it calls an image's digest is that of a manifest."""
        return self.store == "containerd"


@dataclass(frozen=True, slots=True)
class LayerDifference:
    """A layer that two engines made differently."""

    number: int
    """From 1, the lowest."""
    owner: str
    """The component, or the key of the recipe, that it is of."""
    digests: tuple[str, str]
    files: tuple[EntryDifference, ...]


@dataclass(frozen=True, slots=True)
class Reproduction:
    """What became of an image that was built a second time."""

    image: str
    store: str
    """The second engine's."""
    clock: str
    layers: int
    differing: tuple[LayerDifference, ...] = ()
    digests: tuple[Digest, Digest] | None = None
    """Of both manifests; None where an engine has none."""
    documents: tuple[str, ...] = ()
    """Where digests differ though the layers are the same: what of the manifest does."""
    looked_into: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """What diffoscope said of files."""
    first_store: str = ""
    """The first engine's, where it is another kind."""

    @property
    def is_same(self) -> bool:
        return not self.differing and (self.digests is None or len(set(self.digests)) == 1)


def compare(
    image: Image, first: Side, second: Side, *, clock: str, templates: Mapping[str, str], folder: Path
) -> Reproduction:
    """Compare the images that two engines have of one name; files to look into are put below `folder`."""
    one, other = _stored(image, first), _stored(image, second)
    numbers = [
        number
        for number in range(max(len(one.layers), len(other.layers)))
        if one.layers[number : number + 1] != other.layers[number : number + 1]
    ]
    differing: tuple[LayerDifference, ...] = ()
    told: tuple[tuple[str, tuple[str, ...]], ...] = ()
    if numbers:
        differing = _differing(image, (first, one), (second, other), numbers, templates)
        told = _looked_into(differing, (first, one), (second, other), folder)
    both = first.has_manifests and second.has_manifests
    documents: tuple[str, ...] = ()
    if both and not numbers and one.digest != other.digest:
        documents = _documents(*(_saved(side, found) for side, found in ((first, one), (second, other))))
    return Reproduction(
        image=image.name,
        store=second.store,
        clock=clock,
        layers=len(one.layers),
        differing=differing,
        digests=(Digest(one.digest), Digest(other.digest)) if both else None,
        documents=documents,
        looked_into=told,
        first_store=first.store if first.store != second.store else "",
    )


def table(found: Sequence[Reproduction]) -> str:
    """A line for each image and engine."""
    rows = [
        (
            one.image,
            f"{one.store} store",
            f"{one.layers - len(one.differing)} of {one.layers} layers the same",
            _digest_text(one),
            one.clock,
        )
        for one in found
    ]
    return format_table(rows)


def diagnostic(found: Reproduction) -> Diagnostic:
    """The failure of an image that is not the same."""
    message = f"image `{found.image}` is not the same when an engine with the {found.store} store builds it"
    if not found.differing:
        assert found.digests
        facts = tuple(zip(("first", "second"), found.digests, strict=True))
        differing = Table("the layers are the same, and not", tuple((line,) for line in found.documents))
        hint = (
            "an engine goes on with a layer that something else compressed before, a plain `docker build` say"
        )
        is_known = all(_COMPRESSED in line for line in found.documents)
        return Diagnostic(message, facts=facts, tables=(differing,), hint=hint if is_known else "")
    tables = []
    for layer in found.differing:
        rows = [(one.path, "; ".join(one.aspects)) for one in layer.files[:MOST_FILES]]
        if len(layer.files) > MOST_FILES:
            rows.append((f"and {len(layer.files) - MOST_FILES:,} more", ""))
        tables.append(Table(f"layer {layer.number}, of {layer.owner}", tuple(rows)))
    tables += [
        Table(f"{path} differs in", tuple((line,) for line in lines)) for path, lines in found.looked_into
    ]
    hint = "a step must not write the time, random numbers, or what it fetched without a sha256"
    has_other_content = any(file.has_other_content for layer in found.differing for file in layer.files)
    if found.first_store and not has_other_content:
        option = f"--image-store {found.first_store}"
        hint = f"each store records a step in its own way; `{option}` compares equal stores"
    return Diagnostic(message, tables=tuple(tables), hint=hint)


def unlocked(image: Image) -> tuple[str, ...]:
    """Which parts of an image are not in its lock, so that two builds may take different ones."""
    found = []
    if isinstance(image.base, RegistryBase) and not image.base.digest:
        found.append("its base has no digest")
    if not image.locks_apt and (
        image.installs_apt or image.toolchain or any(one.build_apt for one in image.stages)
    ):
        found.append("its Debian packages are what the mirrors have")
    found += [f"nobody knows the sha256 of `{one.file}`" for one in image.unpinned]
    if image.content.run:
        found.append("its own steps may fetch what they like")
    return tuple(found)


def _digest_text(found: Reproduction) -> str:
    if found.digests is None:
        return "digest not comparable: one store has none"
    return "digest the same" if len(set(found.digests)) == 1 else "another digest"


def _stored(image: Image, side: Side) -> StoredImage:
    found = side.engine.image(image.reference)
    assert found is not None, f"{image.reference} was just built"
    return found


def _differing(
    image: Image,
    first: tuple[Side, StoredImage],
    second: tuple[Side, StoredImage],
    numbers: Sequence[int],
    templates: Mapping[str, str],
) -> tuple[LayerDifference, ...]:
    one, other = (_entries(side, stored, numbers) for side, stored in (first, second))
    above = [owner.name for owner in layer_owners(image, templates)]
    below = max(len(first[1].layers) - len(above), 0)
    owners = [*[image.base_part.component or "the base"] * below, *above]
    return tuple(
        LayerDifference(
            number + 1,
            owners[number] if number < len(owners) else "nobody",
            (_digest_at(first[1], number), _digest_at(second[1], number)),
            layer_diff.differences(one.get(number, {}), other.get(number, {})),
        )
        for number in numbers
    )


def _digest_at(stored: StoredImage, number: int) -> str:
    return stored.layers[number] if number < len(stored.layers) else _MISSING


def _saved(side: Side, stored: StoredImage) -> SavedImage:
    with side.engine.export_image(stored.digest) as chunks:
        return image_archive.walk(chunks, lambda digest: None)


def _documents(one: SavedImage, other: SavedImage) -> tuple[str, ...]:
    """What differs of two images with the same layers: how these are compressed, or the configuration."""
    found = [
        f"layer {number} {_COMPRESSED}: {first.bytes:,} and {second.bytes:,} bytes"
        for number, (first, second) in enumerate(zip(one.layers, other.layers, strict=True), 1)
        if first.digest != second.digest
    ]
    first_config, second_config = json.loads(one.config), json.loads(other.config)
    for key in sorted({*first_config, *second_config}):
        values = first_config.get(key), second_config.get(key)
        if values[0] != values[1]:
            found.append(f"`{key}` of the configuration: {_cut(values[0])} and {_cut(values[1])}")
    return tuple(found) or ("the manifest's own words",)


def _cut(value: object) -> str:
    return json.dumps(value)[:_LONGEST_VALUE]


def _entries(side: Side, stored: StoredImage, numbers: Sequence[int]) -> dict[int, dict[str, LayerEntry]]:
    """What the layers of these numbers say of their files."""
    read: dict[str, dict[str, LayerEntry]] = {}

    def reader_of(digest: str) -> Reader:
        def take(layer: IO[bytes]) -> None:
            read[digest] = layer_diff.read(layer)

        return take

    with side.engine.export_image(stored.digest) as chunks:
        saved = image_archive.walk(chunks, reader_of)
    return {number: read[layer.digest] for number, layer in enumerate(saved.layers) if number in numbers}


def _looked_into(
    differing: Sequence[LayerDifference],
    first: tuple[Side, StoredImage],
    second: tuple[Side, StoredImage],
    folder: Path,
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """What diffoscope says of some files with another content; nothing where it is not installed."""
    program = shutil.which("diffoscope")
    paths = [file.path for layer in differing for file in layer.files if file.has_other_content]
    if program is None or not paths:
        return ()
    found = []
    for path in paths[:_LOOKED_INTO]:
        copies = [_copied(path, *side, folder / str(number)) for number, side in enumerate((first, second))]
        if not all(copies):
            continue
        words = [program, "--text=-", "--text-color=never", "--max-report-size=20000", *map(str, copies)]
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False)
        found.append((path, tuple(done.stdout.splitlines()[:_MOST_LINES])))
    return tuple(found)


def _copied(path: str, side: Side, stored: StoredImage, folder: Path) -> Path | None:
    """A file of an image on this machine; None where it is too large, or hidden by a higher layer."""
    with side.engine.container(ContainerSpec(image=stored.digest, command=("true",))) as container:
        sizes = container.sizes(path)
        if len(sizes) != 1 or sum(sizes.values()) > _LOOKED_INTO_BYTES:
            return None
        (content,) = container.read(path).values()
    folder.mkdir(parents=True, exist_ok=True)
    copy = folder / path.rpartition("/")[2]
    copy.write_bytes(content)
    return copy
