"""Rows of the map from steps to layers, from the results of builds and rehearsals."""

from collections.abc import Collection, Iterator

from bakehouse.evidence.step_layers import StepLayer
from bakehouse.plan.image_layer import KEY_DIGITS, ImageLayer
from bakehouse.plan.model import Image
from bakehouse.plan.unpinned import unpinned_inputs
from bakehouse.registry.manifest import content_id
from bakehouse.util.json_reader import parse_json
from bakehouse.util.oci import ContentId

_STEPS = ("ADD ", "COPY ", "RUN ", "WORKDIR ")


def built_rows(image: Image, config: bytes) -> tuple[StepLayer, ...]:
    """Return what a build says of the steps of an image, by the configuration of the result.

    Steps that read what nothing pins have no known result; an image with such steps has no known content.
    """
    keys, platform = image.layer_keys, image.platform
    digests = _step_digests(config)[-len(keys) :] if keys else []
    if len(digests) < len(keys):
        return ()
    rows = [
        StepLayer(layer.key, platform, digest)
        for layer, digest in zip(keys, digests, strict=True)
        if layer.key and layer.is_pinned and digest
    ]
    if not unpinned_inputs(image) and all(layer.is_pinned for layer in keys):
        rows.append(content_row(image, content_id(config)))
    return tuple(rows)


def content_row(image: Image, content: ContentId) -> StepLayer:
    return StepLayer(image.key[:KEY_DIGITS], image.platform, content)


def rehearsed_rows(image: Image, base: str, stubs: Collection[str]) -> tuple[StepLayer, ...]:
    """Return what a rehearsal says of the steps of an image, whose `base` is a stub, as are components."""

    def used(layer: ImageLayer) -> Iterator[str]:
        for name in stubs:
            if any(stage == name or stage.startswith(f"{name}-") for stage in layer.stages):
                yield name

    rows = [
        StepLayer(layer.key, image.platform, stubs=tuple(sorted({base, *used(layer)})))
        for layer in image.layer_keys
        if layer.key
    ]
    own = StepLayer(image.recipe_key[:KEY_DIGITS], image.platform, stubs=tuple(sorted({base, *stubs})))
    return (*rows, own) if not rows else tuple(rows)


def _step_digests(config: bytes) -> list[str]:
    """Return the layer of each step in the history of an image, lowest first; empty for none."""
    document = parse_json(config)
    digests = [*document["rootfs"]["diff_ids"]]
    steps = []
    for entry in document.get("history") or ():
        if not entry.get("empty_layer"):
            steps.append(digests.pop(0) if digests else "")
        elif str(entry.get("created_by")).startswith(_STEPS):
            steps.append("")
    # Otherwise the history is not that of these layers
    return [] if digests else steps
