"""The files of a candidate, downloaded from a registry in memory."""

import gzip
import hashlib
import json
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from bakehouse.catalog.project import ProjectSettings
from bakehouse.errors import PublishError
from bakehouse.ledger.releases import ReleaseRecord
from bakehouse.publish.image_root import write_root
from bakehouse.registry.manifest import DOCKER_MANIFEST, digest_of
from tests.support.candidates import candidate
from tests.support.errors import refusal
from tests.support.fake_registry import FakeRegistry, described
from tests.support.layer_archives import Form, Member, compressed, layer
from tests.support.proxy import Proxy

CONFIG = b'{"config": {"Env": ["A=1"]}}'
LAYERS = (layer(Member("a", b"1"), Member("b", b"1")), layer(Member("b", b"2"), Member(".wh.a")))


def published(registry: FakeRegistry, proxy: Proxy, *layers: bytes) -> ReleaseRecord:
    """Put an image into a registry, and return its record."""
    fields = {"config": described("c", CONFIG), "layers": [described("l", content) for content in layers]}
    manifest = json.dumps({"schemaVersion": 2, "mediaType": DOCKER_MANIFEST, **fields}).encode()
    digest = digest_of(manifest)
    registry.manifests[digest] = DOCKER_MANIFEST, manifest
    registry.blobs |= {digest_of(content): content for content in (CONFIG, *layers)}
    return replace(candidate(proxy), digest=digest, image_uri=f"{proxy.host}/team/image@{digest}")


def write(directory: Path, record: ReleaseRecord) -> str:
    """Write the archive, and return its sha256."""
    root = write_root(
        ProjectSettings(directory, ()), record, directory / "out/root", "smoke --on bare", print
    )
    assert root.config == CONFIG
    return root.sha256


@pytest.mark.parametrize("form", ["gzip", "zstd", "none"])
def test_the_archive_has_the_files_of_all_layers(
    form: Form,
    fake_registries: tuple[FakeRegistry, FakeRegistry],
    proxies: tuple[Proxy, Proxy],
    tmp_path: Path,
) -> None:
    layers = [compressed(content, form) for content in LAYERS]

    sha256 = write(tmp_path, published(fake_registries[0], proxies[0], *layers))

    content = (tmp_path / "out/root").read_bytes()
    assert hashlib.sha256(content).hexdigest() == sha256
    assert gzip.decompress(content).endswith(bytes(1024))
    with tarfile.open(tmp_path / "out/root") as archive:
        assert archive.getnames() == ["b"]
        file = archive.extractfile("b")
        assert file
        assert file.read() == b"2"


def test_a_changed_layer_is_refused(
    fake_registries: tuple[FakeRegistry, FakeRegistry], proxies: tuple[Proxy, Proxy], tmp_path: Path
) -> None:
    record = published(fake_registries[0], proxies[0], LAYERS[0])
    fake_registries[0].blobs[digest_of(LAYERS[0])] = LAYERS[1]

    assert refusal(PublishError, write, tmp_path, record) == (
        f"error: `{proxies[0].host}` failed\n"
        f"  answer  HTTP 200: the response for {digest_of(LAYERS[0])} has another digest\n"
    )
    assert not (tmp_path / "out/root").exists()


def test_a_candidate_that_is_gone_is_named(proxies: tuple[Proxy, Proxy], tmp_path: Path) -> None:
    record = replace(candidate(proxies[0]), digest="sha256:" + "5" * 64)

    assert refusal(PublishError, write, tmp_path, record) == (
        f"error: `{proxies[0].host}/team/image` no longer has the candidate sha256:555555555555\n\n"
        "hint: run `bake push --candidate mpi-cpu` again\n"
    )
