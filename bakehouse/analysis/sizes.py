"""Computes where the bytes of an image lie, from what its layers hold: by part, layer, folder and kind."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from bakehouse.analysis.image_archive import SavedImage
from bakehouse.analysis.layers import Contents, File
from bakehouse.catalog import trim as trimming
from bakehouse.catalog.trim import Choice

_MOSTLY = 0.9
"""A folder of which one folder below is so much is not told: that one is."""
_LIBRARY = re.compile(r"(?P<name>lib[^/]+?)(?:-[0-9a-f]{6,})*\.so(?:\.[0-9]+)*")
_LIBRARY_BYTES = 1024
"""What is smaller is a script that tells the linker of a library."""
_HEADER = re.compile(r".*\.(?:h|hh|hpp|hxx|cuh|inl)")
_SYMBOLS = re.compile(r".*\.(?:debug|dwo|dwp|pdb)|/usr/lib/debug/.*")
_PACKAGES = re.compile(r".*/(?:site-packages|dist-packages|python3(?:\.[0-9]+)?)/")


class FileKind(StrEnum):
    """What many files of images are, by their names."""

    STATIC = "static libraries"
    HEADERS = "headers"
    TESTS = "tests of Python packages"
    BYTE_CODE = "__pycache__"
    SYMBOLS = "debug symbols"


@dataclass(frozen=True, slots=True)
class LayerSize:
    """One layer."""

    owner: str
    """The component, or what of the recipe brought it."""
    digest: str
    stored: int
    unpacked: int
    files: int
    made_by: str


@dataclass(frozen=True, slots=True)
class PartSize:
    """All layers of one component, or of one of the recipe's own keys."""

    name: str
    layers: int
    stored: int
    unpacked: int


@dataclass(frozen=True, slots=True)
class Placed:
    """A file where it lies, and whose layer brought it."""

    path: str
    owner: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Copies:
    """Files that are the same, or that are called the same: the largest first."""

    name: str
    """The sha256 of their content, or the library's name."""
    files: tuple[Placed, ...]

    @property
    def again(self) -> int:
        """Bytes of all but the largest."""
        return sum(one.bytes for one in self.files[1:])


@dataclass(frozen=True, slots=True)
class FolderSize:
    """A folder with all below it."""

    path: str
    bytes: int
    files: int


@dataclass(frozen=True, slots=True)
class KindSize:
    """All files of a kind, and whose they are: the most bytes first."""

    kind: FileKind
    bytes: int
    files: int
    owners: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class TrimSize:
    """Files of one kind that a component can go without."""

    part: str
    kind: str
    is_taken: bool
    bytes: int
    """What could still go; what is out already has no weight in the image."""
    files: int
    because: str


@dataclass(frozen=True, slots=True)
class ImageSize:
    """Where the bytes of an image lie; lists begin with the largest, layers with the lowest."""

    image: str
    digest: str
    stored: int
    is_as_pushed: bool
    """Whether `stored` is what a push sends and a registry keeps; else layers are stored unpacked."""
    unpacked: int
    """Of all files of all layers."""
    parts: tuple[PartSize, ...]
    layers: tuple[LayerSize, ...]
    folders: tuple[FolderSize, ...]
    """Of what a container sees."""
    twice: tuple[Copies, ...]
    """The same content under several paths."""
    unseen: tuple[Placed, ...]
    """Files that a later layer replaces or removes."""
    libraries: tuple[Copies, ...]
    """Shared libraries of one name in several folders."""
    kinds: tuple[KindSize, ...]
    symbols: int
    """Of programs and shared libraries, the bytes of their symbol tables and debug information."""
    trims: tuple[TrimSize, ...] = ()
    """What its components can go without: what could go first."""


@dataclass(frozen=True, slots=True)
class _Seen:
    file: File
    owner: str


def size_of(
    image: str, digest: str, saved: SavedImage, owners: Sequence[str], contents: Mapping[str, Contents]
) -> ImageSize:
    """The sizes of an image; `owners` has a name for each layer, `contents` what each holds by its digest."""
    held = [contents[layer.digest] for layer in saved.layers]
    layers = tuple(
        LayerSize(owner, layer.digest, layer.bytes, one.bytes, len(one.files), made_by)
        for owner, layer, one, made_by in zip(owners, saved.layers, held, saved.made_by, strict=True)
    )
    seen, unseen = _merged(zip(owners, held, strict=True))
    return ImageSize(
        image=image,
        digest=digest,
        stored=saved.bytes,
        is_as_pushed=saved.is_as_pushed,
        unpacked=sum(one.unpacked for one in layers),
        parts=parts_of(layers),
        layers=layers,
        folders=_folders(seen),
        twice=_twice(seen),
        unseen=tuple(sorted(map(_placed, unseen), key=_largest)),
        libraries=_libraries(seen),
        kinds=_kinds(seen),
        symbols=sum(one.file.symbols for one in seen),
    )


def trims_of(
    choices: Iterable[tuple[str, Choice]], layers: Sequence[tuple[str, Contents]]
) -> tuple[TrimSize, ...]:
    """What could go of each component's layers, by what it says of itself."""
    found = []
    for part, one in choices:
        meant = [trimming.expression(pattern) for pattern in one.trim.files]
        sizes = [
            file.bytes
            for owner, contents in layers
            for file in (contents.files if owner == part else ())
            if any(pattern.fullmatch(file.path) for pattern in meant)
        ]
        trim = one.trim
        found.append(TrimSize(part, trim.kind, one.is_taken, sum(sizes), len(sizes), trim.reason))
    return tuple(sorted(found, key=lambda one: (one.is_taken, -one.bytes, one.part, one.kind)))


