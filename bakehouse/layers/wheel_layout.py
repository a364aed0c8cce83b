"""The script `layout-wheels`, which build steps run, as a library: wheels to the archives of layers."""

import contextlib
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import IO, Any, Protocol

from bakehouse.catalog.project import HOME
from bakehouse.catalog.python_lock import Package
from bakehouse.errors import BuildError
from bakehouse.plan.model import Stage
from bakehouse.util.files import read_bytes, write_whole
from bakehouse.util.oci import EPOCH
from bakehouse.util.tempdir import private_directory

SCRIPT = HOME / "templates/bin/layout-wheels"
PREFIX = "/opt/venv"


class Wheel(Protocol):
    """A wheel and the files that it installs, by path without a leading slash."""

    file: str
    entries: Mapping[str, Any]

    def chunks(self, entry: Any) -> Iterator[bytes]:
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
        return {path: b"".join(wheel.chunks(wheel.entries[path])) for path in _script().sources(wheel)}


def byte_code(contents: Mapping[str, bytes], *, python: str, directory: Path) -> dict[str, bytes]:
    """Return the byte code of sources by path, compiled by a Python of this machine in a new directory."""
    with private_directory(directory) as root:
        for path, content in contents.items():
            write_whole(root / path, content)
        listing, out = root / "sources.txt", root / "byte-code"
        write_whole(listing, "\n".join(contents))
        command = [python, "-I", "-S", *map(str, (SCRIPT, "--compile", root, out, listing))]
        if subprocess.run(command, timeout=_script().COMPILE_SECONDS, check=False).returncode:
            message = "the byte code of packages could not be made"
            raise BuildError(message)
        return {str(path.relative_to(out)): read_bytes(path) for path in out.rglob("*.pyc")}


def code_path(path: str, python: str) -> str:
    """Return the path of the byte code of a source."""
    parent, _, name = path.rpartition("/")
    return f"{parent}/__pycache__/{name.removesuffix('.py')}.cpython-{python.replace('.', '')}.pyc"


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
