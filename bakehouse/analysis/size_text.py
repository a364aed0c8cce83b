"""What `size-report` prints: tables for people, one object for programs."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace

from bakehouse.analysis.fleet_sizes import FleetSize, ReleaseDifference, SizeDifference
from bakehouse.analysis.sizes import Copies, ImageSize, Placed, TrimSize

_STORED = {True: "as pushed", False: "as stored"}
_MOST_PLACES = 4
_MOST_WORDS = 30
"""Characters of a layer's instruction."""


def size_text(number: int) -> str:
    """`1.24 GB`, `83.2 MB`, `5 kB`, `191 bytes`."""
    if abs(number) < 10**3:
        return f"{number} bytes"
    if abs(number) >= 10**9:
        return f"{number / 10**9:.2f} GB"
    return f"{number / 10**6:.1f} MB" if abs(number) >= 10**5 else f"{number / 10**3:.0f} kB"


def report(size: ImageSize, versions: Sequence[tuple[str, str]], top: int) -> str:
    """One image: parts, layers, folders, what is there twice or unseen, and the kinds of files."""
    told = dict(versions)
    parts = [
        (f"{part.name} {told.get(part.name, '')}".rstrip(), size_text(part.stored), size_text(part.unpacked))
        for part in size.parts
    ]
    layers = [
        (
            str(number),
            layer.owner,
            layer.digest[:19],
            size_text(layer.stored),
            size_text(layer.unpacked),
            _files(layer.files),
            _instruction(layer.made_by),
        )
        for number, layer in enumerate(size.layers, 1)
    ]
    folders = [(size_text(one.bytes), _files(one.files), one.path) for one in size.folders[:top]]
    stored = _STORED[size.is_as_pushed]
    blocks = [
        f"{size.image}  {size.digest[:19]}  {size_text(size.stored)} {stored}, "
        f"{size_text(size.unpacked)} unpacked, {_layers(len(size.layers))}\n",
        _block("part", f"{stored}, unpacked", parts, "lrr"),
        _block("layer", f"{stored}, unpacked", layers, "rllrrrl"),
        _block(f"folder (the largest {len(folders)})", "unpacked, with all below it", folders, "rrl"),
        _kinds(size),
        _trims(size.trims),
        _copies("the same file more than once", size.twice, top, by_name=False),
        _unseen(size.unseen, top),
        _copies("a library of one name in several folders", size.libraries, top, by_name=True),
    ]
    if not size.is_as_pushed:
        blocks.append("this engine stores layers unpacked: what a push sends is not known here\n")
    return "\n".join(block for block in blocks if block)


def _instruction(made_by: str) -> str:
    """The beginning of what made a layer."""
    words = " ".join(made_by.split()).replace("/bin/sh -c ", "").removesuffix(" # buildkit")
    return words if len(words) <= _MOST_WORDS else f"{words[: _MOST_WORDS - 1]}…"


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count:,} files"


def _layers(count: int) -> str:
    return "1 layer" if count == 1 else f"{count} layers"


def _block(head: str, what: str, rows: Sequence[Sequence[str]], form: str) -> str:
    return f"{head}: {what}\n{_aligned(rows, form)}" if rows else ""


def _aligned(rows: Sequence[Sequence[str]], form: str) -> str:
    """Rows of cells, each column to the left or to the right as `form` says."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(form))] if rows else []
    lines = (
        "  ".join(
            cell.rjust(width) if side == "r" else cell.ljust(width)
            for cell, width, side in zip(row, widths, form, strict=True)
        )
        for row in rows
    )
    return "".join(f"  {line.rstrip()}\n" for line in lines)


def _kinds(size: ImageSize) -> str:
    rows = [
        (one.kind.value, size_text(one.bytes), _files(one.files), _owners(one.owners)) for one in size.kinds
    ]
    if size.symbols:
        rows.append(("symbol tables in programs and libraries", size_text(size.symbols), "", ""))
    return _block("kind of file", "unpacked", rows, "lrrl")


def _trims(found: Sequence[TrimSize]) -> str:
    """What could go, and what went: where a recipe's `trim` says nothing, by what is known of each."""
    rows = [
        (
            f"{one.kind} of {one.part}",
            "out" if one.is_taken else size_text(one.bytes),
            "" if one.is_taken else _files(one.files),
            one.because,
        )
        for one in found
    ]
    return _block("trim", "what is out, and what `trim` could take out, unpacked", rows, "lrrl")


def _owners(owners: Sequence[tuple[str, int]]) -> str:
    told = [f"{name} {size_text(number)}" for name, number in owners[:3]]
    return ", ".join([*told, *(["…"] if len(owners) > 3 else [])])


def _copies(head: str, found: Sequence[Copies], top: int, *, by_name: bool) -> str:
    if not found:
        return ""
    again = sum(one.again for one in found)
    count = sum(len(one.files) - 1 for one in found)
    if by_name:
        lines = [f"{head}: {len(found)}\n"]
    else:
        lines = [f"{head}: {size_text(again)} in {_files(count)} of which there is one already\n"]
    for one in found[:top]:
        name = one.name if by_name else f"{len(one.files)} x {size_text(one.files[0].bytes)}"
        lines.append(f"  {name}\n")
        places = [f"{_size_if(by_name, file)}{file.path} ({file.owner})" for file in one.files[:_MOST_PLACES]]
        more = len(one.files) - len(places)
        lines += [f"    {place}\n" for place in places] + ([f"    and {more} more\n"] if more else [])
    return "".join(lines) + _more(len(found), top)


