"""Packages that are installed in an image, as listed in a container."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bakehouse.engine.protocol import ContainerSpec, Engine
from bakehouse.errors import PublishError
from bakehouse.plan.model import Image
from bakehouse.util.files import read_bytes
from bakehouse.util.oci import Digest

_SCRIPT = Path(__file__).parents[1] / "probes/installed.py"
_PATH = "/run/bakehouse/installed.py"
_SECONDS = 300.0


@dataclass(frozen=True, slots=True, order=True)
class SystemPackage:
    """An operating system package."""

    name: str
    version: str
    architecture: str


@dataclass(frozen=True, slots=True, order=True)
class Distribution:
    """A Python distribution, with the directories that contain it."""

    name: str
    version: str
    folders: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Installed:
    """All packages that are installed in an image."""

    system: str
    """The operating system, such as `debian`; empty if unknown."""
    system_version: str
    packages: tuple[SystemPackage, ...] | None
    """None if the image has neither dpkg nor rpm."""
    distributions: tuple[Distribution, ...]
    kind: Literal["deb", "rpm"] = "deb"
    """Kind of the packages."""


def list_installed(engine: Engine, image: Image, digest: Digest, log: Path) -> Installed:
    """List the packages of an image in a container without network. Raises PublishError."""
    spec = ContainerSpec(
        image=digest,
        command=("python3", "-I", _PATH),
        files={_PATH: read_bytes(_SCRIPT)},
        image_name=image.name,
    )
    with engine.container(spec) as container:
        container.start(log)
        exit_status = container.wait(_SECONDS)
        container.stop(grace=0)
        printed = container.stdout()
    if exit_status is None:
        raise _listing_error(image, f"no answer within {_SECONDS:g} s", log)
    if exit_status.exit_code:
        raise _listing_error(image, f"exited with {exit_status.exit_code}", log)
    try:
        return read(printed)
    except (ValueError, KeyError, TypeError) as error:
        raise _listing_error(image, "the output is not a list of packages", log) from error


def read(printed: str) -> Installed:
    """Parse the output of `probes/installed.py` into sorted packages."""
    document = json.loads(printed)
    folders: dict[tuple[str, str], set[str]] = {}
    for item in document["python"]:
        folders.setdefault((item["name"], item["version"]), set()).add(item["folder"])
    kind: Literal["deb", "rpm"] = (
        "deb" if document["rpm"] is None or document["debian"] is not None else "rpm"
    )
    rows = document["rpm"] if kind == "rpm" else document["debian"]
    packages = rows if rows is None else tuple(sorted({SystemPackage(**item) for item in rows}))
    return Installed(
        system=document["system"].get("ID", ""),
        system_version=document["system"].get("VERSION_ID", ""),
        packages=packages,
        distributions=tuple(
            sorted(Distribution(*key, tuple(sorted(paths))) for key, paths in folders.items())
        ),
        kind=kind,
    )


def _listing_error(image: Image, reason: str, log: Path) -> PublishError:
    message = f"the packages of image `{image.name}` cannot be listed"
    return PublishError(message, facts=(("answer", reason), ("full log", str(log))))
