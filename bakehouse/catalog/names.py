"""Frameworks and titles, from `data/names.toml`, for code that reads no catalogue."""

import tomllib
from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bakehouse.util.files import read_text


@dataclass(frozen=True, slots=True)
class Framework:
    """A component that jobs use to train, and that images have one of."""

    title: str
    package: str
    cpu_package: str = ""
    """Name of the package without files for GPUs, if it has another one."""
    toolkit: str = ""
    """Component that lets the SageMaker Training Toolkit start its jobs."""
    strategies: tuple[str, ...] = ()
    """Keys of `distribution` that are only for it."""
    oldest_with_groups: tuple[int, ...] = ()
    """Oldest version whose images support instance groups; empty means all."""
    frozen: str = ""
    """Value of `frozen` for a base that contains it."""
    image: str = ""
    """Repository of its own images."""
    wheels: str = ""
    """Source of the component, in words."""


def _framework(row: Mapping[str, Any]) -> Framework:
    lists = {key: tuple(value) for key, value in row.items() if isinstance(value, list)}
    return Framework(**{**row, **lists})


_NAMES: dict[str, Any] = tomllib.loads(read_text(Path(__file__).with_name("data") / "names.toml"))
FRAMEWORKS: dict[str, Framework] = {name: _framework(row) for name, row in _NAMES["frameworks"].items()}
TITLES: dict[str, str] = {name: framework.title for name, framework in FRAMEWORKS.items()} | _NAMES["titles"]


def framework_among(names: Container[str]) -> str:
    """Return the first framework among the names of an image's contents; empty without one."""
    return next((name for name in FRAMEWORKS if name in names), "")


def framework_titled(title: str) -> str:
    """Return the framework of a class of the SDK; the first one starts images without a framework, too."""
    return next((name for name, known in FRAMEWORKS.items() if known.title == title), next(iter(FRAMEWORKS)))
