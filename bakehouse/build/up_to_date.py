"""Knows images again that were built from the very same files: BuildKit need not be asked about them."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from bakehouse.build.built_image import BuiltImage
from bakehouse.engine.protocol import Engine
from bakehouse.plan.image_lock import FILE as LOCK
from bakehouse.plan.model import Image, RegistryBase
from bakehouse.util.files import write_whole
from bakehouse.util.oci import Digest


def find_up_to_date(
    images: Iterable[Image], root: Path, state: Path, engine: Engine
) -> tuple[BuiltImage, ...]:
    """Those that the engine still holds, under all their names, as they were built from these same files.

    What a base without a digest stands for may have changed: such images are never among them.
    """
    found = []
    for image in images:
        if _stands_on_a_tag(image):
            continue
        digest = _recorded(_record(state, image), _files(root, image))
        if not digest:
            continue
        stored = [engine.image(name) for name in image.names]
        if all(one and one.digest == digest for one in stored) and (first := stored[0]):
            found.append(BuiltImage(image, Digest(digest), first.bytes))
    return tuple(found)


def record_build(built: BuiltImage, root: Path, state: Path) -> None:
    """Write down what an image's rendered files, under `root`, were built to."""
    content = {"files": _files(root, built.image), "digest": built.digest}
    write_whole(_record(state, built.image), json.dumps(content, indent=2) + "\n")


def _stands_on_a_tag(image: Image) -> bool:
    registry = isinstance(image.base, RegistryBase) and image.base.digest is None
    return registry or bool(image.build_base and "@" not in image.build_base)


def _record(state: Path, image: Image) -> Path:
    return state / "built" / f"{image.name}.json"


def _files(root: Path, image: Image) -> str:
    """The sha256 of all that BuildKit is given of an image."""
    folder = root / "images" / image.name
    seen = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        # The lock tells what the others say in words of its own.
        if path.is_file() and path != folder / LOCK:
            content = path.read_bytes()
            seen.update(f"{path.relative_to(folder)}\0{path.stat().st_mode:o}\0{len(content)}\0".encode())
            seen.update(content)
    return seen.hexdigest()


def _recorded(record: Path, files: str) -> str:
    try:
        known = json.loads(record.read_text())
        return str(known["digest"]) if known["files"] == files else ""
    except (OSError, ValueError, KeyError, TypeError):
        # Missing or unreadable: BuildKit knows as well, and takes a second.
        return ""
