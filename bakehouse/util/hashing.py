"""Build keys: the sha256 over the inputs of a step, an image or a base."""

import json
from functools import lru_cache
from hashlib import sha256

# `json.dumps` creates a new encoder for each call with `sort_keys`
_ENCODER = json.JSONEncoder(sort_keys=True)


def key_of(*inputs: object) -> str:
    """Return the sha256 of inputs, encoded as one JSON list with sorted keys, as 64 hex digits."""
    return sha256(_ENCODER.encode(inputs).encode()).hexdigest()


@lru_cache(8192)
def bytes_digest(content: bytes) -> str:
    """Return the sha256 of the content of a file, cached because images share most files."""
    return sha256(content).hexdigest()
