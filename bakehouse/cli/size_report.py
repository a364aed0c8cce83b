"""The `sizes` task: where the bytes of built images are."""

import sys
from collections.abc import Sequence

from bakehouse.analysis import fleet_sizes, size_text
from bakehouse.analysis.fleet_sizes import ReleaseDifference, SizeDifference
from bakehouse.analysis.size_check import SizeReader, stored_images
from bakehouse.analysis.size_log import record_size
from bakehouse.analysis.sizes import ImageSize, PartSize, parts_of
from bakehouse.builder.pack import Packer
from bakehouse.engine.open_engine import open_engine
from bakehouse.errors import UsageError
from bakehouse.ledger.releases import ReleaseRecord
from bakehouse.ledger.store import open_ledger
from bakehouse.plan.model import Image
from bakehouse.plan.workspace import Selection, Workspace, select
from bakehouse.util.oci import Digest
from bakehouse.util.suggest import suggestion
from bakehouse.util.terminal import Reporter, is_verbose

_MAX_ITEMS = 15
RELEASE = "release"
"""The value of `--against` for the last release of the same image."""


def run(
    selection: Selection,
    report: Reporter,
    *,
    against: str = "",
    json: bool = False,
) -> str:
    """Return the report of one image, or a comparison with another image or with the last release."""
    limit = sys.maxsize if is_verbose() else _MAX_ITEMS
    workspace, planned = selection.workspace, selection.plan.images
    others = _others(workspace, against, planned)
    with open_engine(report) as engine:
        packer = Packer(engine, workspace.project.cache)
        stored = stored_images(packer, planned, selection.patterns, report)
        first = stored[0].image
        if against and len(stored) > 1:
            raise UsageError(f"`--against` needs exactly one image, got {len(stored)}")
        released = _releases(workspace, first.name)[-1:] if against == RELEASE else ()
        reader = SizeReader(packer, workspace.templates, report)
        sizes = [reader.size(built) for built in stored]
        for size, built in zip(sizes, stored, strict=True):
            record_size(size, built.image.key, workspace.project.state)
        differences: list[SizeDifference | ReleaseDifference] = []
        if others:
            compared = stored_images(packer, others, [against], report)
            differences += [fleet_sizes.size_difference(reader.size(built), sizes[0]) for built in compared]
        for record in released:
            new_layers = _new_layers(packer, sizes[0], record)
            differences.append(since_release(sizes[0], _versions(first), record, new_layers))
    shared = fleet_sizes.fleet_size(sizes) if len(sizes) > 1 else None
    if json:
        return size_text.as_json(sizes, shared, limit, differences)
    return "".join(map(_compared, differences)) or _text(sizes, shared, first, limit)


def _others(workspace: Workspace, against: str, images: Sequence[Image]) -> tuple[Image, ...]:
    """Return the image to compare with, if any. Raises UsageError if it is not one other image."""
    if against in ("", RELEASE):
        return ()
    if suggestion(against, [RELEASE, *workspace.recipes]) == f"did you mean `{RELEASE}`?":
        raise UsageError(f"unknown image `{against}`", hint=f"did you mean `{RELEASE}`?")
    others = select(workspace, [against]).plan.images
    if len(others) > 1:
        raise UsageError(
            f"`--against {against}` matches {len(others)} images",
            hint="name one of them; `bake list` lists them",
        )
    if [image.name for image in others] == [image.name for image in images]:
        raise UsageError(
            f"`--against {against}` is the image itself",
            hint=f"`--against {RELEASE}` compares it with its last release",
        )
    return others


def _new_layers(packer: Packer, size: ImageSize, record: ReleaseRecord) -> tuple[PartSize, ...] | None:
    """Return the contents of layers that a release lacks; None if it was published from another machine."""
    released = packer.known_layers(Digest(record.config))
    now = packer.known_layers(Digest(size.config))
    if released is None or now is None:
        return None
    layers = zip(size.layers, now, strict=True)
    return parts_of(layer for layer, content in layers if content not in released)


def _text(sizes: Sequence[ImageSize], shared: fleet_sizes.FleetSize | None, image: Image, limit: int) -> str:
    if shared:
        return size_text.fleet(sizes, shared, limit)
    return size_text.report(sizes[0], _versions(image), limit)


def _compared(difference: SizeDifference | ReleaseDifference) -> str:
    if isinstance(difference, SizeDifference):
        return size_text.compared(difference)
    return size_text.released(difference)


def _versions(image: Image) -> tuple[tuple[str, str], ...]:
    return tuple((part.component, part.version) for part in image.all_parts)


def _releases(workspace: Workspace, name: str) -> tuple[ReleaseRecord, ...]:
    """Return the releases of an image. Raises UsageError if there are none."""
    records = open_ledger(workspace.project).records(name)
    releases = tuple(record for record in records if not record.candidate)
    if not releases:
        raise UsageError(
            f"image `{name}` was never released", hint="`--against IMAGE` compares it with another image"
        )
    return releases


def since_release(
    size: ImageSize,
    versions: Sequence[tuple[str, str]],
    record: ReleaseRecord,
    anew: tuple[PartSize, ...] | None = None,
) -> ReleaseDifference:
    """Compare the size of an image with components in these `versions` with a release."""
    old = {part.component: part.version for part in record.parts}
    new = dict(versions)
    changed = [(name, old.get(name, ""), new.get(name, "")) for name in {**old, **new}]
    return ReleaseDifference(
        image=size.image,
        date=record.date,
        digest=record.digest,
        before=record.bytes,
        after=size.stored,
        is_same=record.config == size.config,
        parts=tuple((name, before, after) for name, before, after in changed if before != after),
        anew=anew,
    )
