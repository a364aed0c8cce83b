"""The content of a candidate, by the registry that has it: a commit can change its record."""

from bakehouse.errors import PublishError
from bakehouse.ledger.releases import ReleaseRecord
from bakehouse.publish.diagnostics import diagnostics_of
from bakehouse.registry.client import Repository
from bakehouse.registry.manifest import content_id
from bakehouse.util.oci import ContentId


def content_of(record: ReleaseRecord, remote: Repository, command: str) -> ContentId:
    """Return the content ID of a recorded image. Raises PublishError, with the `command` to repeat."""
    diagnostics = diagnostics_of(record, remote, command)
    with diagnostics.translate_errors():
        manifest = remote.manifest(record.digest)
        if manifest is None:
            raise diagnostics.candidate_gone()
        config = remote.blob(manifest.config.digest) if manifest.config else b""
    try:
        return content_id(config)
    except (ValueError, TypeError, AttributeError) as error:
        raise PublishError(f"`{record.image_uri}` has no configuration of an image") from error
