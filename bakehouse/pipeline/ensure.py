"""The use case `ensure`: the image URI of the release with the current key, made once."""

from bakehouse.ledger.releases import by_release
from bakehouse.ledger.store import Ledger, open_ledger
from bakehouse.pipeline.publish import release
from bakehouse.pipeline.smoke import SmokeOptions
from bakehouse.plan.model import Image
from bakehouse.plan.workspace import Selection
from bakehouse.publish.options import PublishOptions
from bakehouse.registry import destination
from bakehouse.util.file_lock import exclusive
from bakehouse.util.terminal import Reporter


def ensure(selection: Selection, report: Reporter, options: PublishOptions) -> str:
    """Return the image URI of the release with the current key of one image, or release it first.

    Of several callers on one machine, one releases the image, and the others wait for it.
    """
    image, project = selection.image, selection.workspace.project
    # Before others wait for a release that cannot be made
    destination.check_selection(project, options.registry)
    ledger = open_ledger(project)
    lock = project.state / f"locks/ensure-{image.name}.lock"
    with exclusive(lock, lambda: report(f"{image.name}: waiting for another process that releases it")):
        uri = _released_uri(selection, ledger, image, options.registry)
        return uri or release(selection, report, options, SmokeOptions())[0].image_uri


def _released_uri(selection: Selection, ledger: Ledger, image: Image, registry: str) -> str:
    """Return the URI of the newest release with the key of an image in a registry; empty if there is none."""
    project = selection.workspace.project
    for record in reversed(by_release(ledger.records(image.name))):
        if record.key == image.key and record.is_released:
            for location in record.locations:
                if destination.is_selected(project, registry, location.registry, location.repository):
                    return location.image_uri
    return ""
