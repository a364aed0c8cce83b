"""Signed statements: what is accepted, and that nothing else is."""

import base64
import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from bakehouse.trust import bundle
from bakehouse.trust.bundle import RefusedError, SignedStatement, statement, verify
from bakehouse.trust.keys import Signer
from bakehouse.util.oci import Digest
from tests.support.errors import raised
from tests.support.signing_keys import KeyFiles, make_key

DIGEST = Digest("sha256:" + "4f" * 32)
OTHER = Digest("sha256:" + "5f" * 32)
NAMES = ("mpi-cpu", "registry.example/team/mpi-cpu")
TYPE = "https://example.com/v1"
PREDICATE = {"result": "PASSED", "passedTests": ["mpi_2x2"]}
Document = dict[str, Any]


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> KeyFiles:
    return make_key(tmp_path_factory.mktemp("key"), "signing")


def signed(signer: Signer, digest: Digest = DIGEST, predicate: object = PREDICATE) -> bytes:
    return bundle.sign(statement("mpi-cpu", digest, TYPE, predicate).content, signer)


def enveloped(document: object, signer: Signer) -> bytes:
    """A bundle with another document than a statement of Bakehouse."""
    return bundle.sign(json.dumps(document).encode(), signer)


def refusal(content: bytes, key: KeyFiles) -> str:
    return str(raised(RefusedError, verify, content, DIGEST, NAMES, [key.public_key]))


def test_a_signed_statement_about_the_digest_is_accepted(key: KeyFiles, tmp_path: Path) -> None:
    other = make_key(tmp_path, "other")
    content = signed(key.signer)

    assert verify(content, DIGEST, NAMES, [other.public_key, key.public_key]) == SignedStatement(
        TYPE, PREDICATE, key.public_key
    )


def test_a_bundle_has_the_format_of_sigstore(key: KeyFiles) -> None:
    document = json.loads(signed(key.signer))
    payload = base64.b64decode(document["dsseEnvelope"].pop("payload"))
    [signature] = document["dsseEnvelope"].pop("signatures")

    assert document == {
        "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
        "verificationMaterial": {"publicKey": {"hint": key.public_key.hint}},
        "dsseEnvelope": {"payloadType": "application/vnd.in-toto+json"},
    }
    assert json.loads(payload) == {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "mpi-cpu", "digest": {"sha256": "4f" * 32}}],
        "predicateType": TYPE,
        "predicate": PREDICATE,
    }
    assert list(signature) == ["sig"]
    prefix = b"DSSEv1 28 application/vnd.in-toto+json %d " % len(payload)
    assert key.public_key.verifies(base64.b64decode(signature["sig"]), prefix + payload)


def test_a_statement_by_an_unknown_key_is_refused(key: KeyFiles, tmp_path: Path) -> None:
    stranger = make_key(tmp_path, "stranger")

    assert refusal(signed(stranger.signer), key) == "is not signed by a trusted key, or was changed"


def test_a_statement_about_another_image_is_refused(key: KeyFiles) -> None:
    content = signed(key.signer, OTHER)

    assert refusal(content, key) == f"is about another image, although `{key.public_key.name}` signed it"


@pytest.mark.parametrize(
    ("name", "predicate_type", "accepted"),
    [
        ("mpi-cpu", TYPE, True),
        ("registry.example/team/mpi-cpu", TYPE, True),
        ("mpi", TYPE, False),
        ("registry.example/team/mpi", TYPE, False),
        ("", TYPE, False),
        (None, TYPE, False),
        (["mpi-cpu"], TYPE, False),
        ("", bundle.SIGNATURE, True),
        (None, bundle.SIGNATURE, True),
        ("mpi", bundle.SIGNATURE, False),
    ],
)
def test_a_statement_names_the_image_except_for_signatures_of_cosign(
    key: KeyFiles, name: object, predicate_type: str, accepted: bool
) -> None:
    document = json.loads(statement("mpi-cpu", DIGEST, predicate_type, PREDICATE).content)
    document["subject"][0]["name"] = name
    content = enveloped(document, key.signer)
    if accepted:
        assert verify(content, DIGEST, NAMES, [key.public_key]).predicate_type == predicate_type
    else:
        assert refusal(content, key) == f"is about another image, although `{key.public_key.name}` signed it"


@pytest.mark.parametrize(
    "document",
    [
        [],
        {},
        {"_type": bundle.STATEMENT_TYPE, "predicateType": TYPE, "predicate": {}},
        {"_type": bundle.STATEMENT_TYPE, "subject": [], "predicateType": TYPE, "predicate": {}},
        {"_type": bundle.STATEMENT_TYPE, "subject": [1], "predicateType": TYPE, "predicate": {}},
        {"_type": bundle.STATEMENT_TYPE, "subject": [{"digest": []}], "predicateType": TYPE, "predicate": {}},
    ],
)
def test_signed_content_that_is_not_a_statement_about_it_is_refused(key: KeyFiles, document: object) -> None:
    assert f"although `{key.public_key.name}` signed it" in refusal(enveloped(document, key.signer), key)


