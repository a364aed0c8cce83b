"""Stages of an image with the files that they need."""

import hashlib
from pathlib import Path

from bakehouse.catalog.component import Artifact
from bakehouse.catalog.python_lock import Package
from bakehouse.errors import Location
from bakehouse.plan.model import BootstrappedBase, Image, InstalledComponent, Stage
from tests.support import fake_engine, plans

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
    return plans.stage(InstalledComponent(name, "1", ""), packages, artifacts, key=name)


def an_image(name: str, *stages: Stage) -> Image:
    base = BootstrappedBase("bakehouse/debian:12-00000000", "bookworm", ())
    return plans.changed(fake_engine.image(name), stages=stages, base=base)
