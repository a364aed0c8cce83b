"""Writes the lock of an image: every file that its build takes, by sha256, and the key of its plan."""

import json
from collections.abc import Mapping

from bakehouse.aptlock import Deb
from bakehouse.component import Artifact
from bakehouse.lockfile import Package
from bakehouse.plan import BootstrappedBase, Image

FILE = "lock.json"


def text(image: Image) -> str:
    """The lock as JSON, one file a line: what nobody has written down is null."""
    own = {
        "image": image.name,
        "key": image.key,
        "base": _base(image),
        "system": _system(image),
        "archives": [_archive(one) for stage in image.stages for one in stage.artifacts.values()],
        "python": [_package(one) for stage in image.stages for one in (*stage.wheels, *stage.sdists)],
    }
    pieces = (f" {json.dumps(name)}: {_written(value)}" for name, value in own.items())
    return "{\n" + ",\n".join(pieces) + "\n}\n"


def _base(image: Image) -> Mapping[str, object]:
    if isinstance(image.base, BootstrappedBase):
        return {"reference": image.base.reference, "bootstrapped": image.base.suite}
    build = {"build": image.build_base} if image.build_base else {}
    return {"reference": image.base.reference, "digest": image.base.digest, **build}


def _system(image: Image) -> list[Mapping[str, object]]:
    """The distribution's packages: files where they are locked, names alone where its mirrors decide."""
    if image.locks_apt:
        return [_deb(one) for one in sorted(image.debs, key=lambda one: one.name)]
    asked = {*image.apt, *image.toolchain, *(name for stage in image.stages for name in stage.build_apt)}
    return [{"name": name, "version": None, "sha256": None} for name in sorted(asked)]


def _deb(one: Deb) -> Mapping[str, object]:
    return {
        "name": one.name,
        "version": one.version,
        "sha256": one.sha256,
        "bytes": one.bytes,
        "file": one.path,
    }


def _archive(one: Artifact) -> Mapping[str, object]:
    return {"file": one.file, "sha256": one.sha256, "bytes": None, "source": one.address}


def _package(one: Package) -> Mapping[str, object]:
    return {
        "name": one.name,
        "version": one.version,
        "sha256": one.sha256,
        "bytes": one.bytes,
        "file": one.file,
    }


def _written(value: object) -> str:
    if isinstance(value, list):
        rows = sorted({json.dumps(one) for one in value})
        return "[\n" + ",\n".join(f"  {row}" for row in rows) + "\n ]" if rows else "[]"
    return json.dumps(value)
