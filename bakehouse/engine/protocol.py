"""What Bakehouse asks of a container engine: the narrow waist between its steps and `containers`."""

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

GIB = 1024**3


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """One container as it is to be started."""

    image: str
    """A digest of the engine's store, or a reference."""
    command: tuple[str, ...]
    keep_entrypoint: bool = False
    """Hand `command` to the image's own ENTRYPOINT instead of replacing it."""
    hostname: str = ""
    network: str = "none"
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Absolute paths inside the container and what lies there before it starts."""
    mounts: tuple[str, ...] = ()
    """Paths that get an empty volume of their own, which goes with the container."""
    room: Mapping[str, int] = field(default_factory=dict)
    """Those of `mounts` that hold only so many bytes; they lie in memory."""
    folders: Mapping[str, str] = field(default_factory=dict)
    """Paths inside the container and the folders of this machine that can be read there."""
    gpus: tuple[int, ...] = ()
    """Which of this machine's, by their numbers."""
    cpus: float | None = None
    memory: int | None = None
    """Bytes; more ends the process that asks for them."""
    shared_memory: int = 2 * GIB
    image_name: str = ""
    """The recipe's name of the image, for people who list containers."""


@dataclass(frozen=True, slots=True)
class ContainerExit:
    """How a container ended."""

    exit_code: int
    out_of_memory: bool = False


@dataclass(frozen=True, slots=True)
class StoredImage:
    """An image as the engine holds it."""

    digest: str
    bytes: int
    is_rehearsed: bool = False
    """Whether there are stand-ins in it: it may be neither tried nor published."""
    key: str = ""
    """What its plan was addressed by; empty where it is none of ours."""
    layers: tuple[str, ...] = ()
    """The digests of its layers' uncompressed archives, lowest first."""


@dataclass(frozen=True, slots=True)
class CleanupCounts:
    """What dead runs had left behind."""

    containers: int = 0
    networks: int = 0
    volumes: int = 0


class Container(Protocol):
    """A container that was made; it is removed when the context that gave it ends."""

    def start(self, log: Path, heard: Callable[[bytes], None] = ...) -> None:
        """Start it; all it prints goes to `log`, and to `heard`, as it comes."""

    def wait(self, seconds: float) -> ContainerExit | None:
        """How it ended, or None while it still runs after `seconds`."""

    def signal(self, name: str) -> None:
        """Send a signal to its first process, if that still runs."""

    def stop(self, grace: float) -> None:
        """Send SIGTERM, and SIGKILL after `grace` seconds."""

    def stdout(self) -> str:
        """All it printed to standard output so far."""

    def read(self, path: str) -> dict[str, bytes]:
        """The regular files under `path` by their relative names; none when `path` isn't there."""

    def sizes(self, path: str) -> dict[str, int]:
        """As `read`, with sizes for contents."""

    def copy(self, path: str, folder: Path) -> None:
        """Write the regular files under `path` below a folder of this machine."""

    def is_full(self, path: str) -> bool:
        """Whether a mount that holds only so much can take no more."""

    def address(self) -> str:
        """Where others on its network reach it; empty once it has ended."""

    def impair_network(self, netem: str) -> None:
        """Delay and lose what it sends from now on, as `tc … netem` is told."""

    def refuse(self, addresses: Collection[str]) -> None:
        """Let no packet from these addresses in from now on."""


class Engine(Protocol):
    """What Bakehouse asks of a container engine."""

    def image(self, reference: str) -> StoredImage | None:
        """The image of that name or digest, or None."""

    def export_image(self, reference: str) -> contextlib.AbstractContextManager[Iterable[bytes]]:
        """An image as an archive that comes in pieces, its layers as they are stored."""

    def container(self, spec: ContainerSpec) -> contextlib.AbstractContextManager[Container]:
        """A container made as `spec` says, with its files in place, not started."""

    def network(self, name: str) -> contextlib.AbstractContextManager[str]:
        """A network of its own for one job; gives its name."""

    def sweep(self) -> CleanupCounts:
        """Remove what runs that no longer live have left behind."""

    def remove_images(self, prefix: str, kept: Collection[str]) -> tuple[str, ...]:
        """Remove all images whose names begin with `prefix`, but those `kept`; gives the names removed."""

    def close(self) -> None:
        """Remove all containers made here, whoever waits for them, and make no more."""
