"""Sizes of an image by component, layer, directory and kind of file, computed from its layers."""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from bakehouse.analysis.layers import LayerContents, parents
from bakehouse.builder.pack import PackedImage
from bakehouse.catalog.trim import TrimChoice, path_pattern
from bakehouse.registry.manifest import digest_of

_MOSTLY = 0.9
"""A directory is left out if one subdirectory has this share of it. The subdirectory is listed instead."""
_HEADER = re.compile(r".*\.(?:h|hh|hpp|hxx|cuh|inl)")
_SYMBOLS = re.compile(r".*\.(?:debug|dwo|dwp|pdb)|/usr/lib/debug/.*")
_PACKAGES = re.compile(r".*/(?:site-packages|dist-packages|python3(?:\.[0-9]+)?)/")


class FileKind(StrEnum):
    """Kinds of files that are recognized by their names."""

    STATIC = "static libraries"
    HEADERS = "headers"
    TESTS = "tests of Python packages"
    BYTE_CODE = "__pycache__"
    SYMBOLS = "debug symbols"


@dataclass(frozen=True, slots=True)
class LayerSize:
    """The size of one layer."""

    owner: str
    """The component or recipe key that made the layer."""
    digest: str
    stored: int
    unpacked: int
    files: int
    made_by: str


@dataclass(frozen=True, slots=True)
class PartSize:
    """The size of all layers of one component or recipe key."""

    name: str
    layers: int
    stored: int
    unpacked: int


@dataclass(frozen=True, slots=True)
class DirectorySize:
    """The size of a directory with all subdirectories."""

    path: str
    bytes: int
    files: int


@dataclass(frozen=True, slots=True)
class KindSize:
    """The size of all files of a kind, and of each owner's, largest first."""

    kind: FileKind
    bytes: int
    files: int
    owners: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class TrimSize:
    """Files of one kind that a component does not need."""

    part: str
    kind: str
    is_taken: bool
    bytes: int
    """The removable size; files that are removed already are not in the image."""
    files: int
    because: str


@dataclass(frozen=True, slots=True)
class ImageSize:
    """The sizes of an image; lists start with the largest item, `layers` with the lowest."""

    image: str
    digest: str
    """Digest of its manifest, which registries know it by."""
    config: str
    """Digest of its configuration."""
    stored: int
    """The size in a registry."""
    unpacked: int
    """The size of all files of all layers."""
    parts: tuple[PartSize, ...]
    layers: tuple[LayerSize, ...]
    folders: tuple[DirectorySize, ...]
    """Directories of all layers, with all subdirectories."""
    kinds: tuple[KindSize, ...]
    trims: tuple[TrimSize, ...] = ()
    """Files that components do not need: removable ones first."""


def size_of(
    image: str,
    packed: PackedImage,
    owners: Sequence[str],
    made_by: Sequence[str],
    contents: Sequence[LayerContents],
) -> ImageSize:
    """Return the sizes of an image, by the owner, the instruction and the contents of each layer."""
    layers = tuple(
        LayerSize(owner, layer.digest, layer.bytes, content.bytes, len(content.files), instruction)
        for owner, layer, content, instruction in zip(owners, packed.layers, contents, made_by, strict=True)
    )
    return ImageSize(
        image=image,
        digest=packed.manifest.digest,
        config=digest_of(packed.config),
        stored=packed.manifest.bytes,
        unpacked=sum(layer.unpacked for layer in layers),
        parts=parts_of(layers),
        layers=layers,
        folders=directories_of(contents),
        kinds=_kinds(zip(owners, contents, strict=True)),
    )


def trims_of(
    choices: Iterable[tuple[str, TrimChoice]], layers: Sequence[tuple[str, LayerContents]]
) -> tuple[TrimSize, ...]:
    """Return the size of files that components declare as not needed."""
    trims = []
    for part, choice in choices:
        patterns = [path_pattern(pattern) for pattern in choice.trim.files]
        sizes = [
            file.bytes
            for owner, contents in layers
            for file in (contents.files if owner == part else ())
            if any(pattern.fullmatch(file.path) for pattern in patterns)
        ]
        trim = choice.trim
        trims.append(TrimSize(part, trim.kind, choice.is_taken, sum(sizes), len(sizes), trim.reason))
    return tuple(sorted(trims, key=lambda size: (size.is_taken, -size.bytes, size.part, size.kind)))


def parts_of(layers: Iterable[LayerSize]) -> tuple[PartSize, ...]:
    """Return the total size of the layers of each owner."""
    owned: dict[str, list[LayerSize]] = {}
    for layer in layers:
        owned.setdefault(layer.owner, []).append(layer)
    parts = (
        PartSize(name, len(own), sum(layer.stored for layer in own), sum(layer.unpacked for layer in own))
        for name, own in owned.items()
    )
    return tuple(sorted(parts, key=lambda part: (-part.stored, part.name)))


def directories_of(layers: Iterable[LayerContents]) -> tuple[DirectorySize, ...]:
    """Return the directories of some layers, independent of other layers."""
    sizes: dict[str, int] = defaultdict(int)
    counts: dict[str, int] = defaultdict(int)
    for file in (file for contents in layers for file in contents.files):
        for directory in parents(file.path):
            sizes[directory] += file.bytes
            counts[directory] += 1
    mostly_below = {
        above
        for directory, size in sizes.items()
        if directory != "/" and size >= _MOSTLY * sizes[above := directory.rpartition("/")[0] or "/"]
    }
    directories = [
        DirectorySize(path, size, counts[path])
        for path, size in sizes.items()
        if path != "/" and path not in mostly_below
    ]
    return tuple(sorted(directories, key=lambda directory: (-directory.bytes, directory.path)))


def kind_of(path: str) -> FileKind | None:
    """Return the kind of a file by its path, or None."""
    below = _PACKAGES.match(path)
    if below and {"test", "tests"} & {*path[below.end() :].split("/")[:-1]}:
        return FileKind.TESTS
    if "/__pycache__/" in path:
        return FileKind.BYTE_CODE
    if path.endswith(".a"):
        return FileKind.STATIC
    if _SYMBOLS.fullmatch(path):
        return FileKind.SYMBOLS
    if _HEADER.fullmatch(path) or path.startswith("/usr/include/"):
        return FileKind.HEADERS
    return None


def _kinds(layers: Iterable[tuple[str, LayerContents]]) -> tuple[KindSize, ...]:
    by_kind: dict[FileKind, dict[str, list[int]]] = {}
    for owner, contents in layers:
        for file in contents.files:
            if kind := kind_of(file.path):
                by_kind.setdefault(kind, {}).setdefault(owner, []).append(file.bytes)
    sizes = [
        KindSize(
            kind,
            sum(map(sum, owners.values())),
            sum(map(len, owners.values())),
            tuple(
                sorted(((name, sum(own)) for name, own in owners.items()), key=lambda own: (-own[1], own[0]))
            ),
        )
        for kind, owners in by_kind.items()
    ]
    return tuple(sorted(sizes, key=lambda size: (-size.bytes, size.kind)))
