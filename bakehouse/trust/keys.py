"""Keys that sign statements, and public keys that verify them: ECDSA on the curve P-256.

A signing key is a PEM file, or a key of AWS KMS.
"""

import base64
import hashlib
import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from bakehouse.errors import TrustError
from bakehouse.util.aws import Aws
from bakehouse.util.files import display_path, read_bytes

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

KMS = "awskms:///"
"""Prefix of the ARN of a key, as cosign writes it."""
PASSPHRASE = "BAKEHOUSE_SIGNING_PASSPHRASE"
"""Environment variable with the passphrase of an encrypted key."""
_hidden: dict[str, str] = {}
"""The passphrase, after it was removed from the environment."""
_GENERATE = "openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -aes256 -out signing.pem"


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A public key."""

    der: bytes
    """SubjectPublicKeyInfo."""
    name: str
    """File name or ARN, for messages."""

    @property
    def hint(self) -> str:
        """Return the identifier of the key in a bundle, as cosign computes it."""
        return base64.b64encode(hashlib.sha256(self.der).digest()).decode()

    def verifies(self, signature: bytes, content: bytes) -> bool:
        """Return whether `signature` is this key's signature of `content`."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.serialization import load_der_public_key

        key = load_der_public_key(self.der)
        assert isinstance(key, ec.EllipticCurvePublicKey), "checked when it was read"
        try:
            key.verify(signature, content, ec.ECDSA(SHA256()))
        except InvalidSignature:
            return False
        return True


class Signer(Protocol):
    """A key that signs."""

    @property
    def public_key(self) -> PublicKey:
        """Public key that verifies the signatures."""

    def sign(self, content: bytes) -> bytes:
        """Return the signature of `content` in DER."""


def hide_passphrase() -> None:
    """Keep the passphrase from the programs that this process starts, such as the builds of packages."""
    if PASSPHRASE in os.environ:
        _hidden[PASSPHRASE] = os.environ.pop(PASSPHRASE)


def open_signer(signing_key: str) -> Signer:
    """Return the key of the setting `signing_key`; raise TrustError if it cannot be used."""
    if signing_key.startswith(KMS):
        signer = KmsSigner(signing_key.removeprefix(KMS))
        # A missing permission is reported before anything is built.
        _require_p256(signer.public_key.der, signer.public_key.name)
        return signer
    return _open_pem(Path(signing_key))


@dataclass(frozen=True, slots=True)
class PemSigner:
    """A private key in memory."""

    key: "EllipticCurvePrivateKey" = field(repr=False)
    name: str

    @property
    def public_key(self) -> PublicKey:
        return PublicKey(_der(self.key.public_key()), self.name)

    def sign(self, content: bytes) -> bytes:
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.hashes import SHA256

        return self.key.sign(content, ec.ECDSA(SHA256()))


class KmsSigner:
    """A key of AWS KMS, which does not leave it."""

    def __init__(self, arn: str) -> None:
        self.arn = arn
        self._aws = Aws(arn.split(":")[3])

    @cached_property
    def public_key(self) -> PublicKey:
        with self._aws.translate_errors(f"read the public key of `{self.arn}`"):
            return PublicKey(bytes(self._client.get_public_key(KeyId=self.arn)["PublicKey"]), self.arn)

    def sign(self, content: bytes) -> bytes:
        # KMS signs at most 4096 bytes of a message, but the digest of any.
        with self._aws.translate_errors(f"sign with `{self.arn}`"):
            response = self._client.sign(
                KeyId=self.arn,
                Message=hashlib.sha256(content).digest(),
                MessageType="DIGEST",
                SigningAlgorithm="ECDSA_SHA_256",
            )
        return bytes(response["Signature"])

    @cached_property
    def _client(self) -> Any:
        return self._aws.client("kms")


def read_public_key(path: Path) -> PublicKey:
    """Return the public key in a PEM file; raise TrustError if it is not one."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    name = display_path(path)
    try:
        der = _der(load_pem_public_key(_read(path)))
    except (ValueError, UnsupportedAlgorithm) as error:
        raise TrustError(
            f"`{name}` is not a public key in PEM",
            hint=f"write it with `openssl pkey -in signing.pem -pubout -out {path.name}`",
        ) from error
    _require_p256(der, name)
    return PublicKey(der, name)


def _open_pem(path: Path) -> PemSigner:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    name, content = display_path(path), _read(path)
    is_encrypted = b"ENCRYPTED" in content
    passphrase = os.environ.get(PASSPHRASE) or _hidden.get(PASSPHRASE, "")
    if b"ENCRYPTED SIGSTORE" in content or b"ENCRYPTED COSIGN" in content:
        raise TrustError(
            f"the signing key `{name}` has cosign's own format, which only cosign reads",
            hint=f"create a key with `{_GENERATE}`",
        )
    if is_encrypted and not passphrase:
        raise TrustError(
            f"the signing key `{name}` is encrypted, and `{PASSPHRASE}` is not set",
            hint=f"set `{PASSPHRASE}` to its passphrase",
        )
    try:
        key = load_pem_private_key(content, passphrase.encode() if is_encrypted else None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        # The errors of the library may contain parts of the file.
        if is_encrypted:
            message = f"the signing key `{name}` cannot be decrypted"
            hint = f"check the passphrase in `{PASSPHRASE}`"
        else:
            message, hint = f"`{name}` is not a private key in PEM", f"create one with `{_GENERATE}`"
        raise TrustError(message, hint=hint) from error
    _require_p256(_der(key.public_key()), name)
    assert isinstance(key, EllipticCurvePrivateKey), "as its public key is"
    return PemSigner(key, name)


def _read(path: Path) -> bytes:
    try:
        return read_bytes(path)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise TrustError(f"cannot read the key `{display_path(path)}`: {reason}") from error


def _der(key: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return bytes(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))


def _require_p256(der: bytes, name: str) -> None:
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
    from cryptography.hazmat.primitives.serialization import load_der_public_key

    key = load_der_public_key(der)
    if not (isinstance(key, EllipticCurvePublicKey) and isinstance(key.curve, SECP256R1)):
        raise TrustError(
            f"the key `{name}` is not an ECDSA key on the curve P-256", hint=f"create one with `{_GENERATE}`"
        )
