"""Find images that were already built from the same files, without a call to BuildKit."""

import contextlib
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from bakehouse.builder.built_image import BuiltImage
from bakehouse.builder.disk_estimate import layer_bytes
from bakehouse.catalog.project import ProjectSettings
from bakehouse.catalog.size_budget import REQUIREMENTS
from bakehouse.engine.buildx import BakedImage
from bakehouse.engine.protocol import Engine
from bakehouse.plan.dockerfile import FILE
from bakehouse.plan.model import LATEST, BootstrappedBase, Image, RegistryBase, reference_of
from bakehouse.util.files import files_below, matching_paths, read_bytes, write_whole
from bakehouse.util.hashing import key_of
from bakehouse.util.json_reader import parse_json
from bakehouse.util.oci import ContentId, Digest

_BUILT_FROM = ("Dockerfile", "docker-bake.json", "files", "inputs")
"""The files and directories of an image that BuildKit reads."""


def find_up_to_date(
    images: Iterable[Image], project: ProjectSettings, engine: Engine
) -> tuple[BuiltImage, ...]:
    """Return the images that the engine has, under all their names, built from the same files.

    Images whose base has no digest are never up to date, because its tag may have moved.
    """
    current = []
    for image in images:
        if _has_base_without_digest(image):
            continue
        recorded = _recorded(_record(project, image), _files(project, image))
        if not recorded:
            continue
        digests, content = recorded
        stored = [engine.image(name) for name in image.names]
        if all(match and match.digest == digests.stored for match in stored) and (first := stored[0]):
            current.append(BuiltImage(image, digests.config, digests.stored, first.bytes, content))
    return tuple(current)


def built_content(image: Image, project: ProjectSettings) -> ContentId | None:
    """Return the recorded content ID of what was built from an image's rendered files."""
    recorded = _recorded(_record(project, image), _files(project, image))
    return recorded[1] if recorded else None


def last_build(
    image: Image, project: ProjectSettings, engine: Engine
) -> tuple[Digest, tuple[str, ...]] | None:
    """Return the last build of an image, and what its layers above the base were made from.

    Returns None if the engine lacks it, or if more than layers changed.
    """
    try:
        content = parse_json(read_bytes(_record(project, image)))
        is_same, stored = content["settings"] == settings_key(image), Digest(content["stored"])
        layers = tuple(map(str, content["names"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    found = engine.image(reference_of(image.name, LATEST)) if is_same else None
    return (stored, layers) if found and found.digest == stored else None


def record_build(built: BuiltImage, project: ProjectSettings) -> None:
    """Record the digests that were built from an image's rendered files."""
    content = {
        "files": _files(project, built.image),
        "stored": built.stored,
        "config": built.digest,
        "content": built.content,
        "settings": settings_key(built.image),
        "names": built.image.layer_names,
        "layers": sorted(layer_bytes(built.image)),
    }
    write_whole(_record(project, built.image), json.dumps(content, indent=2) + "\n")


def kept_layers(project: ProjectSettings, engine: Engine) -> frozenset[str]:
    """Return the keys of the layers of images that were built here and that the engine still has."""
    keys: set[str] = set()
    for path in matching_paths(project.state / "built", "*.json"):
        with contextlib.suppress(OSError, ValueError, AttributeError, TypeError):
            content = parse_json(read_bytes(path))
            stored = engine.image(reference_of(path.stem, LATEST))
            if stored and stored.digest == content.get("stored"):
                keys.update(map(str, content.get("layers", ())))
    return frozenset(keys)


def _has_base_without_digest(image: Image) -> bool:
    has_tag = isinstance(image.base, RegistryBase) and image.base.digest is None
    return has_tag or bool(image.build_base and "@" not in image.build_base)


def _record(project: ProjectSettings, image: Image) -> Path:
    return project.state / "built" / f"{image.name}.json"


def settings_key(image: Image) -> str:
    """Return a key of the base, the instructions of the image without copies of wheels, and built wheels."""
    text = (image.rendered or {}).get(FILE, b"").decode().rpartition(" AS image\n")[2]
    lines = [line for line in text.split("\n") if not line.startswith(f"COPY --link --from={REQUIREMENTS} ")]
    base = image.base.reference if isinstance(image.base, BootstrappedBase) else image.base.pinned
    return key_of(base, image.platform, lines, [stage.wheels_key for stage in image.stages if stage.layers])


def _files(project: ProjectSettings, image: Image) -> str:
    """Return the sha256 of all files of an image that BuildKit reads; the key covers its training code."""
    directory = project.images / image.name
    digest = hashlib.sha256(image.key.encode())
    for path in files_below(directory):
        name = path.relative_to(directory)
        if name.parts[0] in _BUILT_FROM and path.is_file():
            content, is_executable = read_bytes(path), bool(path.stat().st_mode & 0o100)
            digest.update(f"{name}\0{is_executable}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def _recorded(record: Path, files: str) -> tuple[BakedImage, ContentId] | None:
    try:
        content = parse_json(read_bytes(record))
        baked = BakedImage(Digest(content["stored"]), Digest(content["config"]))
        return (baked, ContentId(content["content"])) if content["files"] == files else None
    except (OSError, ValueError, KeyError, TypeError):
        # Missing or unreadable: BuildKit recognizes the image too, in about a second.
        return None
