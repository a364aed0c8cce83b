"""Local registry on loopback, which runs while it is used or kept: one for all projects of a user."""

import contextlib
import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

from bakehouse.errors import PublishError, Reason
from bakehouse.fetch.faults import SourceError
from bakehouse.fetch.http_client import HttpRequest
from bakehouse.registry import registry_image, registry_keeper
from bakehouse.registry.registry import NamedRegistry
from bakehouse.util import tempdir
from bakehouse.util.deadline import OverdueError
from bakehouse.util.file_lock import exclusive, join_shared, shared
from bakehouse.util.files import write_whole
from bakehouse.util.format import format_bytes
from bakehouse.util.process import start_service

_DOCKER_VARIABLES = (
    *("DOCKER_API_VERSION", "DOCKER_CERT_PATH", "DOCKER_CONFIG", "DOCKER_CONTEXT", "DOCKER_HOST"),
    *("DOCKER_TLS", "DOCKER_TLS_VERIFY", "SSH_AUTH_SOCK", "XDG_RUNTIME_DIR"),
)
"""Variables that lead the docker client to its engine."""
_OWNER_HEADER = "Bakehouse-Registry"
IN_VOLUME = "its images are in a volume of the engine"
_SCARCE_BYTES = 64 * 1024**2
_STOP_SECONDS = 15
"""The registry finishes requests first."""
_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class RegistryContainer:
    """Image of the registry, and the place of its files."""

    image: str
    user: str
    """Numbers of the user and the group that the files belong to, inside the container."""
    in_volume: bool = False
    """The files are in a volume of the engine, which does not see the directory of the registry."""
    selinux: bool = False
    """The engine confines containers with SELinux."""


@dataclass(frozen=True, slots=True)
class RegistryStatus:
    """State of the local registry."""

    host: str
    running: bool
    directory: str | None
    """Directory with its images; None if they are in a volume of the engine."""
    bytes: int | None
    """Size of its images; None if it is unknown."""

    @property
    def text(self) -> str:
        state = "is running" if self.running else "is not running"
        images = f"{format_bytes(self.bytes)} in {self.directory}" if self.bytes is not None else IN_VOLUME
        return f"the registry at {self.host} {state}; {images}\n"


