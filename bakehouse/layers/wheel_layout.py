"""The script `layout-wheels`, which build steps run, as a library: wheels to the archives of layers."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import IO, Any, Protocol

from bakehouse.catalog.project import HOME
from bakehouse.catalog.python_lock import Package
from bakehouse.errors import BuildError
from bakehouse.plan.model import Stage
from bakehouse.util.files import read_bytes
from bakehouse.util.oci import EPOCH

SCRIPT = HOME / "templates/bin/layout-wheels"
PREFIX = "/opt/venv"


class LaidOutFile(Protocol):
    """A file of a layer."""

    mode: int
    size: int
    data: bytes | None


class Wheel(Protocol):
    """A wheel and the files that it installs, by path without a leading slash."""

    name: str
    file: str
    info: str
    site: str
    entries: Mapping[str, LaidOutFile]

    def chunks(self, entry: LaidOutFile) -> Iterator[bytes]:
        """Yield the content of a file."""


def open_wheels(stage: Stage, paths: Mapping[Package, Path]) -> dict[Package, Wheel]:
    """Return the wheels of a stage, after all checks that need no content. Raises BuildError."""
    script = _script()
    place = script.Place(PREFIX, stage.python, stage.dropped)
    with _as_build_errors():
        wheels = {package: script.Wheel(path, place) for package, path in paths.items()}
        for package, wheel in wheels.items():
            script.check_version(wheel, package.version)
        script.check_owners([*wheels.values()])
    return wheels


def layer_entries(wheels: Sequence[Wheel], name: str) -> Mapping[str, LaidOutFile]:
    """Return all files of the layer `name`, with its list."""
    entries: Mapping[str, LaidOutFile] = _script().layer_files(wheels, name)[0]
    return entries


def write_layer(stream: IO[bytes], wheels: Sequence[Wheel], name: str) -> None:
    """Write the archive of the layer `name`. Raises BuildError for a wheel that differs from its RECORD."""
    with _as_build_errors():
        _script().write_layer(stream, wheels, name, EPOCH)


def write_byte_code(stream: IO[bytes], codes: Mapping[str, bytes], name: str) -> None:
    """Write the archive of the byte code of the layer `name`."""
    script = _script()
    script.write_archive(stream, script.byte_code_files(codes, f"{name}.pyc"), EPOCH)


def write_files(stream: IO[bytes], files: Mapping[str, tuple[int, bytes]]) -> None:
    """Write the archive of a layer with files, by path with their modes."""
    _script().write_archive(stream, files, EPOCH)


def sources(wheel: Wheel) -> dict[str, bytes]:
    """Return the sources of a wheel that get byte code, by path."""
    with _as_build_errors():
        return {path: b"".join(wheel.chunks(wheel.entries[path])) for path in source_paths(wheel)}


def source_paths(wheel: Wheel) -> list[str]:
    """Return the sources of a wheel that get byte code."""
    paths: list[str] = _script().sources(wheel)
    return paths


def code_paths(wheel: Wheel, python: str) -> list[str]:
    """Return the paths of the byte code of a wheel; invalid sources have none."""
    paths = (path.rpartition("/") for path in source_paths(wheel))
    tag = f"cpython-{python.replace('.', '')}"
    return [f"{parent}/__pycache__/{name.removesuffix('.py')}.{tag}.pyc" for parent, _, name in paths]


def record_path(wheel: Wheel) -> str:
    return f"{wheel.site}/{wheel.info}/RECORD"


@contextlib.contextmanager
def _as_build_errors() -> Iterator[None]:
    script: Any = _script()
    try:
        yield
    except script.LayoutError as error:
        raise BuildError(f"a wheel cannot be installed: {error}") from error


@cache
def _script() -> ModuleType:
    """Load the script, which has no file extension. No byte code is written next to it."""
    module = ModuleType("layout_wheels")
    exec(compile(read_bytes(SCRIPT), SCRIPT, "exec"), module.__dict__)
    return module
