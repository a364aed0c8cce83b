"""What `sizes` prints: tables for people, one object for programs."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace

from bakehouse.analysis.fleet_sizes import FleetSize, ReleaseDifference, SizeDifference
from bakehouse.analysis.sizes import Copies, ImageSize, Placed, TrimSize
from bakehouse.util.format import format_bytes, format_count, format_table

_STORED = {True: "as pushed", False: "as stored"}
_MOST_PLACES = 4
_MOST_WORDS = 30
"""Characters of a layer's instruction."""


def report(size: ImageSize, versions: Sequence[tuple[str, str]], top: int) -> str:
    """One image: parts, layers, folders, what is there twice or unseen, and the kinds of files."""
    told = dict(versions)
    parts = [
        (
            f"{part.name} {told.get(part.name, '')}".rstrip(),
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
    folders = [
        (format_bytes(one.bytes), format_count(one.files, "file"), one.path) for one in size.folders[:top]
    ]
    stored = _STORED[size.is_as_pushed]
    blocks = [
        f"{size.image}  {size.digest[:19]}  {format_bytes(size.stored)} {stored}, "
        f"{format_bytes(size.unpacked)} unpacked, {format_count(len(size.layers), 'layer')}\n",
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


def _block(head: str, what: str, rows: Sequence[Sequence[str]], form: str) -> str:
    return f"{head}: {what}\n{format_table(rows, align=form, indent='  ')}" if rows else ""


def _kinds(size: ImageSize) -> str:
    rows = [
        (one.kind.value, format_bytes(one.bytes), format_count(one.files, "file"), _owners(one.owners))
        for one in size.kinds
    ]
    if size.symbols:
        rows.append(("symbol tables in programs and libraries", format_bytes(size.symbols), "", ""))
    return _block("kind of file", "unpacked", rows, "lrrl")


def _trims(found: Sequence[TrimSize]) -> str:
    """What could go, and what went: where a recipe's `trim` says nothing, by what is known of each."""
    rows = [
        (
            f"{one.kind} of {one.part}",
            "out" if one.is_taken else format_bytes(one.bytes),
            "" if one.is_taken else format_count(one.files, "file"),
            one.because,
        )
        for one in found
    ]
    return _block("trim", "what is out, and what `trim` could take out, unpacked", rows, "lrrl")


def _owners(owners: Sequence[tuple[str, int]]) -> str:
    told = [f"{name} {format_bytes(number)}" for name, number in owners[:3]]
    return ", ".join([*told, *(["…"] if len(owners) > 3 else [])])


def _copies(head: str, found: Sequence[Copies], top: int, *, by_name: bool) -> str:
    if not found:
        return ""
    again = sum(one.again for one in found)
    count = sum(len(one.files) - 1 for one in found)
    if by_name:
        lines = [f"{head}: {len(found)}\n"]
    else:
        lines = [
            f"{head}: {format_bytes(again)} in {format_count(count, 'file')} of which there is one already\n"
        ]
    for one in found[:top]:
        name = one.name if by_name else f"{len(one.files)} x {format_bytes(one.files[0].bytes)}"
        lines.append(f"  {name}\n")
        places = [f"{_size_if(by_name, file)}{file.path} ({file.owner})" for file in one.files[:_MOST_PLACES]]
        more = len(one.files) - len(places)
        lines += [f"    {place}\n" for place in places] + ([f"    and {more} more\n"] if more else [])
    return "".join(lines) + _more(len(found), top)


def _size_if(wanted: bool, file: Placed) -> str:
    return f"{format_bytes(file.bytes).rjust(9)}  " if wanted else ""


def _unseen(found: Sequence[Placed], top: int) -> str:
    if not found:
        return ""
    total = format_bytes(sum(one.bytes for one in found))
    rows = [(format_bytes(one.bytes), f"{one.path} ({one.owner})") for one in found[:top]]
    files = format_count(len(found), "file")
    head = f"shipped and never seen: {total} in {files} that a later layer replaces or removes\n"
    return head + format_table(rows, align="rl", indent="  ") + _more(len(found), top)


def _more(count: int, top: int) -> str:
    return f"  and {count - top:,} more\n" if count > top else ""


def fleet(sizes: Sequence[ImageSize], found: FleetSize, top: int) -> str:
    """Several images: each in a line, and what they store once."""
    stored = _STORED[all(size.is_as_pushed for size in sizes)]
    images = [
        (
            size.image,
            format_bytes(size.stored),
            format_bytes(size.unpacked),
            format_count(len(size.layers), "layer"),
            f"{format_bytes(sum(one.again for one in size.twice))} twice",
            f"{format_bytes(sum(one.bytes for one in size.unseen))} unseen",
        )
        for size in sizes
    ]
    common = [one for one in found.layers if len(one.images) == len(sizes)]
    layers = [
        (
            f"{len(one.images)} images",
            one.layer.owner,
            one.layer.digest[:19],
            format_bytes(one.layer.stored),
            format_bytes(one.layer.unpacked),
            _few(one.images) if len(one.images) < len(sizes) else "all",
        )
        for one in found.layers[:top]
    ]
    share = found.once_stored / found.all_stored if found.all_stored else 1.0
    return "\n".join(
        (
            _block("image", f"{stored}, unpacked", images, "lrrrrr"),
            f"all layers of all images: {format_bytes(found.all_stored)} {stored}, "
            f"{format_bytes(found.all_unpacked)} unpacked\n"
            f"each layer once: {format_bytes(found.once_stored)} {stored} ({share:.0%}), "
            f"{format_bytes(found.once_unpacked)} unpacked\n"
            f"in every image: {format_count(len(common), 'layer')}, "
            f"{format_bytes(sum(one.layer.stored for one in common))} {stored}\n",
            _block("layer", f"{stored}, unpacked", layers, "rllrrl") + _more(len(found.layers), top),
        )
    )


def _few(names: Sequence[str]) -> str:
    told = ", ".join(names[:3])
    return told if len(names) <= 3 else f"{told} and {len(names) - 3} more"


def compared(found: SizeDifference) -> str:
    """An image beside another, part by part."""
    rows = [
        (one.name, _change(one.stored), format_bytes(one.before.stored), "→", format_bytes(one.after.stored),
         f"{_change(one.unpacked)} unpacked")
        for one in found.parts
    ]  # fmt: skip
    same = f"{format_count(found.shared_layers, 'layer')} of {format_bytes(found.shared_stored)} in both\n"
    head = (
        f"{found.before} → {found.after}: {_change(found.stored)}, {_change(found.unpacked)} unpacked; {same}"
    )
    return head + (
        format_table(rows, align="lrrlrr", indent="  ") if rows else "  every part weighs the same\n"
    )


def released(found: ReleaseDifference) -> str:
    """An image beside its last release."""
    head = f"{found.image}, released {found.date} ({found.digest[:19]})"
    if found.is_same:
        return f"{head}: the same image\n"
    change = f"{format_bytes(found.before)}; what it weighs now as pushed is not known on this engine"
    if found.after is not None:
        sizes = f"{format_bytes(found.before)} → {format_bytes(found.after)}"
        change = f"{sizes} ({_change(found.after - found.before)})"
    rows = [(name, before or "-", "→", after or "-") for name, before, after in found.parts]
    same = (
        "  every part has the version it had: how one is made has changed, or what the recipe itself adds\n"
    )
    versions = format_table(rows, align="lrll", indent="  ") if rows else same
    note = "  the ledger has the bytes of a release as a whole: which part weighs more is not known from it\n"
    if found.anew is not None:
        stored = ", ".join(f"{one.name} {format_bytes(one.stored)}" for one in found.anew) or "none"
        note = f"  layers that the release has not: {stored}\n"
    return f"{head}: {change}\n{versions}{note}"


def _change(number: int) -> str:
    return f"{'+' if number > 0 else ''}{format_bytes(number)}" if number else "no change"


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
