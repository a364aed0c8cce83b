"""Small projects for real builds: images in directories of their own, on the catalogue's own base."""

import contextlib
import functools
import json
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from bakehouse.builder import base_image
from bakehouse.catalog.project import HOME
from bakehouse.engine import docker
from bakehouse.engine.buildkit_errors import EngineTimedOut
from bakehouse.engine.buildkit_events import Event
from bakehouse.engine.buildx import BakedImage, BakeOptions, Target, bake
from bakehouse.engine.protocol import EngineHost
from bakehouse.plan import workspace
from bakehouse.plan.model import BootstrappedBase, Image, ImageKey, RegistryBase
from bakehouse.util.oci import EPOCH
from tests.support import fake_engine, feeds, plans

OUTPUT = "type=image,oci-mediatypes=false,compression=gzip,compression-level=3,force-compression=true"


@functools.cache
def base() -> str:
    """The base of the catalogue's images; made if it is missing."""
    catalogue = workspace.open_workspace(HOME)
    base = workspace.select(catalogue, ["mpi-cpu"]).plan.images[0].base
    assert isinstance(base, BootstrappedBase)
    with tempfile.TemporaryDirectory() as state, contextlib.closing(docker.connect()) as engine:
        base_image.ensure_base(base, engine=engine, state=Path(state), report=print, get=feeds.get)
    return base.reference


@functools.cache
def host() -> EngineHost:
    """The addresses at which this machine's engine reaches this host."""
    with contextlib.closing(docker.connect()) as engine:
        return engine.host()


class Project:
    """Dockerfiles and bake files below a directory; what it built is removed at the end."""

    def __init__(self, root: Path, prefix: str) -> None:
        self.root, self._prefix = root, prefix
        self.events: list[Event] = []
        self._names: list[str] = []

    def reference(self, name: str) -> str:
        return self.image(name).reference

    def image(self, name: str) -> Image:
        key = ImageKey(self._prefix.ljust(64, "0"))
        return plans.changed(fake_engine.image(name), key=key, base=RegistryBase(base(), None))

    def add(self, name: str, dockerfile: str, files: Mapping[str, str] | None = None) -> None:
        directory = self.root / "images" / name
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "Dockerfile").write_text(dockerfile)
        for path, text in (files or {}).items():
            (directory / path).write_text(text)
        target = {
            "context": f"images/{name}",
            "platforms": ["linux/amd64"],
            "tags": [self.reference(name)],
            "output": [OUTPUT],
            "args": {"SOURCE_DATE_EPOCH": str(EPOCH)},
        }
        (directory / "docker-bake.json").write_text(json.dumps({"target": {name: target}}))
        self._names.append(name)

    def bake(
        self, *names: str, secrets: Mapping[str, Path] | None = None, watch: Callable[[], None] = lambda: None
    ) -> dict[str, BakedImage]:
        """Build images; `watch` is called at every event."""

        def note(event: Event) -> None:
            self.events.append(event)
            watch()

        targets = [self.target(name) for name in names]
        options = BakeOptions(self.root, self.root / "state", note, secrets or {})
        self.events.clear()
        try:
            return bake(targets, options)
        except EngineTimedOut:
            # Under load the engine can give up, as `bake build` knows too
            self.events.clear()
            return bake(targets, options)

    def target(self, name: str) -> Target:
        return Target(name, name, Path("images", name, "docker-bake.json"))

    def run(self, name: str, *command: str) -> str:
        arguments = ["docker", "run", "--rm", "--network=none", self.reference(name), *command]
        return subprocess.run(arguments, capture_output=True, text=True, check=True).stdout

    def remove(self) -> None:
        for name in self._names:
            subprocess.run(["docker", "image", "rm", self.reference(name)], capture_output=True, check=False)
