"""Signed statements, verified by cosign 3 and read from it. Skipped where cosign 3 is not installed."""

import json
import os
import re
import shutil
import subprocess
from datetime import date
from pathlib import Path

import pytest

from bakehouse.fetch.retry import RetryPolicy
from bakehouse.publish.attest import Bundler, Documents, attach
from bakehouse.publish.push import PushOptions
from bakehouse.publish.tags import PublishedImage
from bakehouse.registry.manifest import digest_of, parse
from bakehouse.registry.referrers import ArtifactRepository
from bakehouse.registry.registry import NamedRegistry
from bakehouse.registry.upload import Blob, Uploader
from bakehouse.trust import bundle
from bakehouse.trust.bundle import SIGNATURE, RefusedError
from bakehouse.trust.keys import read_public_key
from bakehouse.trust.statements import TESTS, statements_of
from tests.support.built_images import IMAGE, PASSED
from tests.support.fake_registry import CONFIG, DIGEST, LAYER, MANIFEST
from tests.support.planned_images import INSTALLED
from tests.support.proxy import Proxy
from tests.support.referrers import Referrers
from tests.support.signing_keys import KeyFiles, make_key

pytestmark = [pytest.mark.engine, pytest.mark.timeout(180)]

TYPES = ("slsaprovenance1", "cyclonedx", TESTS, SIGNATURE)


def cosign(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"HOME": str(home), "COSIGN_PASSWORD": "sesame"}
    return subprocess.run(
        ["cosign", *arguments], cwd=home, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module", autouse=True)
def _cosign_3() -> None:
    if shutil.which("cosign") is None:
        pytest.skip("needs cosign 3 on PATH")
    options = subprocess.run(["cosign", "verify", "--help"], capture_output=True, text=True, check=True)
    # Since version 3, this option is the default and hidden.
    if "--new-bundle-format" in options.stdout:
        pytest.skip("needs cosign 3, and PATH has cosign 2")


class Image:
    """An image in a registry, with statements that a key signed."""

    def __init__(self, proxy: Proxy, home: Path) -> None:
        self.home, self.key = home, make_key(home, "signing")
        registry = NamedRegistry(proxy.host, lambda _: None)
        self.remote = ArtifactRepository(registry, f"{home.name.replace('_', '-')}/image", RetryPolicy())
        for content in (CONFIG, LAYER):
            Uploader(self.remote).upload(Blob(digest_of(content), len(content), content))
        self.remote.tag(parse(MANIFEST), "v1")
        published = PublishedImage("mpi-cpu", proxy.host, self.remote.name, ("v1",), DIGEST)
        self.uri = published.image_uri
        statements = statements_of(IMAGE, DIGEST, INSTALLED, "c0ffee", PASSED)
        documents = Documents(statements=statements, bundler=Bundler(self.key.signer))
        options = PushOptions(day=date(2026, 11, 20), locks=home / "locks")
        attach([(registry, published)], lambda _: documents, options, print, "push").require_all()

    def verify(self, key: KeyFiles, *arguments: str) -> subprocess.CompletedProcess[str]:
        offline = ("--insecure-ignore-tlog", "--allow-http-registry")
        return cosign(self.home, *arguments, "--key", str(key.public), *offline, self.uri)


@pytest.fixture(params=["referrers", "tag"])
def image(request: pytest.FixtureRequest, registry_proxy: Proxy, tmp_path: Path) -> Image:
    if request.param == "referrers":
        registry_proxy.answers.append(Referrers(registry_proxy.forward).answer)
    return Image(registry_proxy, tmp_path)


def test_cosign_verifies_every_statement(image: Image) -> None:
    for name in TYPES:
        verified = image.verify(image.key, "verify-attestation", "--type", name)
        assert verified.returncode == 0, verified.stderr
        [envelope] = map(json.loads, verified.stdout.splitlines())
        assert envelope["payloadType"] == "application/vnd.in-toto+json"
    assert image.verify(image.key, "verify").returncode == 0


def test_cosign_rejects_another_key(image: Image) -> None:
    refused = image.verify(make_key(image.home, "other"), "verify")
    assert refused.returncode != 0
    assert re.search("could not verify envelope", refused.stderr)


def test_a_signature_of_cosign_is_accepted(image: Image) -> None:
    assert cosign(image.home, "generate-key-pair").returncode == 0
    options = ("--use-signing-config=false", "--tlog-upload=false", "--yes", "--allow-http-registry")
    signed = cosign(image.home, "sign", "--key", "cosign.key", *options, image.uri)
    assert signed.returncode == 0, signed.stderr
    key = read_public_key(image.home / "cosign.pub")
    types = []
    for content in image.remote.contents(DIGEST, bundle.MEDIA_TYPE).values():
        try:
            types.append(bundle.verify(content, DIGEST, (), [key]).predicate_type)
        except RefusedError:
            continue
    assert types == [SIGNATURE]