def parts_of(layers: Iterable[LayerSize]) -> tuple[PartSize, ...]:
    """Layers summed up by what they belong to."""
    owned: dict[str, list[LayerSize]] = {}
    for layer in layers:
        owned.setdefault(layer.owner, []).append(layer)
    parts = (
        PartSize(name, len(own), sum(one.stored for one in own), sum(one.unpacked for one in own))
        for name, own in owned.items()
    )
    return tuple(sorted(parts, key=lambda one: (-one.stored, one.name)))


def _merged(layers: Iterable[tuple[str, Contents]]) -> tuple[list[_Seen], list[_Seen]]:
    """The files that a container sees, and those that it doesn't."""
    names: dict[str, _Seen] = {}
    brought: list[_Seen] = []
    for owner, contents in layers:
        new = [_Seen(file, owner) for file in contents.files]
        if names:
            own = {path for one in new for path in (one.file.path, *one.file.links)}
            _hide(names, contents, own)
        brought += new
        names |= {path: one for one in new for path in (one.file.path, *one.file.links)}
    # A file of which one name is left is seen, under that name.
    left: dict[int, str] = {}
    for path, one in names.items():
        if path == one.file.path or id(one) not in left:
            left[id(one)] = path
    return (
        [_Seen(replace(one.file, path=left[id(one)]), one.owner) for one in brought if id(one) in left],
        [one for one in brought if id(one) not in left and one.file.bytes],
    )


def _hide(names: dict[str, _Seen], contents: Contents, own: set[str]) -> None:
    """Take away the names of lower layers that this one replaces or removes."""
    replaced = {*own, *contents.others, *contents.removed}
    # What was a file may be a folder now
    for path in replaced.union(*(_above(path) for path in own)):
        names.pop(path, None)
    # What was a folder may be a file now, or be gone with all below it.
    for path in [path for path in names if not replaced.isdisjoint(_above(path))]:
        del names[path]
    emptied = {*contents.emptied}
    for path in [path for path in names if emptied and not emptied.isdisjoint(_above(path))]:
        del names[path]


def _above(path: str) -> Iterable[str]:
    """The folders that a path lies in, the root last."""
    while path := path.rpartition("/")[0]:
        yield path
    yield "/"


def _placed(one: _Seen) -> Placed:
    return Placed(one.file.path, one.owner, one.file.bytes)


def _largest(one: Placed) -> tuple[int, str]:
    return (-one.bytes, one.path)


def folders_of(layers: Iterable[Contents]) -> tuple[FolderSize, ...]:
    """The folders of some layers' files by themselves."""
    return _folders([_Seen(file, "") for contents in layers for file in contents.files])


def _folders(seen: Iterable[_Seen]) -> tuple[FolderSize, ...]:
    sizes: dict[str, int] = defaultdict(int)
    counts: dict[str, int] = defaultdict(int)
    for one in seen:
        for folder in _above(one.file.path):
            sizes[folder] += one.file.bytes
            counts[folder] += 1
    mostly_below = {
        above
        for folder, size in sizes.items()
        if folder != "/" and size >= _MOSTLY * sizes[above := folder.rpartition("/")[0] or "/"]
    }
    found = (FolderSize(path, size, counts[path]) for path, size in sizes.items() if path not in mostly_below)
    return tuple(sorted((one for one in found if one.path != "/"), key=lambda one: (-one.bytes, one.path)))


def _twice(seen: Iterable[_Seen]) -> tuple[Copies, ...]:
    same: dict[str, list[Placed]] = {}
    for one in seen:
        if one.file.sha256:
            same.setdefault(one.file.sha256, []).append(_placed(one))
    return _copies(same)


def _libraries(seen: Iterable[_Seen]) -> tuple[Copies, ...]:
    """Libraries that lie in several folders; several versions in one folder are one library's."""
    named: dict[str, dict[str, Placed]] = {}
    for one in sorted(map(_placed, seen), key=_largest):
        folder, _, name = one.path.rpartition("/")
        if one.bytes >= _LIBRARY_BYTES and (match := _LIBRARY.fullmatch(name)):
            named.setdefault(match["name"], {}).setdefault(folder, one)
    return _copies({f"{name}.so": list(found.values()) for name, found in named.items()})


def _copies(groups: Mapping[str, list[Placed]]) -> tuple[Copies, ...]:
    found = [Copies(name, tuple(sorted(own, key=_largest))) for name, own in groups.items() if len(own) > 1]
    return tuple(sorted(found, key=lambda one: (-one.again, one.name)))


def kind_of(path: str) -> FileKind | None:
    """What a file is by its path, if it is of a kind that is summed up; a file has one kind at most."""
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


def _kinds(seen: Iterable[_Seen]) -> tuple[KindSize, ...]:
    found: dict[FileKind, list[_Seen]] = {}
    for one in seen:
        if kind := kind_of(one.file.path):
            found.setdefault(kind, []).append(one)
    sizes = []
    for kind, files in found.items():
        owners: dict[str, int] = defaultdict(int)
        for one in files:
            owners[one.owner] += one.file.bytes
        ordered = tuple(sorted(owners.items(), key=lambda item: (-item[1], item[0])))
        sizes.append(KindSize(kind, sum(owners.values()), len(files), ordered))
    return tuple(sorted(sizes, key=lambda one: (-one.bytes, one.kind)))
