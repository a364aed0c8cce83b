"""Signing keys in PEM files and in AWS KMS, and public keys."""

import hashlib
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed
from cryptography.hazmat.primitives.hashes import SHA256

from bakehouse.errors import Diagnostic, PublishError, TrustError
from bakehouse.trust import keys
from bakehouse.trust.keys import KMS, PASSPHRASE, KmsSigner, open_signer, read_public_key
from tests.support.errors import raised
from tests.support.signing_keys import make_key

REGION = "eu-west-1"
GENERATE = "openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -aes256 -out signing.pem"


def refusal(key: str) -> Diagnostic:
    [diagnostic] = raised(TrustError, open_signer, key).diagnostics
    return diagnostic


def test_a_signature_is_verified_by_the_public_key_alone(tmp_path: Path) -> None:
    first, second = make_key(tmp_path, "first"), make_key(tmp_path, "second")
    signature = first.signer.sign(b"content")

    assert first.public_key.verifies(signature, b"content")
    assert not first.public_key.verifies(signature, b"other")
    assert not second.public_key.verifies(signature, b"content")
    assert not first.public_key.verifies(b"not a signature", b"content")


def test_an_encrypted_key_is_opened_with_its_passphrase(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = make_key(tmp_path, "signing", passphrase="open sesame")
    monkeypatch.setenv(PASSPHRASE, "open sesame")

    assert key.public_key.verifies(key.signer.sign(b"content"), b"content")


def test_a_hidden_passphrase_opens_a_key_but_is_not_inherited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = make_key(tmp_path, "signing", passphrase="open sesame")
    monkeypatch.setenv(PASSPHRASE, "open sesame")
    monkeypatch.setattr(keys, "_hidden", {})

    keys.hide_passphrase()

    assert "sesame" not in subprocess.run(["env"], capture_output=True, text=True, check=True).stdout
    assert key.public_key.verifies(key.signer.sign(b"content"), b"content")


def test_a_plain_key_is_opened_although_a_passphrase_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = make_key(tmp_path, "signing")
    monkeypatch.setenv(PASSPHRASE, "of another key")

    assert key.public_key.verifies(key.signer.sign(b"content"), b"content")


def test_a_missing_or_wrong_passphrase(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    key = make_key(tmp_path, "signing", passphrase="open sesame")
    monkeypatch.delenv(PASSPHRASE, raising=False)

    assert refusal(str(key.private)) == Diagnostic(
        "the signing key `signing.pem` is encrypted, and `BAKEHOUSE_SIGNING_PASSPHRASE` is not set",
        hint="set `BAKEHOUSE_SIGNING_PASSPHRASE` to its passphrase",
    )
    monkeypatch.setenv(PASSPHRASE, "open barley")
    assert refusal(str(key.private)) == Diagnostic(
        "the signing key `signing.pem` cannot be decrypted",
        hint="check the passphrase in `BAKEHOUSE_SIGNING_PASSPHRASE`",
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read the key `signing.pem`: no such file or directory"),
        (b"hello", "`signing.pem` is not a private key in PEM"),
        (
            b"-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\n",
            "the signing key `signing.pem` has cosign's own format, which only cosign reads",
        ),
    ],
)
def test_a_file_that_is_not_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "signing.pem"
    if content is not None:
        path.write_bytes(content)
    hint = f"create one with `{GENERATE}`" if content else ""
    hint = hint.replace("one", "a key") if "cosign" in message else hint

    assert refusal(str(path)) == Diagnostic(message, hint=hint)


def test_a_key_on_another_curve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    key = make_key(tmp_path, "signing", curve=ec.SECP384R1())

    assert refusal(str(key.private)) == Diagnostic(
        "the key `signing.pem` is not an ECDSA key on the curve P-256", hint=f"create one with `{GENERATE}`"
    )
    with pytest.raises(TrustError, match=r"the key `signing\.pub` is not an ECDSA key"):
        read_public_key(key.public)


def test_a_private_key_is_not_taken_for_a_public_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    key = make_key(tmp_path, "signing")

    assert raised(TrustError, read_public_key, key.private).diagnostics == (
        Diagnostic(
            "`signing.pem` is not a public key in PEM",
            hint="write it with `openssl pkey -in signing.pem -pubout -out signing.pem`",
        ),
    )


def test_the_representation_of_a_signer_has_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert repr(make_key(tmp_path, "signing").signer) == "PemSigner(name='signing.pem')"


@pytest.fixture
def kms(moto: None, monkeypatch: pytest.MonkeyPatch) -> Any:
    """KMS of moto."""
    import boto3  # type: ignore[import-untyped]
    from moto.kms.utils import ECDSAPrivateKey

    # moto signs every message as it is. AWS signs the digest if `MessageType` says so.
    def sign(self: Any, message: bytes, signing_algorithm: str) -> bytes:
        assert (len(message), signing_algorithm) == (32, "ECDSA_SHA_256")
        return bytes(self.private_key.sign(message, ec.ECDSA(Prehashed(SHA256()))))

    monkeypatch.setattr(ECDSAPrivateKey, "sign", sign)
    return boto3.client("kms", region_name=REGION)


def kms_key(kms: Any, spec: str = "ECC_NIST_P256") -> str:
    return str(kms.create_key(KeyUsage="SIGN_VERIFY", KeySpec=spec)["KeyMetadata"]["Arn"])


def test_a_key_of_kms_signs_content_of_any_size(kms: Any) -> None:
    arn = kms_key(kms)
    signer = open_signer(KMS + arn)
    content = b"x" * 100_000
    assert isinstance(signer, KmsSigner)
    kinds = []
    signer._client.meta.events.register(
        "before-parameter-build.kms.Sign", lambda params, **_: kinds.append(params["MessageType"])
    )

    assert signer.public_key.name == arn
    assert signer.public_key.verifies(signer.sign(content), content)
    assert not signer.public_key.verifies(signer.sign(content), hashlib.sha256(content).digest())
    assert kinds == ["DIGEST", "DIGEST"]


def test_a_key_of_kms_on_another_curve(kms: Any) -> None:
    arn = kms_key(kms, "ECC_NIST_P384")

    assert refusal(KMS + arn).message == f"the key `{arn}` is not an ECDSA key on the curve P-256"


def test_a_key_that_kms_does_not_have(kms: Any) -> None:
    arn = f"arn:aws:kms:{REGION}:123456789012:key/00000000-0000-0000-0000-000000000000"

    with pytest.raises(PublishError, match=f"could not read the public key of `{arn}`"):
        open_signer(KMS + arn)
