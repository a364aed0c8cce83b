"""Paths of an engine that Bakehouse starts."""

from dataclasses import dataclass
from pathlib import Path

CONTAINERD = "containerd"


@dataclass(frozen=True, slots=True)
class DaemonPaths:
    """Paths of an engine; each engine has its own."""

    state: Path = Path("/var/lib/bakehouse")
    """Directory of configuration, log and lock. All checkouts share it, because they share one engine."""
    socket: Path = Path("/var/run/docker.sock")
    data_root: Path = Path("/var/lib/docker")
    exec_root: Path = Path("/var/run/docker")
    pidfile: Path = Path("/var/run/docker.pid")
    containerd: Path = Path("/run/containerd/containerd.sock")
    """Socket of the system's containerd, which dockerd uses if it exists."""
    configured: Path = Path("/etc/docker/daemon.json")
    """Engine configuration of the machine's owner; copied, never written."""
    command: tuple[str, ...] = ("dockerd",)
    store: str = CONTAINERD
    """Image store: containerd's store, or a storage driver."""

    @classmethod
    def below(
        cls, directory: Path, command: tuple[str, ...] = ("dockerd",), store: str = CONTAINERD
    ) -> "DaemonPaths":
        """Return the paths of an engine with all files in one directory, including the owner's configuration.

        The directory's path must be short: a socket's path has at most 107 bytes.
        """
        return cls(
            state=directory / "state",
            socket=directory / "docker.sock",
            data_root=directory / "data",
            exec_root=directory / "exec",
            pidfile=directory / "docker.pid",
            containerd=directory / "containerd.sock",
            configured=directory / "owner.json",
            command=command,
            store=store,
        )

    @property
    def configuration(self) -> Path:
        return self.state / "daemon.json"

    @property
    def in_use(self) -> Path:
        """Lock file: builds and pushes share it, a restart holds it exclusively."""
        return self.state / "in-use"

    @property
    def log(self) -> Path:
        return self.state / "dockerd.log"

    @property
    def endpoint(self) -> str:
        return f"unix://{self.socket}"
