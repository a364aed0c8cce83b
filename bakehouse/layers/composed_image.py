"""An image that differs from a stored one in layers that Bakehouse writes: configuration, manifest, archive.

The documents are those that BuildKit would write, byte for byte: they are made from its own.
"""

import io
import json
import re
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bakehouse.catalog.size_budget import REQUIREMENTS
from bakehouse.engine import image_load
from bakehouse.engine.content_store import StoredFiles
from bakehouse.engine.image_load import add_entry
from bakehouse.engine.oci_layout import full_name
from bakehouse.registry.manifest import digest_of
from bakehouse.util.oci import Digest

_WHEELS = re.compile(rf"COPY /out/((?:files|byte-code)/{REQUIREMENTS}~[^/]+)/ / # buildkit")
"""Copies of the recipe's packages; those of components are layers like others."""


@dataclass(frozen=True, slots=True)
class Layer:
    """An uncompressed layer."""

    digest: Digest
    size: int
    wheels: str = ""
    """For layers of wheels, the path below `/out` that the Dockerfile copies, such as `files/numpy`."""


def stored_layers(stored: StoredFiles) -> tuple[Layer, ...] | None:
    """Return the layers of a stored image as `layers_of` does, if they are uncompressed."""
    manifest = json.loads(stored.manifest)
    layers = layers_of(stored.config, [blob["size"] for blob in manifest["layers"]])
    is_plain = [blob["digest"] for blob in manifest["layers"]] == [layer.digest for layer in layers or ()]
    return layers if is_plain and _encode_manifest(manifest) == stored.manifest else None


def layers_of(configuration: bytes, sizes: Sequence[int]) -> tuple[Layer, ...] | None:
    """Return the layers of an image, lowest first; None for another form than that of BuildKit."""
    config = json.loads(configuration)
    digests = config["rootfs"]["diff_ids"]
    steps = [step for step in config.get("history", ()) if not step.get("empty_layer")]
    if _encode_config(config) != configuration or not len(steps) == len(digests) == len(sizes):
        return None
    return tuple(
        Layer(Digest(digest), size, _wheels(step))
        for digest, size, step in zip(digests, sizes, steps, strict=True)
    )


@dataclass(frozen=True, slots=True)
class ComposedImage:
    """The documents of a new image."""

    manifest: bytes
    config: bytes

    @property
    def digest(self) -> Digest:
        return digest_of(self.manifest)


def compose(stored: StoredFiles, layers: Sequence[Layer]) -> ComposedImage:
    """Return an image with other layers; apart from those of wheels, they have the same instructions."""
    manifest, content = json.loads(stored.manifest), compose_config(stored.config, layers)
    manifest["config"] |= {"digest": digest_of(content), "size": len(content)}
    blob = manifest["layers"][-1]
    manifest["layers"] = [{**blob, "digest": layer.digest, "size": layer.size} for layer in layers]
    return ComposedImage(_encode_manifest(manifest), content)


def compose_config(old: bytes, layers: Sequence[Layer]) -> bytes:
    """Return the configuration of an image with other layers, as `compose` does."""
    config = json.loads(old)
    history = config["history"]
    first = next((number for number, step in enumerate(history) if _wheels(step)), 0)
    steps = [
        {**history[first], "created_by": f"COPY /out/{layer.wheels}/ / # buildkit"}
        for layer in layers
        if layer.wheels
    ]
    others = [step for step in history if not _wheels(step)]
    config["history"] = [*others[:first], *steps, *others[first:]]
    config["rootfs"]["diff_ids"] = [layer.digest for layer in layers]
    return _encode_config(config)


def load(image: ComposedImage, new: Mapping[Digest, Path], names: Sequence[str]) -> None:
    """Load an image into an engine that has all its layers apart from `new` ones. Raises BuildError."""
    document = json.loads(image.manifest)
    described = {"mediaType": document["mediaType"], "digest": image.digest, "size": len(image.manifest)}
    index = {
        "schemaVersion": 2,
        "manifests": [
            {**described, "annotations": {"io.containerd.image.name": full_name(name)}} for name in names
        ],
    }
    texts = {
        "oci-layout": b'{"imageLayoutVersion":"1.0.0"}',
        "index.json": json.dumps(index).encode(),
        _blob(image.digest): image.manifest,
        _blob(digest_of(image.config)): image.config,
    }

    def write(archive: tarfile.TarFile) -> None:
        for name, content in texts.items():
            add_entry(archive, name, io.BytesIO(content), len(content))
        for digest, path in new.items():
            with path.open("rb") as stream:
                add_entry(archive, _blob(digest), stream, path.stat().st_size)

    image_load.load(write, f"the engine could not load `{names[0]}`", "check `docker system df`")


def _blob(digest: Digest) -> str:
    return f"blobs/sha256/{digest.removeprefix('sha256:')}"


def _wheels(step: Mapping[str, Any]) -> str:
    """Return the path of the wheels that a step of a history copies; empty for other steps."""
    match = _WHEELS.fullmatch(str(step.get("created_by")))
    return match[1] if match else ""


def _encode_config(document: Mapping[str, Any]) -> bytes:
    """Return a document as Go writes it: without spaces, and with escaped characters of HTML."""
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode()


def _encode_manifest(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, indent=2, ensure_ascii=False).encode()
