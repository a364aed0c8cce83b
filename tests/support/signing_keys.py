"""Keys for tests, made anew for each."""

from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from bakehouse.trust.keys import PublicKey, Signer, open_signer, read_public_key


class KeyFiles(NamedTuple):
    """The PEM files of a key."""

    private: Path
    public: Path

    @property
    def signer(self) -> Signer:
        return open_signer(str(self.private))

    @property
    def public_key(self) -> PublicKey:
        return read_public_key(self.public)


P256 = ec.SECP256R1()


def make_key(directory: Path, name: str, passphrase: str = "", curve: ec.EllipticCurve = P256) -> KeyFiles:
    """Write a private key and its public key."""
    key = ec.generate_private_key(curve)
    encryption = BestAvailableEncryption(passphrase.encode()) if passphrase else NoEncryption()
    files = KeyFiles(directory / f"{name}.pem", directory / f"{name}.pub")
    files.private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    files.public.write_bytes(public)
    return files
