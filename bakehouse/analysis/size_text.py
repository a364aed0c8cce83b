"""Output of `sizes`: tables as text, and everything as JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace

from bakehouse.analysis.sizes import ImageSize, TrimSize
from bakehouse.util.format import format_bytes, format_count, format_table
from bakehouse.util.terminal import clip

_MAX_NAMES = 3
_MAX_CHARACTERS = 30
"""Length of a layer's instruction."""


def report(size: ImageSize, versions: Sequence[tuple[str, str]], limit: int) -> str:
    """Return the sizes of one image: components, layers, directories and kinds of files."""
    version_of = dict(versions)
    components = [
        (
            f"{part.name} {version_of.get(part.name, '')}".rstrip(),
            format_bytes(part.stored),
            format_bytes(part.unpacked),
        )
        for part in size.parts
    ]
    layers = [
        (
            str(number),
            layer.owner,
            layer.digest[:19],
            format_bytes(layer.stored),
            format_bytes(layer.unpacked),
            format_count(layer.files, "file"),
            _instruction(layer.made_by),
        )
        for number, layer in enumerate(size.layers, 1)
    ]
    directories = [
        (format_bytes(directory.bytes), format_count(directory.files, "file"), directory.path)
        for directory in size.folders[:limit]
    ]
    blocks = [
        f"{size.image}  {size.digest[:19]}  {format_bytes(size.stored)} as pushed, "
        f"{format_bytes(size.unpacked)} unpacked, {format_count(len(size.layers), 'layer')}\n",
        _block("component", "as pushed, unpacked", components, "lrr"),
        _block("layer", "as pushed, unpacked", layers, "rllrrrl"),
        _block(
            f"directory (the largest {len(directories)})", "unpacked, with subdirectories", directories, "rrl"
        ),
        _kinds(size),
        _trims(size.trims),
    ]
    return "\n".join(block for block in blocks if block)


def _instruction(made_by: str) -> str:
    """Return the beginning of a layer's instruction."""
    text = " ".join(made_by.split()).replace("/bin/sh -c ", "").removesuffix(" # buildkit")
    return clip(text, _MAX_CHARACTERS)


def _block(title: str, columns: str, rows: Sequence[Sequence[str]], align: str) -> str:
    return f"{title}: {columns}\n{format_table(rows, align=align, indent='  ')}" if rows else ""


def _kinds(size: ImageSize) -> str:
    rows = [
        (kind.kind.value, format_bytes(kind.bytes), format_count(kind.files, "file"), _owners(kind.owners))
        for kind in size.kinds
    ]
    return _block("kind of file", "unpacked", rows, "lrrl")


def _owners(owners: Sequence[tuple[str, int]]) -> str:
    texts = [f"{name} {format_bytes(size)}" for name, size in owners[:_MAX_NAMES]]
    return ", ".join([*texts, *(["…"] if len(owners) > _MAX_NAMES else [])])


def _trims(trims: Sequence[TrimSize]) -> str:
    """Return the removed and removable files of components, each with the reason."""
    rows = [
        (
            f"{trim.kind} of {trim.part}",
            "removed" if trim.is_taken else format_bytes(trim.bytes),
            "" if trim.is_taken else format_count(trim.files, "file"),
            trim.because,
        )
        for trim in trims
    ]
    return _block("trim", "removed, or removable with `trim`, unpacked", rows, "lrrl")


def table(sizes: Sequence[ImageSize]) -> str:
    """Return a line for each of several images."""
    rows = [
        (
            size.image,
            format_bytes(size.stored),
            format_bytes(size.unpacked),
            format_count(len(size.layers), "layer"),
        )
        for size in sizes
    ]
    return _block("image", "as pushed, unpacked", rows, "lrrr")


def as_json(sizes: Sequence[ImageSize], limit: int) -> str:
    """Return everything as one JSON object; lists of directories have `limit` items."""
    images = [asdict(replace(size, folders=size.folders[:limit])) for size in sizes]
    return json.dumps({"images": images}, indent=2, sort_keys=True) + "\n"
