"""Images of a few kilobytes, made from nothing with BuildKit, in every form that a registry can hold."""

import contextlib
import json
import os
import subprocess
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from bakehouse.builder.built_image import BuiltImage, identity_of
from bakehouse.builder.pack import Packer
from bakehouse.engine import docker, usage_lock
from bakehouse.evidence.known_checks import KnownChecks
from bakehouse.fetch.retry import RetryPolicy
from bakehouse.plan.model import Image, InstalledComponent
from bakehouse.registry.client import Repository
from bakehouse.registry.manifest import FORMS, Manifest
from bakehouse.registry.registry import Registry
from bakehouse.registry.upload import Blob, Uploader
from bakehouse.util.oci import Digest
from tests.support import plans
from tests.support.built_images import results

EXPORTER = "oci-mediatypes=false,compression=uncompressed,force-compression=true"
"""The exporter's options of a build."""


def image(name: str, key: str = "7c1e44b0") -> Image:
    """A plan's image, of which only the name and the key matter to a push."""
    open_mpi = InstalledComponent("open-mpi", "4.1.8", "py311")
    return plans.image(name, key=key * 8, summary="made for a test", parts=(open_mpi,))


def passed(built: BuiltImage) -> KnownChecks:
    """The results of a smoke test that went well."""
    checks = results(built.image)
    return KnownChecks(built.image.name, built.content, checks, required=built.image.required)


def published_digest(built: BuiltImage) -> Digest:
    """The digest that an image has in any registry."""
    with tempfile.TemporaryDirectory() as state, contextlib.closing(docker.connect()) as engine:
        return Packer(engine, Path(state)).pack(built, FORMS["docker"], lambda _: None).manifest.digest


def upload(built: BuiltImage, registry: Registry, repository: str, tag: str, state: Path) -> Manifest:
    """Push an image as another program would, without any check."""
    with contextlib.closing(docker.connect()) as engine:
        packed = Packer(engine, state).pack(built, FORMS["docker"], lambda _: None)
    remote = Repository(registry, repository, RetryPolicy())
    uploader = Uploader(remote)
    uploader.upload(Blob(built.digest, len(packed.config), packed.config))
    for layer in packed.layers:
        uploader.upload(Blob(layer.digest, layer.bytes, layer.path))
    remote.tag(packed.manifest, tag)
    return packed.manifest


@contextlib.contextmanager
def built(
    directory: Path,
    name: str,
    *,
    exporter: str = EXPORTER,
    bytes_: int = 200_000,
    shared: bytes = b"",
    provenance: bool = False,
    platform: str = "linux/amd64",
    revision: str = "",
) -> Iterator[BuiltImage]:
    """An image with new random content in the engine's store; it is gone afterwards.

    `shared` is the content of its first layer, for images that have that in common.
    """
    for layer in ("one", "two"):
        (directory / layer).write_bytes(os.urandom(bytes_))
    if shared:
        (directory / "one").write_bytes(shared)
        # BuildKit transfers a path again only if its size or time has changed. A layer of an earlier test
        # would name the repositories of that test as its sources.
        seconds = zlib.crc32(shared) // 4
        os.utime(directory / "one", (seconds, seconds))
    (directory / "Dockerfile").write_text("FROM scratch\nCOPY one /\nCOPY two /\n")
    reference = f"bakehouse/test-{os.getpid()}:{name}-{os.urandom(4).hex()}"
    metadata = directory / "metadata.json"
    labels = {"bakehouse": f"tests-{os.getpid()}", "org.bakehouse.component.open-mpi": "4.1.8"}
    if revision:
        labels["org.opencontainers.image.revision"] = revision
    command = [
        *("docker", "buildx", "build", "--quiet", "--platform", platform),
        *(word for label in labels.items() for word in ("--label", "=".join(label))),
        *("--metadata-file", str(metadata)),
        f"--provenance={'mode=min' if provenance else 'false'}",
        *("--output", f"type=image,name={reference},{exporter}", str(directory)),
    ]
    with usage_lock.engine_in_use():
        subprocess.run(command, check=True, capture_output=True)
    digests = json.loads(metadata.read_text())
    stored = Digest(digests["containerimage.digest"])
    try:
        with contextlib.closing(docker.connect()) as engine:
            # Metadata of an index has no configuration.
            digest, content = identity_of(stored, engine, directory / "state")
        yield BuiltImage(image(name), digest, stored, 2 * bytes_, content)
    finally:
        subprocess.run(["docker", "image", "rm", "--force", reference], check=True, capture_output=True)
