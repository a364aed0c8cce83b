"""The `sizes` task: where the bytes of built images are."""

import sys

from bakehouse.analysis import size_text
from bakehouse.analysis.size_check import SizeReader, stored_images
from bakehouse.builder.pack import Packer
from bakehouse.engine.open_engine import open_engine
from bakehouse.plan.workspace import Selection
from bakehouse.util.terminal import Reporter, is_verbose

_MAX_ITEMS = 15


def run(selection: Selection, report: Reporter, *, json: bool = False) -> str:
    """Return the sizes of images, and for one image those of its parts."""
    limit = sys.maxsize if is_verbose() else _MAX_ITEMS
    workspace = selection.workspace
    with open_engine(report) as engine:
        packer = Packer(engine, workspace.project.cache)
        stored = stored_images(packer, selection.plan.images, selection.patterns, report)
        reader = SizeReader(packer, workspace.templates, report)
        sizes = [reader.size(built) for built in stored]
    if json:
        return size_text.as_json(sizes, limit)
    if len(sizes) > 1:
        return size_text.table(sizes)
    versions = tuple((part.component, part.version) for part in stored[0].image.all_parts)
    return size_text.report(sizes[0], versions, limit)
