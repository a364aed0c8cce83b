"""What is installed in an image, as one container of it lists it."""

import json
from dataclasses import dataclass
from pathlib import Path

from bakehouse.engine.protocol import ContainerSpec, Engine
from bakehouse.errors import Diagnostic, PublishError
from bakehouse.plan.model import Image
from bakehouse.util.oci import Digest

_SCRIPT = Path(__file__).parents[1] / "probes/installed.py"
_PLACE = "/run/bakehouse/installed.py"
_SECONDS = 300.0


@dataclass(frozen=True, slots=True, order=True)
class SystemPackage:
    """A package of the image's distribution."""

    name: str
    version: str
    architecture: str


@dataclass(frozen=True, slots=True, order=True)
class Distribution:
    """A Python distribution, with the folders that have it."""

    name: str
    version: str
    folders: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Installed:
    """All that was found installed in an image."""

    system: str
    """Its distribution, such as `debian`; empty where it doesn't say."""
    system_version: str
    packages: tuple[SystemPackage, ...] | None
    """None where it has no dpkg: then nobody knows them."""
    distributions: tuple[Distribution, ...]


def list_installed(engine: Engine, image: Image, digest: Digest, log: Path) -> Installed:
    """What is installed in an image, asked in a container without network; raises PublishError."""
    spec = ContainerSpec(
        image=digest,
        command=("python3", "-I", _PLACE),
        files={_PLACE: _SCRIPT.read_bytes()},
        image_name=image.name,
    )
    with engine.container(spec) as container:
        container.start(log)
        ended = container.wait(_SECONDS)
        container.stop(grace=0)
        printed = container.stdout()
    if ended is None:
        raise _unlisted(image, f"no answer within {_SECONDS:g} s", log)
    if ended.exit_code:
        raise _unlisted(image, f"exited with {ended.exit_code}", log)
    try:
        return read(printed)
    except (ValueError, KeyError, TypeError) as error:
        raise _unlisted(image, "its answer is no list of packages", log) from error


def read(printed: str) -> Installed:
    """What `probes/installed.py` printed, in an order that is the same every time."""
    found = json.loads(printed)
    folders: dict[tuple[str, str], set[str]] = {}
    for one in found["python"]:
        folders.setdefault((one["name"], one["version"]), set()).add(one["folder"])
    debian = found["debian"]
    packages = debian if debian is None else tuple(sorted({SystemPackage(**one) for one in debian}))
    return Installed(
        system=found["system"].get("ID", ""),
        system_version=found["system"].get("VERSION_ID", ""),
        packages=packages,
        distributions=tuple(
            sorted(Distribution(*key, tuple(sorted(where))) for key, where in folders.items())
        ),
    )


def _unlisted(image: Image, answer: str, log: Path) -> PublishError:
    message = f"what is installed in `{image.name}` can't be listed"
    return PublishError(Diagnostic(message, facts=(("answer", answer), ("full log", str(log)))))
