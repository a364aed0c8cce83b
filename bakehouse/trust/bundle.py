"""In-toto statements about images, signed in Sigstore bundles as cosign 3 attaches and verifies them.

A bundle contains a DSSE envelope: the statement, and one signature over it and its type.
"""

import base64
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bakehouse.trust.keys import PublicKey, Signer
from bakehouse.util.json_reader import parse_json
from bakehouse.util.oci import Digest

MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
SIGNATURE = "https://sigstore.dev/cosign/sign/v1"
"""Type of the statement that `cosign sign` makes, which only names the digest."""
_PAYLOAD_TYPE = "application/vnd.in-toto+json"


class RefusedError(Exception):
    """A bundle proves nothing about an image; the message is the reason, as a predicate."""


@dataclass(frozen=True, slots=True)
class Statement:
    """An in-toto statement, not signed yet."""

    predicate_type: str
    content: bytes


@dataclass(frozen=True, slots=True)
class SignedStatement:
    """A statement about an image, and the key that signed it."""

    predicate_type: str
    predicate: Mapping[str, Any]
    key: PublicKey


def statement(image: str, digest: Digest, predicate_type: str, predicate: object) -> Statement:
    """Return a statement about the image with this digest."""
    document = {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": image, "digest": {"sha256": digest.removeprefix("sha256:")}}],
        "predicateType": predicate_type,
        "predicate": predicate,
    }
    content = (json.dumps(document, indent=1, sort_keys=True) + "\n").encode()
    return Statement(predicate_type, content)


def sign(content: bytes, signer: Signer) -> bytes:
    """Return a bundle with the signed content of a statement."""
    document = {
        "mediaType": MEDIA_TYPE,
        "verificationMaterial": {"publicKey": {"hint": signer.public_key.hint}},
        "dsseEnvelope": {
            "payload": base64.b64encode(content).decode(),
            "payloadType": _PAYLOAD_TYPE,
            # Without a `keyid`: cosign skips a signature whose `keyid` is not of its own kind.
            "signatures": [{"sig": base64.b64encode(signer.sign(_signed_bytes(content))).decode()}],
        },
    }
    return json.dumps(document, sort_keys=True).encode()


def signed_content(bundle: bytes, keys: Iterable[PublicKey]) -> tuple[bytes, PublicKey]:
    """Return the content of a bundle, and the one of `keys` that signed it; raise RefusedError."""
    try:
        document = parse_json(bundle)
        media_type, envelope = document["mediaType"], document["dsseEnvelope"]
        content = base64.b64decode(envelope["payload"], validate=True)
        [signature] = (base64.b64decode(entry["sig"], validate=True) for entry in envelope["signatures"])
        payload_type = envelope["payloadType"]
    except (ValueError, KeyError, TypeError) as error:
        message = "is not a Sigstore bundle with one signature"
        raise RefusedError(message) from error
    if media_type != MEDIA_TYPE or payload_type != _PAYLOAD_TYPE:
        message = "is not a Sigstore bundle v0.3 with an in-toto statement"
        raise RefusedError(message)
    for key in keys:
        if key.verifies(signature, _signed_bytes(content)):
            return content, key
    message = "is not signed by a trusted key, or was changed"
    raise RefusedError(message)


def verify(
    bundle: bytes, digest: Digest, names: Collection[str], keys: Iterable[PublicKey]
) -> SignedStatement:
    """Return the statement in a bundle; raise RefusedError unless a key signed it for this image.

    Two images can have one digest, but their recipes may require different tests. So a statement names one
    of `names`, too; only the signatures of cosign name no image.
    """
    content, key = signed_content(bundle, keys)
    try:
        document = parse_json(content)
        statement_type, predicate_type = document["_type"], document["predicateType"]
        predicate = document["predicate"]
        subjects = [(item["digest"].get("sha256"), item.get("name")) for item in document["subject"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        message = f"is not an in-toto statement, although `{key.name}` signed it"
        raise RefusedError(message) from error
    if statement_type != STATEMENT_TYPE or not isinstance(predicate, dict):
        message = f"is not an in-toto statement v1, although `{key.name}` signed it"
        raise RefusedError(message)
    named = [*names, *([None, ""] if predicate_type == SIGNATURE else [])]
    if not any(sha256 == digest.removeprefix("sha256:") and name in named for sha256, name in subjects):
        message = f"is about another image, although `{key.name}` signed it"
        raise RefusedError(message)
    return SignedStatement(str(predicate_type), predicate, key)


def _signed_bytes(content: bytes) -> bytes:
    """Return the bytes that are signed: DSSE's pre-authentication encoding."""
    return b"DSSEv1 %d %s %d %s" % (len(_PAYLOAD_TYPE), _PAYLOAD_TYPE.encode(), len(content), content)
