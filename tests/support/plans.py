"""Images and stages of plans that tests make by hand."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bakehouse.catalog.component import Artifact
from bakehouse.catalog.python_lock import Package
from bakehouse.catalog.recipe import Content
from bakehouse.plan.model import (
    BootstrappedBase,
    Image,
    ImageKey,
    InstalledComponent,
    RegistryBase,
    Stage,
    StageKey,
)
from tests.support.locked_debian import LOCKED

DEBIAN = InstalledComponent("debian", "12", "")


def image(
    name: str,
    *,
    key: str = "a" * 64,
    summary: str = "",
    base: BootstrappedBase | RegistryBase | None = None,
    parts: tuple[InstalledComponent, ...] = (),
    gpu: bool = False,
    launchers: tuple[str, ...] = ("mpirun",),
    environment: Mapping[str, str] | None = None,
    entry_point: str | None = None,
) -> Image:
    """Return an image without stages, whose key is not that of its inputs."""
    locked = BootstrappedBase("bakehouse/debian:12-12345678", "bookworm", (), LOCKED)
    return Image(
        name,
        summary,
        base or locked,
        (DEBIAN, *parts),
        Content(entry_point=entry_point),
        gpu=gpu,
        launchers=launchers,
        environment=environment or {},
        recipe_key=ImageKey(key),
        key=ImageKey(key),
    )


def stage(
    part: InstalledComponent,
    packages: tuple[Package, ...] = (),
    artifacts: Iterable[Artifact] = (),
    key: str = "b" * 64,
) -> Stage:
    """Return the stage of a component, whose key is not that of its inputs."""
    return Stage(
        part,
        "",
        source=Path(part.component),
        artifacts={artifact.name: artifact for artifact in artifacts},
        locked=packages,
        key=StageKey(key),
    )


def changed(image: Image, **values: Any) -> Image:
    """Return an image with other values of its fields, and the same key."""
    base_part, parts = values.pop("base_part", image.base_part), values.pop("parts", image.parts)
    if "entry_point" in values:
        values["content"] = replace(image.content, entry_point=values.pop("entry_point"))
    return replace(image, **{"all_parts": (base_part, *parts), "rendered": None, **values})
