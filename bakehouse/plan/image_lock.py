"""Format the lock of an image: its recipe key, and the sha256 of files that its build downloads or copies.

Training code is left out, so that editing it does not change committed files.
"""

import json
from collections.abc import Iterable
from functools import lru_cache

from bakehouse.catalog.component import Artifact
from bakehouse.catalog.user_files import File
from bakehouse.plan.model import BootstrappedBase, Image

FILE = "lock.json"
FORMAT = 1


def text(image: Image) -> str:
    """Return the lock as JSON with one file per line; unknown values are null."""
    packages = (package.row for stage in image.stages for package in (*stage.wheels, *stage.sdists))
    archives = (artifact for stage in image.stages for artifact in stage.artifacts.values())
    sections = {
        "format": json.dumps(FORMAT),
        "image": json.dumps(image.name),
        "key": json.dumps(image.recipe_key),
        "base": _base(image),
        "system": _rows((deb.row for deb in image.debs) if image.locks_apt else _names(image)),
        "archives": _rows(map(_archive, archives)),
        "python": _rows(packages),
    }
    if files := image.content.files:
        sections["files"] = _rows(map(_file, files))
    return "{\n" + ",\n".join(f' "{name}": {value}' for name, value in sections.items()) + "\n}\n"


def _rows(rows: Iterable[str]) -> str:
    unique = sorted({*rows})
    return "[\n  " + ",\n  ".join(unique) + "\n ]" if unique else "[]"


def _base(image: Image) -> str:
    if isinstance(image.base, BootstrappedBase):
        return json.dumps({"reference": image.base.reference, "bootstrapped": image.base.suite})
    build = {"build": image.build_base} if image.build_base else {}
    return json.dumps({"reference": image.base.reference, "digest": image.base.digest, **build})


def _names(image: Image) -> Iterable[str]:
    """Return rows of distribution packages that are not locked."""
    names = {*image.apt, *image.toolchain, *(name for stage in image.stages for name in stage.build_apt)}
    return map(_name, names)


def _file(file: File) -> str:
    row = {"file": file.target, "sha256": file.sha256, "bytes": file.size, "executable": file.is_executable}
    return json.dumps(row)


# Images share most of their files, so the rows are cached.
@lru_cache(4096)
def _name(name: str) -> str:
    return json.dumps({"name": name, "version": None, "sha256": None})


@lru_cache(4096)
def _archive(artifact: Artifact) -> str:
    row = {
        "file": artifact.file,
        "sha256": artifact.sha256,
        "bytes": artifact.bytes,
        "source": artifact.address,
    }
    return json.dumps(row)
