"""Look up published images: `from bakehouse import image_uris; image_uris.retrieve("pytorch-cpu")`."""

from bakehouse.ledger.image_uris import retrieve

__all__ = ["retrieve"]
