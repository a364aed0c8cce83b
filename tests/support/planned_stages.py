"""Stages of an image with the files that they need."""

import hashlib
from dataclasses import replace
from pathlib import Path

from bakehouse.catalog.component import Artifact
from bakehouse.catalog.python_lock import Package
from bakehouse.errors import Location
from bakehouse.plan.model import BootstrappedBase, Image, InstalledComponent, Stage, StageKey
from tests.support import fake_engine

HERE = Location(Path("x"), 1, 1)
WHEEL, SOURCE, ARCHIVE = b"a wheel", b"a source", b"an archive"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def package(content: bytes, file: str) -> Package:
    name, version = file.split("-")[:2]
    return Package(name, version.removesuffix(".tar.gz"), sha256(content), file, len(content), HERE)


def artifact(content: bytes | None, file: str, url: str) -> Artifact:
    return Artifact("source", "url", url, file, sha256(content) if content else None, HERE)


def stage(name: str, *packages: Package, artifacts: tuple[Artifact, ...] = ()) -> Stage:
    return Stage(
        name=name,
        key=StageKey(name),
        part=InstalledComponent(name, "1", ""),
        source=Path(),
        template="",
        artifacts={artifact.name: artifact for artifact in artifacts},
        wheels=tuple(package for package in packages if not package.is_sdist),
        sdists=tuple(package for package in packages if package.is_sdist),
        build_apt=(),
        facts={},
        files={},
    )


def an_image(name: str, *stages: Stage) -> Image:
    base = BootstrappedBase("bakehouse/debian:12-00000000", "bookworm", ())
    return replace(fake_engine.image(name), stages=stages, base=base)
