"""A container engine of a few lines: its containers end as the test says."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bakehouse.builder.built_image import BuiltImage
from bakehouse.catalog.project import HOME
from bakehouse.engine import image_archive
from bakehouse.engine.content_store import StoredFiles
from bakehouse.engine.image_archive import OnProgress, ReaderOf, SavedImage
from bakehouse.engine.protocol import (
    CleanupCounts,
    Container,
    ContainerExit,
    ContainerSpec,
    EngineHost,
    StoredImage,
)
from bakehouse.plan.model import BootstrappedBase, Image, InstalledComponent
from bakehouse.util.oci import ContentId, Digest
from tests.support import plans
from tests.support.locked_debian import LOCKED

DIGEST = Digest("sha256:" + "4f" * 32)
CONTENT = ContentId("sha256:" + "c0" * 32)
HOST = EngineHost("127.0.0.1", "127.0.0.1", shares_files=True, same_kernel=True, free=10**12)
"""A host that its engine reaches."""


@dataclass
class Run:
    """Behavior of one container: its output, files and exit code; None never ends."""

    exit_code: int | None = 0
    prints: str = ""
    files: Mapping[str, bytes] = field(default_factory=dict)
    stopped: bool = False
    heeds_sigterm: bool = True
    signals: list[str] = field(default_factory=list)
    full: tuple[str, ...] = ()
    refused: list[str] = field(default_factory=list)

    def start(self, log: Path, listen: Callable[[bytes], None] = lambda chunk: None) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(self.prints)
        listen(self.prints.encode())

    def attach(self) -> int:
        assert self.exit_code is not None
        return self.exit_code

    def wait(self, seconds: float) -> ContainerExit | None:
        return None if self.exit_code is None else ContainerExit(self.exit_code)

    def signal(self, name: str) -> None:
        self.signals.append(name)
        if self.exit_code is None and (name == "SIGKILL" or self.heeds_sigterm):
            self.exit_code = 137 if name == "SIGKILL" else 143

    def stop(self, grace: float) -> None:
        self.stopped = True

    def stdout(self) -> str:
        return self.prints

    def read(self, path: str) -> dict[str, bytes]:
        name = path.rpartition("/")[2]
        return {
            (file.removeprefix(f"{path}/") if file != path else name): content
            for file, content in self.files.items()
            if file == path or file.startswith(f"{path}/")
        }

    def sizes(self, path: str) -> dict[str, int]:
        return {name: len(content) for name, content in self.read(path).items()}

    def copy(self, path: str, directory: Path) -> None:
        for name, content in self.read(path).items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_bytes(content)

    def is_full(self, path: str) -> bool:
        return path in self.full


class FakeEngine:
    """Makes the containers that `behave` returns, and records their specifications."""

    def __init__(self, behave: Callable[[ContainerSpec], Run]) -> None:
        self._behave = behave
        self.specs: list[ContainerSpec] = []
        self.archives: dict[str, bytes] = {}
        """Saved archives by reference."""
        self.shared = HOST
        self.volumes: list[Path] = []
        """Directories that were copied into volumes."""
        self.closed = False

    def image(self, reference: str) -> StoredImage | None:
        return StoredImage(DIGEST, 1)

    @contextlib.contextmanager
    def container(self, spec: ContainerSpec) -> Iterator[Container]:
        self.specs.append(spec)
        yield self._behave(spec)

    @contextlib.contextmanager
    def network(self, name: str) -> Iterator[str]:
        yield f"network of {name}"

    def metadata_access(self) -> str:
        return ""

    def host(self) -> EngineHost:
        return self.shared

    def sees(self, directory: Path) -> bool:
        return self.shared.shares_files and directory.is_dir()

    @contextlib.contextmanager
    def volume(self, image: str, directory: Path) -> Iterator[str]:
        self.volumes.append(directory)
        yield f"copy of {directory}"

    def sweep(self) -> CleanupCounts:
        return CleanupCounts()

    def read_image(
        self, reference: str, reader_of: ReaderOf, on_progress: OnProgress = lambda number: None
    ) -> SavedImage:
        return image_archive.walk((self.archives[reference],), reader_of, on_progress)

    def stored_files(self, reference: str) -> StoredFiles | None:
        return None

    def read_config(self, reference: str) -> bytes:
        return image_archive.walk_to_config((self.archives[reference],))

    def remove_image(self, name: str) -> bool:
        return False

    def prune_build_cache(self, keep: int) -> None:
        pass

    def build_cache_bytes(self) -> int:
        return 0

    def close(self) -> None:
        self.closed = True


def part(component: str) -> InstalledComponent:
    """A component of Bakehouse with its script for GPUs."""
    script = HOME / "recipes/components" / component / "gpu.py"
    return InstalledComponent(component, "1.0", "x", gpu=script if script.is_file() else None)


def image(
    name: str = "mpi-cpu",
    parts: tuple[InstalledComponent, ...] = (),
    *,
    launchers: tuple[str, ...] = ("mpirun",),
    training_module: str | None = None,
    entry_point: str | None = None,
    gpu: bool = False,
) -> Image:
    return plans.image(
        name,
        summary="an image",
        base=BootstrappedBase("bakehouse/debian:12-00000000", "bookworm", (), LOCKED),
        parts=parts or ((part("pytorch"),) if gpu and "torchrun" in launchers else ()),
        gpu=gpu,
        launchers=launchers,
        environment={"SAGEMAKER_TRAINING_MODULE": training_module} if training_module else {},
        entry_point=entry_point,
    )


def answers(spec: ContainerSpec) -> Run | None:
    """Return a container in which programs of components answer, and have no check; None for another one."""
    if "/run/bakehouse/checks.py" not in spec.command:
        return None
    parts = [word.partition("=")[0] for word in spec.command if "=/run/" in word]
    return Run(prints="".join(f'{{"component": "{part}", "installed": null}}\n' for part in parts))


def built(of: Image) -> BuiltImage:
    return BuiltImage(of, DIGEST, DIGEST, 1, CONTENT)