class EmbeddedRegistry(NamedRegistry):
    """Registry of this user without a login, shared by all processes that are inside its context.

    It is a container on its own network. On the default network, other containers and build steps could push
    to it.
    """

    def __init__(
        self,
        state: Path,
        port: int,
        container: Callable[[], RegistryContainer],
        *,
        former: Path | None = None,
        start_seconds: float = 30.0,
    ) -> None:
        """`container` makes the image if the registry has to be started.

        `former` is the directory of the project's own registry of Bakehouse 0.1.0.
        """
        super().__init__(f"127.0.0.1:{port}", lambda _: None)
        self._state = state.resolve()
        self._former = former.resolve() if former else None
        self._port = port
        self._container = container
        self._start_seconds = start_seconds
        self._use = contextlib.ExitStack()
        self._is_alone: Callable[[], bool] = bool
        self._keeper: subprocess.Popen[bytes] | None = None

    def known_problems(self) -> tuple[Reason, ...]:
        existing = next(path for path in (self._state, *self._state.parents) if path.exists())
        free = shutil.disk_usage(existing).free
        if free >= _SCARCE_BYTES:
            return ()
        return (Reason(f"the disk that holds `{self._state}` has {format_bytes(free)} left"),)

    def keep(self) -> None:
        """Let the registry run after its last user has ended, until `stop`. Call it inside the context."""
        write_whole(self._keep, "")

    def stop(self) -> bool:
        """Stop a kept registry; return whether it ended. It keeps running while a process uses it."""
        self._keep.unlink(missing_ok=True)
        if self._former and self.is_former_running():
            (self._former / "keep").unlink(missing_ok=True)
        deadline = time.monotonic() + _STOP_SECONDS
        while self.is_running() or self.is_former_running():
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)
        if self._users.exists():
            # The keeper holds it until it has removed the container.
            with contextlib.suppress(OverdueError), join_shared(self._users, deadline):
                pass
        return True

    def is_running(self) -> bool:
        """Return whether this registry answers on its port."""
        return self._owner() == str(self._state)

    def is_former_running(self) -> bool:
        """Return whether the registry of Bakehouse 0.1.0 of the same project answers on its port."""
        return self._former is not None and self._owner() == str(self._former)

    @property
    def former_images(self) -> str:
        """How to take over the images of the former registry; empty without images."""
        if self._former is None or not (self._former / "data/docker").is_dir():
            return ""
        old, new = self._former / "data", self.data
        return (
            f"warning: `{old}` has images of Bakehouse 0.1.0. To take them over, run "
            f"`mkdir -p {new} && cp -a {old}/. {new}/ && rm -r {old}`"
        )

    def status(self) -> RegistryStatus:
        """Return whether it runs, and the size of its images."""
        running = self.is_running()
        if self._in_volume.exists():
            return RegistryStatus(self.host, running, None, None)
        size = sum(path.stat().st_size for path in self.data.rglob("*") if path.is_file())
        return RegistryStatus(self.host, running, str(self.data), size)

    @property
    def data(self) -> Path:
        """Directory with its images."""
        return self._state / "data"

    def check_port(self) -> bool:
        """Return whether the registry runs. Raises PublishError if another program uses its port."""
        owner = self._owner()
        if owner not in (None, str(self._state)):
            raise self._taken(str(owner))
        return owner is not None

    def __enter__(self) -> "EmbeddedRegistry":
        with contextlib.ExitStack() as use:
            # Without this lock, two processes could start it.
            with exclusive(self._state / "starting.lock"):
                is_alone = use.enter_context(shared(self._users))
                if not self.check_port():
                    self._start()
            self._use, self._is_alone = use.pop_all(), is_alone
        return self

    def __exit__(self, *_: object) -> None:
        is_last_user = self._is_alone()
        self._use.close()
        if self._keeper:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._keeper.wait(_STOP_SECONDS if is_last_user and not self._keep.exists() else 0)
            # It may keep running. Without a return code, Popen warns about a running process.
            self._keeper.returncode = 0

    @property
    def _locks(self) -> tuple[str, str]:
        return str(self._users), str(self._keep)

    @property
    def _users(self) -> Path:
        return self._state / "users.lock"

    @property
    def _keep(self) -> Path:
        return self._state / "keep"

    @property
    def _log(self) -> Path:
        return self._state / "registry.log"

    @property
    def _in_volume(self) -> Path:
        """File that exists if the images are in a volume of the engine."""
        return self._state / "in-volume"

    def _owner(self) -> str | None:
        """State directory of the registry on the port; empty for another server, None for a free port."""
        with socket.socket() as probe:
            probe.settimeout(2)
            if probe.connect_ex(("127.0.0.1", self._port)):
                return None
        request = HttpRequest("GET", f"http://{self.host}/v2/", 5.0, 5.0, authorization="")
        try:
            response = self.client.send(request)
        except SourceError:
            return ""
        return unquote(response.headers.get(_OWNER_HEADER, ""))

    def _taken(self, owner: str) -> PublishError:
        user = f"another local registry, in `{owner}`" if owner else "another program"
        message = f"port {self._port} of the local registry is used by {user}"
        if owner == str(self._former):
            message += ", of Bakehouse 0.1.0"
            return PublishError(message, hint="run `bake registry stop`")
        stop = "let its user run `bake registry stop`" if owner else "stop the other program"
        hint = f"set `registry_port` in [tool.bakehouse] or BAKEHOUSE_REGISTRY_PORT to a free port, or {stop}"
        return PublishError(message, hint=hint)

    def _start(self) -> None:
        # The file is left from a registry that was killed, for example by a shutdown of the machine.
        self._keep.unlink(missing_ok=True)
        self._remove_interrupted_uploads()
        machine = tempdir.run_id().partition("-")[0]
        arguments = (*self._locks, str(self._port), machine, *self._options(self._container()))
        with self._log.open("wb") as log:
            keeper = start_service(
                [sys.executable, "-I", registry_keeper.__file__, *arguments], log, _DOCKER_VARIABLES
            )
        deadline = time.monotonic() + self._start_seconds
        while time.monotonic() < deadline and keeper.poll() is None:
            if self._owner() == str(self._state):
                self._keeper = keeper
                return
            time.sleep(_POLL_SECONDS)
        keeper.terminate()
        keeper.wait()
        tail = self._log.read_text(errors="replace").splitlines()[-5:]
        facts = (("log", str(self._log)),)
        raise PublishError("the local registry did not start", facts=facts, tail=tuple(tail))

    def _remove_interrupted_uploads(self) -> None:
        """Remove the uploads of killed pushes. No upload is in progress while the registry does not run.

        The registry itself removes them after a week, if it runs that long.
        """
        for uploads in (self.data / "docker/registry/v2/repositories").glob("**/_uploads"):
            shutil.rmtree(uploads, ignore_errors=True)

    def _options(self, container: RegistryContainer) -> list[str]:
        """Return the options of `docker run`, with the image."""
        if container.in_volume:
            write_whole(self._in_volume, "")
            source = f"type=volume,source={registry_keeper.container_name(self._port)}"
        else:
            self._in_volume.unlink(missing_ok=True)
            self.data.mkdir(parents=True, exist_ok=True)
            source = f"type=bind,source={self.data}"
        # SELinux denies containers the directories of users, and new labels could lock out other programs.
        is_denied = container.selinux and not container.in_volume
        unconfined = ("--security-opt", "label=disable") if is_denied else ()
        # JSON is valid YAML, and quotes paths with special characters.
        headers = json.dumps({_OWNER_HEADER: [quote(str(self._state))]})
        return [
            *("--user", container.user),
            *unconfined,
            *("--cap-drop", "ALL", "--read-only"),
            *("--env", f"REGISTRY_HTTP_HEADERS={headers}"),
            *("--mount", f"{source},target={registry_image.DATA}"),
            container.image,
        ]
