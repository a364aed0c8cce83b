"""Images and stages of plans that tests make by hand."""

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from bakehouse.catalog.component import Artifact
from bakehouse.catalog.python_lock import Package
from bakehouse.catalog.recipe import Content
from bakehouse.plan.model import (
    BootstrappedBase,
    Foundation,
    Image,
    ImageKey,
    InstalledComponent,
    KeyedImage,
    KeyedStage,
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
    foundation = Foundation(
        base=base or locked,
        build_base="",
        toolchain=(),
        toolchain_debs=(),
        base_facts={},
        frozen=(),
        templates={},
    )
    keyed = KeyedImage(
        name=name,
        summary=summary,
        foundation=foundation,
        stages=(),
        apt=(),
        apt_debs=(),
        environment=environment or {},
        path=(),
        library_path=(),
        entrypoint=(),
        all_parts=(DEBIAN, *parts),
        content=Content(entry_point=entry_point),
        constraints=(),
        scripts={},
    )
    return Image(keyed, ImageKey(key), ImageKey(key), gpu=gpu, launchers=launchers)


def stage(
    part: InstalledComponent,
    packages: tuple[Package, ...] = (),
    artifacts: Iterable[Artifact] = (),
    key: str = "b" * 64,
) -> Stage:
    """Return the stage of a component, whose key is not that of its inputs."""
    keyed = KeyedStage(
        foundation="",
        part=part,
        template="",
        artifacts={artifact.name: artifact for artifact in artifacts},
        packages=packages,
        build_apt=(),
        debs=(),
        facts={},
        files={},
        scripts={},
        dropped=(),
        below=(),
    )
    return Stage(keyed, StageKey(key), source=Path(part.component))


def changed(image: Image, **values: Any) -> Image:
    """Return an image with other values of its fields, or of its inputs, and the same key."""
    keyed, foundation = image.keyed, image.keyed.foundation
    base_part, parts = values.pop("base_part", image.base_part), values.pop("parts", image.parts)
    values = {"all_parts": (base_part, *parts), **values}
    own = {item.name: values.pop(item.name) for item in fields(Image) if item.name in values}
    shared = {item.name: values.pop(item.name) for item in fields(Foundation) if item.name in values}
    if "entry_point" in values:
        values["content"] = replace(keyed.content, entry_point=values.pop("entry_point"))
    foundation = replace(foundation, **shared)
    keyed = replace(keyed, foundation=foundation, **values)
    return replace(image, keyed=keyed, **own)
