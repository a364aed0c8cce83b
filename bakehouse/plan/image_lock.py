"""The lock of an image: every file of its build by sha256, and the build key."""

import json
from collections.abc import Iterable
from functools import lru_cache

from bakehouse.catalog.component import Artifact
from bakehouse.plan.model import BootstrappedBase, Image

FILE = "lock.json"


def text(image: Image) -> str:
    """Return the lock as JSON with one line for each file. Unknown values are null."""
    packages = (one.row for stage in image.stages for one in (*stage.wheels, *stage.sdists))
    archives = (one for stage in image.stages for one in stage.artifacts.values())
    own = {
        "image": json.dumps(image.name),
        "key": json.dumps(image.key),
        "base": _base(image),
        "system": _rows((deb.row for deb in image.debs) if image.locks_apt else _names(image)),
        "archives": _rows(map(_archive, archives)),
        "python": _rows(packages),
    }
    return "{\n" + ",\n".join(f' "{name}": {written}' for name, written in own.items()) + "\n}\n"


def _rows(written: Iterable[str]) -> str:
    rows = sorted({*written})
    return "[\n  " + ",\n  ".join(rows) + "\n ]" if rows else "[]"


def _base(image: Image) -> str:
    if isinstance(image.base, BootstrappedBase):
        return json.dumps({"reference": image.base.reference, "bootstrapped": image.base.suite})
    build = {"build": image.build_base} if image.build_base else {}
    return json.dumps({"reference": image.base.reference, "digest": image.base.digest, **build})


def _names(image: Image) -> Iterable[str]:
    """Return the Debian packages without a lock, whose files the mirrors determine."""
    asked = {*image.apt, *image.toolchain, *(name for stage in image.stages for name in stage.build_apt)}
    return map(_name, asked)


# Images share most files, so the JSON of each is cached.
@lru_cache(4096)
def _name(one: str) -> str:
    return json.dumps({"name": one, "version": None, "sha256": None})


@lru_cache(4096)
def _archive(one: Artifact) -> str:
    return json.dumps({"file": one.file, "sha256": one.sha256, "bytes": one.bytes, "source": one.address})
