"""The `registry` task: starts, stops and shows the local registry of the project."""

from dataclasses import dataclass
from pathlib import Path

from bakehouse.catalog.project import Project
from bakehouse.errors import PublishError, UsageError
from bakehouse.registry import destination
from bakehouse.registry.local_registry import EmbeddedRegistry
from bakehouse.util.format import format_bytes
from bakehouse.util.suggest import suggestion
from bakehouse.util.terminal import Reporter

ACTIONS = ("start", "stop", "status")


@dataclass(frozen=True, slots=True)
class RegistryStatus:
    """State of the local registry of a project."""

    host: str
    running: bool
    directory: str
    """Directory with its images."""
    bytes: int

    @property
    def text(self) -> str:
        state = "is running" if self.running else "is not running"
        return f"the registry at {self.host} {state}; {format_bytes(self.bytes)} in {self.directory}\n"


def run(project: Project, action: str, report: Reporter) -> RegistryStatus:
    """Start or stop the registry, and return its state. Raises UsageError for an unknown action."""
    if action not in ACTIONS:
        raise UsageError(
            f"`registry` has no action `{action}`",
            hint=suggestion(action, ACTIONS) or "use `start`, `stop` or `status`",
        )
    registry = destination.local_registry(project)
    if action == "start":
        with destination.open_local(project, report) as started:
            started.keep()
    elif action == "stop":
        if not registry.stop():
            raise PublishError(
                f"the registry at {registry.host} is in use",
                hint="it stops when the running push or release ends",
            )
    else:
        # It reports another server on the port.
        registry.check_port()
    return status(registry)


def status(registry: EmbeddedRegistry) -> RegistryStatus:
    """Return the state of a registry."""
    files = (path for path in registry.data.rglob("*") if path.is_file())
    size = sum(path.stat().st_size for path in files)
    return RegistryStatus(registry.host, registry.is_running(), str(Path(registry.data)), size)
