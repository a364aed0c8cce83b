"""Packs built images for registries: compressed layers, configuration and manifest, from any engine."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from bakehouse.builder.built_image import BuiltImage
from bakehouse.engine import usage_lock
from bakehouse.engine.image_archive import READ_BYTES
from bakehouse.engine.protocol import Engine
from bakehouse.errors import EngineError, PublishError
from bakehouse.registry.layer_cache import LAYERS, CompressedLayer, LayerCache
from bakehouse.registry.manifest import Form, Manifest, digest_of, parse, short
from bakehouse.util.deadline import NEVER
from bakehouse.util.file_lock import exclusive
from bakehouse.util.files import read_bytes, write_whole
from bakehouse.util.format import format_bytes
from bakehouse.util.oci import Digest
from bakehouse.util.terminal import Reporter, detail


@dataclass(frozen=True, slots=True)
class PackedImage:
    """An image as registries store it."""

    manifest: Manifest
    config: bytes
    layers: tuple[CompressedLayer, ...]
    """Lowest first."""


class ImagePacker(Protocol):
    """Source of packed images for a push."""

    def pack(self, built: BuiltImage, form: Form, report: Reporter, until: float = NEVER) -> PackedImage: ...

    def config(self, built: BuiltImage) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Packer:
    """Packs images of one engine. Compressed layers are kept in a cache that all projects share."""

    engine: Engine
    cache: Path

    def pack(self, built: BuiltImage, form: Form, report: Reporter, until: float = NEVER) -> PackedImage:
        """Return an image with all layers in the cache.

        Raises PublishError if the image is gone, OverdueError if another image is still being compressed
        at `until`.
        """

        def wait() -> None:
            report("waiting for the compression of another image")

        layer_cache = LayerCache(self.cache / LAYERS, form.compression)
        config = self._known_config(built.digest)
        if config is None or None in self._layers(config, layer_cache):
            # One at a time: images share layers, and each compression uses all cores.
            with exclusive(self.cache / "pack.lock", wait, until):
                config = self._compress(built, layer_cache, report)
        layers = tuple(layer for layer in self._layers(config, layer_cache) if layer)
        if digest_of(config) != built.digest or len(layers) != len(_diff_ids(config)):
            message = f"the engine exported a different image than {built.image.name}"
            facts = (("built", built.digest), ("exported", digest_of(config)))
            raise EngineError(message, facts=facts, hint=f"run `bake build {built.image.name}`")
        if self._known_config(built.digest) is None:
            write_whole(self._config_path(built.digest), config)
        return PackedImage(manifest_of(config, layers, form), config, layers)

    @staticmethod
    def _layers(config: bytes, cache: LayerCache) -> list[CompressedLayer | None]:
        return [cache.get(diff_id) for diff_id in _diff_ids(config)]

    def _compress(self, built: BuiltImage, cache: LayerCache, report: Reporter) -> bytes:
        """Compress the layers that the cache lacks; return the configuration."""

        def compress(layer: IO[bytes]) -> None:
            compressed = cache.add(iter(lambda: layer.read(READ_BYTES), b""))
            detail(report)(f"compressed layer {short(compressed.diff_id)} ({format_bytes(compressed.bytes)})")

        def reader_of(digest: str) -> Callable[[IO[bytes]], None] | None:
            # An uncompressed layer is stored under the digest of its content.
            return None if cache.get(Digest(digest)) else compress

        if self.engine.image(built.stored) is None:
            raise PublishError(
                f"the engine no longer has the tested image {short(built.digest)}",
                hint=f"run `bake release {built.image.name}`",
            )
        with usage_lock.engine_in_use():
            return self.engine.read_image(built.stored, reader_of).config

    def config(self, built: BuiltImage) -> bytes:
        """Return the configuration of an image."""
        if config := self._known_config(built.digest):
            return config
        with usage_lock.engine_in_use():
            return self.engine.read_config(built.stored)

    def _known_config(self, digest: Digest) -> bytes | None:
        try:
            config = read_bytes(self._config_path(digest))
        except OSError:
            return None
        # A damaged file counts as missing and is written again.
        return config if digest_of(config) == digest else None

    def _config_path(self, digest: Digest) -> Path:
        return self.cache / "configurations" / f"{digest.removeprefix('sha256:')}.json"


def _diff_ids(config: bytes) -> list[Digest]:
    return [Digest(str(diff_id)) for diff_id in json.loads(config)["rootfs"]["diff_ids"]]


def manifest_of(config: bytes, layers: tuple[CompressedLayer, ...], form: Form) -> Manifest:
    document = {
        "schemaVersion": 2,
        "mediaType": form.manifest,
        "config": {"mediaType": form.config, "size": len(config), "digest": digest_of(config)},
        "layers": [
            {"mediaType": form.layer, "size": layer.bytes, "digest": layer.digest} for layer in layers
        ],
    }
    return parse(json.dumps(document, separators=(",", ":")).encode())
