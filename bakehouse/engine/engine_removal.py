"""Record of what Bakehouse installed on this machine to run an engine, and its removal."""

import json
import os
import shutil
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from pathlib import Path

from bakehouse.engine import dockerd
from bakehouse.engine.apt_install import Apt
from bakehouse.engine.daemon_paths import DaemonPaths
from bakehouse.errors import EngineError, UsageError
from bakehouse.util.files import write_whole
from bakehouse.util.format import format_count
from bakehouse.util.json_reader import decode, parse_json
from bakehouse.util.terminal import Reporter

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Installation:
    """Additions of Bakehouse to this machine; nothing else is ever removed."""

    packages: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    directories: tuple[str, ...] = ()
    """Directories that did not exist before, such as that of the engine's data."""

    def with_more(
        self, packages: Collection[str] = (), files: Collection[Path] = (), directories: Collection[Path] = ()
    ) -> "Installation":
        """Return the record with additions."""
        return Installation(
            tuple(sorted({*self.packages, *packages})),
            tuple(sorted({*self.files, *map(str, files)})),
            tuple(sorted({*self.directories, *map(str, directories)})),
        )


def record_of(paths: DaemonPaths) -> Path:
    """Return the file of the record."""
    return paths.state / "installed.json"


def read(paths: DaemonPaths) -> Installation:
    """Return the record; empty if Bakehouse installed nothing. Raises EngineError for a damaged one."""
    file = record_of(paths)
    try:
        document = parse_json(file.read_bytes())
        if document["version"] != _VERSION:
            message = f"its version is {document['version']}, not {_VERSION}"
            raise ValueError(message)
        return decode(document, Installation)
    except FileNotFoundError:
        return Installation()
    except (ValueError, KeyError, TypeError) as error:
        raise EngineError(
            f"`{file}` is not a record of an installation: {error}",
            hint="remove the packages of the engine with apt",
        ) from error


def write(paths: DaemonPaths, installation: Installation) -> None:
    """Write the record."""
    write_whole(record_of(paths), json.dumps({"version": _VERSION, **asdict(installation)}, indent=1) + "\n")


def summary(installation: Installation) -> str:
    """Return what stays on the machine, and how to remove it."""
    packages = format_count(len(installation.packages), "package")
    names = ", ".join(("", *installation.files, *installation.directories))
    return f"on this machine stay {packages}{names}; `bake clean --engine` removes them"


def remove(
    ask: Callable[[str], bool | None],
    report: Reporter,
    paths: DaemonPaths | None = None,
    apt: Apt | None = None,
) -> str:
    """Remove what the record names, after a confirmation. Raises UsageError or EngineError."""
    paths = paths or DaemonPaths()
    apt = apt or Apt(paths.state / "apt.log")
    installation = read(paths)
    if installation == Installation():
        raise UsageError(
            "Bakehouse has installed no engine on this machine",
            hint=f"its record would be `{record_of(paths)}`",
        )
    if os.geteuid() != 0:
        raise EngineError("only root can remove the engine", hint="run the same command as root")
    packages = [name for name in installation.packages if name in apt.installed()]
    if others := sorted({*apt.removed_with(packages)} - {*packages}):
        raise EngineError(
            f"other packages need the engine: {', '.join(others)}",
            hint="remove these packages with apt first",
        )
    report("Bakehouse will remove what it has installed:")
    if packages:
        report(f"  - packages: {' '.join(packages)}")
    for file in installation.files:
        report(f"  - {file}")
    for directory in installation.directories:
        report(f"  - {directory}, with all images, containers and volumes in it")
    if ask("Continue?") is not True:
        raise EngineError("nothing was removed", hint="run the command in a terminal, and confirm")
    dockerd.stop(paths)
    if packages:
        apt.purge(packages, report)
    for file in installation.files:
        Path(file).unlink(missing_ok=True)
    for directory in installation.directories:
        shutil.rmtree(directory, ignore_errors=True)
    record_of(paths).unlink()
    return f"removed {format_count(len(packages), 'package')} and the data of the engine\n"
