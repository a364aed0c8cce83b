"""The `sizes` task: where the bytes of built images are."""

import sys

from bakehouse.analysis import fleet_sizes, size_text
from bakehouse.analysis.size_check import SizeReader, stored_images
from bakehouse.builder.pack import Packer
from bakehouse.engine.open_engine import open_engine
from bakehouse.plan.workspace import Selection
from bakehouse.util.terminal import Reporter, is_verbose

_MAX_ITEMS = 15


def run(selection: Selection, report: Reporter, *, json: bool = False) -> str:
    """Return the report of images, with the layers that they share."""
    limit = sys.maxsize if is_verbose() else _MAX_ITEMS
    workspace = selection.workspace
    with open_engine(report) as engine:
        packer = Packer(engine, workspace.project.cache)
        stored = stored_images(packer, selection.plan.images, selection.patterns, report)
        reader = SizeReader(packer, workspace.templates, report)
        sizes = [reader.size(built) for built in stored]
    shared = fleet_sizes.fleet_size(sizes) if len(sizes) > 1 else None
    if json:
        return size_text.as_json(sizes, shared, limit)
    if shared:
        return size_text.fleet(sizes, shared, limit)
    versions = tuple((part.component, part.version) for part in stored[0].image.all_parts)
    return size_text.report(sizes[0], versions, limit)