@pytest.mark.parametrize(
    "changed", [{"_type": "https://in-toto.io/Statement/v0.1"}, {"predicate": ["PASSED"]}]
)
def test_a_statement_of_another_version_is_refused(key: KeyFiles, changed: Mapping[str, object]) -> None:
    document = json.loads(statement("mpi-cpu", DIGEST, TYPE, PREDICATE).content) | changed

    expected = f"is not an in-toto statement v1, although `{key.public_key.name}` signed it"
    assert refusal(enveloped(document, key.signer), key) == expected


def payload_of(document: Document) -> Document:
    return dict(json.loads(base64.b64decode(document["dsseEnvelope"]["payload"])))


def with_payload(document: Document, payload: object) -> None:
    document["dsseEnvelope"]["payload"] = base64.b64encode(json.dumps(payload).encode()).decode()


def flip(text: str, rng: random.Random) -> str:
    """Flip one bit of what is encoded as base64."""
    content = bytearray(base64.b64decode(text))
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return base64.b64encode(content).decode()


def forge_payload(document: Document, rng: random.Random, foreign: Document) -> None:
    document["dsseEnvelope"]["payload"] = flip(document["dsseEnvelope"]["payload"], rng)


def forge_signature(document: Document, rng: random.Random, foreign: Document) -> None:
    [signature] = document["dsseEnvelope"]["signatures"]
    signature["sig"] = flip(signature["sig"], rng)


def change_predicate(document: Document, rng: random.Random, foreign: Document) -> None:
    payload = payload_of(document)
    payload["predicate"][rng.choice(("result", "url", "failedTests"))] = str(rng.random())
    with_payload(document, payload)


def change_type(document: Document, rng: random.Random, foreign: Document) -> None:
    with_payload(document, payload_of(document) | {"predicateType": f"https://example.com/v{rng.random()}"})


def add_subject(document: Document, rng: random.Random, foreign: Document) -> None:
    payload = payload_of(foreign)
    payload["subject"].append({"name": "mpi-cpu", "digest": {"sha256": "4f" * 32}})
    with_payload(document, payload)


def take_foreign_payload(document: Document, rng: random.Random, foreign: Document) -> None:
    document["dsseEnvelope"]["payload"] = foreign["dsseEnvelope"]["payload"]


def take_foreign_signature(document: Document, rng: random.Random, foreign: Document) -> None:
    document["dsseEnvelope"]["signatures"] = foreign["dsseEnvelope"]["signatures"]


def take_foreign_envelope(document: Document, rng: random.Random, foreign: Document) -> None:
    """Replay a valid statement about another image."""
    document["dsseEnvelope"] = foreign["dsseEnvelope"]


def change_signature_count(document: Document, rng: random.Random, foreign: Document) -> None:
    signatures = document["dsseEnvelope"]["signatures"]
    signatures[:] = rng.choice(([], signatures * 2, [*foreign["dsseEnvelope"]["signatures"], *signatures]))


def change_media_type(document: Document, rng: random.Random, foreign: Document) -> None:
    key = rng.choice(("mediaType", "payloadType"))
    (document if key == "mediaType" else document["dsseEnvelope"])[key] = f"application/{rng.random()}"


MUTATIONS: tuple[Callable[[Document, random.Random, Document], None], ...] = (
    *(forge_payload, forge_signature, change_predicate, change_type, add_subject),
    *(take_foreign_payload, take_foreign_signature, take_foreign_envelope),
    *(change_signature_count, change_media_type),
)


def test_a_hundred_of_a_hundred_mutated_statements_are_refused(key: KeyFiles) -> None:
    original, foreign = signed(key.signer), json.loads(signed(key.signer, OTHER))
    accepted = []
    for number in range(100):
        rng = random.Random(number)
        document = json.loads(original)
        mutate = MUTATIONS[number % len(MUTATIONS)]
        mutate(document, rng, json.loads(json.dumps(foreign)))
        assert document != json.loads(original)
        try:
            verify(json.dumps(document).encode(), DIGEST, NAMES, [key.public_key])
            accepted.append((number, mutate.__name__))
        except RefusedError:
            pass

    assert accepted == []
    assert verify(original, DIGEST, NAMES, [key.public_key])


@pytest.mark.parametrize("length", [0, 1, 100, -1])
def test_a_truncated_bundle_is_refused(key: KeyFiles, length: int) -> None:
    content = signed(key.signer)[:length]

    assert refusal(content, key) == "is not a Sigstore bundle with one signature"


@pytest.mark.parametrize("content", [b"[" * 100_000, b"\xff\xfe", b"null", b"{}", b'{"dsseEnvelope": 1}'])
def test_hostile_bytes_are_refused(key: KeyFiles, content: bytes) -> None:
    assert refusal(content, key) == "is not a Sigstore bundle with one signature"
