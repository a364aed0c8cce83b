"""Record of the project directory that built each image, so that cleaning one keeps the images of others.

Two projects, or two clones of one, may have images of the same name. Their names in the engine do not show
which directory built them, and a label would give clones different digests. The digests of built images show
whether a record contains the image that `latest` points to.
"""

import contextlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bakehouse.catalog.project import ProjectSettings, state_of
from bakehouse.engine.protocol import StoredImage
from bakehouse.errors import EngineError
from bakehouse.plan.model import LATEST, BootstrappedBase, Image
from bakehouse.util.file_lock import exclusive
from bakehouse.util.files import matching_paths, read_text, remove_file, remove_tree, write_whole
from bakehouse.util.hashing import key_of


@dataclass(frozen=True, slots=True)
class ImageOwners:
    """Names of images in the engine, by the directory that built them."""

    own: frozenset[str]
    """Built by the project itself."""
    others: Mapping[str, Path]
    """Built by a project in another directory, which still exists."""


def names_of(images: Iterable[Image]) -> frozenset[str]:
    """Return the names in the engine of images and of the bases that Bakehouse makes for them."""
    images = tuple(images)
    bases = {image.base.reference for image in images if isinstance(image.base, BootstrappedBase)}
    return frozenset(bases.union(*(image.names for image in images)))


def digest_name(name: str, digest: str) -> str:
    """Return the name that is recorded for the content of an image."""
    return f"{name.rpartition(':')[0]}@{digest}"


def owned_names(stored: Mapping[str, StoredImage]) -> dict[str, frozenset[str]]:
    """Return the recorded names of the image that each tag points to.

    Only `latest` moves between images. It points to the last build, which may be of another project.
    """
    others: dict[str, set[str]] = {}
    for name, image in stored.items():
        if not name.endswith(f":{LATEST}"):
            others.setdefault(digest_name(name, image.digest), set()).add(name)
    return {
        name: frozenset([content, *others.get(content, ())])
        if name.endswith(f":{LATEST}")
        else frozenset([name])
        for name, image in stored.items()
        for content in [digest_name(name, image.digest)]
    }


def record(project: ProjectSettings, names: Collection[str]) -> None:
    """Remember that the project uses the images with these names."""
    path = _path(project)
    with exclusive(_lock(project)):
        known = _read(path)[1]
        if not known.issuperset(names):
            _write(path, project.root, known.union(names))


@contextlib.contextmanager
def locked(project: ProjectSettings) -> Iterator[ImageOwners]:
    """Yield the recorded owners of images; until the end, builds of other projects wait to record theirs.

    Builds record the names of their images before they look them up. So an image that is removed meanwhile
    is built again.
    """
    with exclusive(_lock(project)):
        yield read(project)


def read(project: ProjectSettings) -> ImageOwners:
    """Return the recorded owners of images. Directories that no longer exist own none."""
    path = _path(project)
    others: dict[str, Path] = {}
    for other in matching_paths(path.parent, "*.json"):
        root, names = _read(other)
        if other != path and root.is_dir():
            others |= dict.fromkeys(names, root)
    return ImageOwners(frozenset(_read(path)[1]), others)


def forget(project: ProjectSettings, names: Collection[str]) -> None:
    """Remember that the project no longer uses the images."""
    path = _path(project)
    with exclusive(_lock(project)):
        _write(path, project.root, _read(path)[1] - {*names})


def adopt(project: ProjectSettings) -> None:
    """Record the images of directories that no longer exist as images of the project; remove their state."""
    path = _path(project)
    with exclusive(_lock(project)):
        for other in matching_paths(path.parent, "*.json"):
            root, names = _read(other)
            if other != path and not root.is_dir():
                _write(path, project.root, _read(path)[1] | names)
                remove_tree(state_of(root, project.user_state))
                remove_file(other)


def _lock(project: ProjectSettings) -> Path:
    return _path(project).with_name("lock")


def _path(project: ProjectSettings) -> Path:
    return project.user_state / "images" / f"{key_of(str(project.root))}.json"


def _read(path: Path) -> tuple[Path, set[str]]:
    try:
        content = json.loads(read_text(path))
        return Path(content["directory"]), {*content["images"]}
    except FileNotFoundError:
        return Path(), set()
    except (ValueError, KeyError, TypeError) as error:
        # Without it, images of another directory could be removed.
        message = f"{path} is damaged: {error}"
        raise EngineError(message, hint="remove it: `bake build` in its project recreates it") from None


def _write(path: Path, root: Path, names: Collection[str]) -> None:
    content = {"directory": str(root), "images": sorted(names)}
    write_whole(path, json.dumps(content, indent=1) + "\n")
