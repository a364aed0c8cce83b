"""Interface of a container engine; `docker.py` implements it."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from bakehouse.engine.content_store import StoredFiles
from bakehouse.engine.image_archive import OnProgress, ReaderOf, SavedImage

GIB = 1024**3


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """Settings of a container."""

    image: str
    """Digest in the engine's store, or a reference."""
    command: tuple[str, ...]
    keep_entrypoint: bool = False
    """Pass `command` to the image's ENTRYPOINT instead of replacing it."""
    hostname: str = ""
    network: str = "none"
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Contents of files to create before the start, by absolute path in the container."""
    mounts: tuple[str, ...] = ()
    """Paths for new empty volumes, which are removed with the container."""
    room: Mapping[str, int] = field(default_factory=dict)
    """Sizes in bytes of those `mounts` that are limited; they are in memory."""
    volumes: Mapping[str, str] = field(default_factory=dict)
    """Volumes to mount read-only, by path in the container; see `Engine.volume`."""
    shared_directories: Mapping[str, str] = field(default_factory=dict)
    """Directories of this host to mount read-only, by path. Used only in probes: many engines see none."""
    extra_hosts: Mapping[str, str] = field(default_factory=dict)
    """Addresses by name, for its /etc/hosts."""
    gpus: tuple[str, ...] = ()
    """GPUs of this machine, as numbers or UUIDs."""
    cpus: float | None = None
    memory: int | None = None
    """Limit in bytes; the kernel kills processes that exceed it."""
    shared_memory: int = 2 * GIB
    image_name: str = ""
    """Name of the image's recipe, as a label for `docker ps`."""
    interactive: bool = False
    """Its standard input stays open, for `Container.attach`."""
    terminal: bool = False
    """Its streams are a terminal."""


@dataclass(frozen=True, slots=True)
class ContainerExit:
    """Exit of a container."""

    exit_code: int
    out_of_memory: bool = False


@dataclass(frozen=True, slots=True)
class StoredImage:
    """Image in the engine's store."""

    digest: str
    bytes: int
    is_rehearsed: bool = False
    """True if the image contains stubs, so that it must not be smoke-tested or published."""
    labels: Mapping[str, str] = field(default_factory=dict)
    layers: tuple[str, ...] = ()
    """Digests of the uncompressed layers, lowest first."""


@dataclass(frozen=True, slots=True)
class CleanupCounts:
    """Numbers of removed leftovers of ended runs."""

    containers: int = 0
    networks: int = 0
    volumes: int = 0


@dataclass(frozen=True, slots=True)
class EngineHost:
    """Facts about this host as seen from the containers of an engine."""

    address: str = ""
    """Address of this host for containers; empty if they do not reach it."""
    listen: str = ""
    """Address of this host that a server for containers has to listen on."""
    problem: str = ""
    """Reason why containers do not reach this host; empty if they do."""
    shares_files: bool = False
    """The engine sees the directories of this host."""
    same_kernel: bool = False
    """Containers run on the kernel of this host, with its processes, memory and devices."""
    metadata_access: str = ""
    """Why containers reach metadata services of a cloud; empty if they do not."""
    free: int | None = None
    """Free bytes of the disk with the engine's containers; None if unknown."""


class Container(Protocol):
    """Created container; the end of its context removes it."""

    def start(self, log: Path, on_output: Callable[[bytes], None] = ...) -> None:
        """Start the container; its output goes to `log` and to `on_output` as it arrives."""

    def attach(self) -> int:
        """Start it with the terminal or streams of this process, wait for it, and return its exit code."""

    def wait(self, seconds: float) -> ContainerExit | None:
        """Return its exit, or None if it still runs after `seconds`."""

    def signal(self, name: str) -> None:
        """Send a signal to its first process, if it still runs."""

    def stop(self, grace: float) -> None:
        """Send SIGTERM, and SIGKILL after `grace` seconds."""

    def stdout(self) -> str:
        """Return its standard output so far."""

    def read(self, path: str) -> dict[str, bytes]:
        """Return the regular files under `path` by relative path; none if `path` does not exist."""

    def sizes(self, path: str) -> dict[str, int]:
        """Return the sizes of the files that `read` returns."""

    def copy(self, path: str, directory: Path) -> None:
        """Copy the regular files under `path` to a directory of this machine."""

    def is_full(self, path: str) -> bool:
        """Return whether a limited mount is full."""


class Engine(Protocol):
    """Container engine."""

    def host(self) -> EngineHost:
        """Return facts about this host as seen from containers. A probe runs once per connection."""

    def sees(self, directory: Path) -> bool:
        """Return whether it sees a directory of this host, which containers could then mount."""

    def image(self, reference: str) -> StoredImage | None:
        """Return the image with this name or digest, or None."""

    def read_image(self, reference: str, reader_of: ReaderOf, on_progress: OnProgress = ...) -> SavedImage:
        """Read an image with its layers as stored, each in one pass."""

    def read_config(self, reference: str) -> bytes:
        """Read the configuration of an image, as JSON. It exists even if a pulled image lacks layers."""

    def stored_files(self, reference: str) -> StoredFiles | None:
        """Return an image whose blobs are files of this machine; None if this process cannot read them."""

    def container(self, spec: ContainerSpec) -> contextlib.AbstractContextManager[Container]:
        """Create a container with its files, without starting it."""

    def network(self, name: str) -> contextlib.AbstractContextManager[str]:
        """Create a network for one job and return its name."""

    def metadata_access(self) -> str:
        """Return why containers of a network reach metadata services of a cloud; empty if they do not."""

    def volume(self, image: str, directory: Path) -> contextlib.AbstractContextManager[str]:
        """Create a volume with a copy of a directory of this host, and return its name.

        The engine copies through a container of `image`, which is not started.
        """

    def sweep(self) -> CleanupCounts:
        """Remove the leftovers of ended runs."""

    def remove_image(self, name: str) -> bool:
        """Remove the name of an image, and the image with its last name; False if a container uses it.

        An absent name counts as removed.
        """

    def prune_build_cache(self, keep: int) -> None:
        """Remove what was used longest ago from the build cache until it has at most `keep` bytes."""

    def build_cache_bytes(self) -> int:
        """Return the size of BuildKit's build cache, which all projects share."""

    def close(self) -> None:
        """Remove all containers of this connection, and create no more."""