def _size_if(wanted: bool, file: Placed) -> str:
    return f"{size_text(file.bytes).rjust(9)}  " if wanted else ""


def _unseen(found: Sequence[Placed], top: int) -> str:
    if not found:
        return ""
    total = size_text(sum(one.bytes for one in found))
    rows = [(size_text(one.bytes), f"{one.path} ({one.owner})") for one in found[:top]]
    head = f"shipped and never seen: {total} in {_files(len(found))} that a later layer replaces or removes\n"
    return head + _aligned(rows, "rl") + _more(len(found), top)


def _more(count: int, top: int) -> str:
    return f"  and {count - top:,} more\n" if count > top else ""


def fleet(sizes: Sequence[ImageSize], found: FleetSize, top: int) -> str:
    """Several images: each in a line, and what they store once."""
    stored = _STORED[all(size.is_as_pushed for size in sizes)]
    images = [
        (
            size.image,
            size_text(size.stored),
            size_text(size.unpacked),
            _layers(len(size.layers)),
            f"{size_text(sum(one.again for one in size.twice))} twice",
            f"{size_text(sum(one.bytes for one in size.unseen))} unseen",
        )
        for size in sizes
    ]
    common = [one for one in found.layers if len(one.images) == len(sizes)]
    layers = [
        (
            f"{len(one.images)} images",
            one.layer.owner,
            one.layer.digest[:19],
            size_text(one.layer.stored),
            size_text(one.layer.unpacked),
            _few(one.images) if len(one.images) < len(sizes) else "all",
        )
        for one in found.layers[:top]
    ]
    share = found.once_stored / found.all_stored if found.all_stored else 1.0
    return "\n".join(
        (
            _block("image", f"{stored}, unpacked", images, "lrrrrr"),
            f"all layers of all images: {size_text(found.all_stored)} {stored}, "
            f"{size_text(found.all_unpacked)} unpacked\n"
            f"each layer once: {size_text(found.once_stored)} {stored} ({share:.0%}), "
            f"{size_text(found.once_unpacked)} unpacked\n"
            f"in every image: {_layers(len(common))}, "
            f"{size_text(sum(one.layer.stored for one in common))} {stored}\n",
            _block("layer", f"{stored}, unpacked", layers, "rllrrl") + _more(len(found.layers), top),
        )
    )


def _few(names: Sequence[str]) -> str:
    told = ", ".join(names[:3])
    return told if len(names) <= 3 else f"{told} and {len(names) - 3} more"


def compared(found: SizeDifference) -> str:
    """An image beside another, part by part."""
    rows = [
        (one.name, _change(one.stored), size_text(one.before.stored), "→", size_text(one.after.stored),
         f"{_change(one.unpacked)} unpacked")
        for one in found.parts
    ]  # fmt: skip
    same = f"{_layers(found.shared_layers)} of {size_text(found.shared_stored)} in both\n"
    head = (
        f"{found.before} → {found.after}: {_change(found.stored)}, {_change(found.unpacked)} unpacked; {same}"
    )
    return head + (_aligned(rows, "lrrlrr") if rows else "  every part weighs the same\n")


def released(found: ReleaseDifference) -> str:
    """An image beside its last release."""
    head = f"{found.image}, released {found.date} ({found.digest[:19]})"
    if found.is_same:
        return f"{head}: the same image\n"
    change = f"{size_text(found.before)}; what it weighs now as pushed is not known on this engine"
    if found.after is not None:
        change = (
            f"{size_text(found.before)} → {size_text(found.after)} ({_change(found.after - found.before)})"
        )
    rows = [(name, before or "-", "→", after or "-") for name, before, after in found.parts]
    same = (
        "  every part has the version it had: how one is made has changed, or what the recipe itself adds\n"
    )
    versions = _aligned(rows, "lrll") if rows else same
    note = "  the ledger has the bytes of a release as a whole: which part weighs more is not known from it\n"
    if found.anew is not None:
        stored = ", ".join(f"{one.name} {size_text(one.stored)}" for one in found.anew) or "none"
        note = f"  layers that the release has not: {stored}\n"
    return f"{head}: {change}\n{versions}{note}"


def _change(number: int) -> str:
    return f"{'+' if number > 0 else ''}{size_text(number)}" if number else "no change"


def as_json(
    sizes: Sequence[ImageSize],
    found: FleetSize | None,
    top: int,
    against: Iterable[SizeDifference | ReleaseDifference] = (),
) -> str:
    """Everything as one object; lists of files and folders have `top` entries."""
    document = {
        "images": [
            asdict(
                replace(
                    size,
                    folders=size.folders[:top],
                    twice=size.twice[:top],
                    unseen=size.unseen[:top],
                    libraries=size.libraries[:top],
                )
            )
            | {
                "twice_bytes": sum(one.again for one in size.twice),
                "unseen_bytes": sum(one.bytes for one in size.unseen),
            }
            for size in sizes
        ],
        "fleet": asdict(found) if found else None,
        "against": [asdict(one) for one in against],
    }
    return json.dumps(document, indent=2, sort_keys=True) + "\n"
