"""Client of the container engine, on the docker SDK: containers, networks and images.

All created objects have the label `bakehouse=<owner>`. So the next run finds and removes the leftovers of
killed runs, but not the objects of running ones.
"""

import contextlib
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from bakehouse.engine import content_store, engine_host, image_archive, metadata_service, tar
from bakehouse.engine.content_store import StoredFiles
from bakehouse.engine.docker_container import API_SECONDS, DockerContainer, remove_until_gone
from bakehouse.engine.docker_errors import check_socket, translate_errors
from bakehouse.engine.gpu_devices import device_arguments
from bakehouse.engine.image_archive import OnProgress, ReaderOf, SavedImage
from bakehouse.engine.protocol import CleanupCounts, Container, ContainerSpec, EngineHost, StoredImage
from bakehouse.errors import EngineError
from bakehouse.util import tempdir
from bakehouse.util.format import format_bytes

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container as SdkContainer
    from docker.types import DriverConfig
import socket
import subprocess

from bakehouse.util.tempdir import scratch_directory


@contextlib.contextmanager
def dialed_engine() -> Iterator[str]:
    """Yield the endpoint of a socket that leads to the engine of the `docker` command."""
    with scratch_directory() as directory, socket.socket(socket.AF_UNIX) as server:
        path = directory / "engine.sock"
        server.bind(str(path))
        server.listen()
        accepting = threading.Thread(target=_accept, args=(server,), daemon=True)
        accepting.start()
        try:
            yield f"unix://{path}"
        finally:
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)


def _accept(server: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection, _ = server.accept()
            threading.Thread(target=_forward, args=(connection,), daemon=True).start()


def _forward(connection: socket.socket) -> None:
    with connection:
        descriptor = connection.fileno()
        command = ["docker", "system", "dial-stdio"]
        subprocess.run(command, stdin=descriptor, stdout=descriptor, stderr=subprocess.DEVNULL, check=False)


OWNER_LABEL = "bakehouse"
IMAGE_LABEL = "bakehouse.image"
CONNECTION_LABEL = "bakehouse.connection"
REHEARSED_LABEL = "org.bakehouse.rehearsed"
POOL = 64
_EMPTY_IMAGE = "bakehouse/empty:1"
_FILLED = "/filled"
"""Path of a volume in the container that receives its files."""
_Created = TypeVar("_Created")


def connect(endpoint: str = "") -> "DockerEngine":
    """Connect to the engine at an endpoint; the default is the engine of the `docker` command."""
    import docker
    from docker.context import ContextAPI

    resources = contextlib.ExitStack()
    with translate_errors("connect to the container engine"):
        selected = endpoint or os.environ.get("DOCKER_HOST", "")
        context = None if selected else ContextAPI.get_current_context()
        host = selected or (context and context.Host) or ""
        if host.startswith("ssh://"):
            endpoint = resources.enter_context(dialed_engine())
        else:
            check_socket(host)
        if endpoint:
            client = docker.DockerClient(endpoint, timeout=API_SECONDS, max_pool_size=POOL)
        elif context is None:
            client = docker.from_env(timeout=API_SECONDS, max_pool_size=POOL)
        else:
            tls = context.TLSConfig or False
            client = docker.DockerClient(context.Host, tls=tls, timeout=API_SECONDS, max_pool_size=POOL)
        client.ping()
    return DockerEngine(client, resources, endpoint or str(host))


class DockerEngine:
    """`Engine` of the docker SDK."""

    def __init__(
        self, client: "DockerClient", resources: contextlib.ExitStack | None = None, endpoint: str = ""
    ) -> None:
        """`resources` are closed with the connection."""
        self._client = client
        self._socket = Path(endpoint.removeprefix("unix://") or "/var/run/docker.sock")
        self._metadata_access = ""
        self._resources = resources or contextlib.ExitStack()
        self._labels = {OWNER_LABEL: tempdir.run_id(), CONNECTION_LABEL: secrets.token_hex(8)}
        self._closed = False
        # Ctrl-C during a request would lose the id of the created object. So another thread creates objects,
        # and `close` waits for it before it removes everything that this connection created.
        self._creators = ThreadPoolExecutor(1, thread_name_prefix="create")
        self._creators.submit(lambda: None).result()
        self._host: EngineHost | None = None
        self._host_lock = threading.Lock()

    def host(self) -> EngineHost:
        with self._host_lock:
            if self._host is None:
                with translate_errors("describe itself"):
                    architecture = str(self._client.version()["Arch"])
                self._host = engine_host.probe(self, self._empty_image(), architecture, self._gateway())
            return self._host

    def sees(self, directory: Path) -> bool:
        return engine_host.sees(self, self._empty_image(), directory)

    def image(self, reference: str) -> StoredImage | None:
        from docker.errors import ImageNotFound

        with translate_errors(f"look up `{reference}`"):
            try:
                image = self._client.images.get(reference)
            except ImageNotFound:
                return None
        labels = (image.attrs.get("Config") or {}).get("Labels") or {}
        layers = tuple((image.attrs.get("RootFS") or {}).get("Layers") or ())
        return StoredImage(str(image.id), int(image.attrs["Size"]), REHEARSED_LABEL in labels, labels, layers)

    def read_image(
        self, reference: str, reader_of: ReaderOf, on_progress: OnProgress = lambda number: None
    ) -> SavedImage:
        with translate_errors(f"save `{reference}`"):
            image = str(self._client.images.get(reference).id)
            data_root = Path(self._client.info()["DockerRootDir"])
            if saved := content_store.read(image, data_root, reader_of, on_progress):
                return saved
            chunks = self._client.api.get_image(reference, chunk_size=image_archive.READ_BYTES)
            with contextlib.closing(chunks):
                return image_archive.walk(chunks, reader_of, on_progress)

    def read_config(self, reference: str) -> bytes:
        with translate_errors(f"save `{reference}`"):
            image = str(self._client.images.get(reference).id)
            data_root = Path(self._client.info()["DockerRootDir"])
            if config := content_store.read_config(image, data_root):
                return config
            with contextlib.closing(self._client.api.get_image(reference)) as chunks:
                return image_archive.walk_to_config(chunks)

    def stored_files(self, reference: str) -> StoredFiles | None:
        with translate_errors(f"look up `{reference}`"):
            image = str(self._client.images.get(reference).id)
            return content_store.open_files(image, Path(self._client.info()["DockerRootDir"]))

    @contextlib.contextmanager
    def container(self, spec: ContainerSpec) -> Iterator[Container]:
        with translate_errors(f"create a container of `{spec.image}`"):
            created = self._create(self._client.containers.create, **self._arguments(spec))
        container = DockerContainer(created, self._volume_keeper(spec, created))
        try:
            if self._closed:
                raise EngineError("stopped before the container was started")
            if spec.files:
                with translate_errors("copy files into a container"):
                    created.put_archive("/", tar.pack(spec.files))
            yield container
        finally:
            container.remove()

    @contextlib.contextmanager
    def network(self, name: str) -> Iterator[str]:
        unique = f"bakehouse-{name}-{self._labels[OWNER_LABEL]}-{time.monotonic_ns()}"
        with translate_errors("create a network"):
            network = self._create(self._client.networks.create, unique, driver="bridge", labels=self._labels)
        try:
            with metadata_service.blocked(str(network.id), self._socket) as self._metadata_access:
                yield unique
        finally:
            with translate_errors("remove a network"):
                remove_until_gone(network.remove)

    def metadata_access(self) -> str:
        with self.network("metadata"):
            return self._metadata_access

    @contextlib.contextmanager
    def volume(self, image: str, directory: Path) -> Iterator[str]:
        from docker.types import Mount

        _require_space(directory, self.host().free)
        with translate_errors("create a volume"):
            volume = self._create(self._client.volumes.create, labels=self._labels)
        name = str(volume.name)
        try:
            # A volume has no API for files: they go through a container that mounts it.
            with translate_errors(f"copy `{directory}` into a volume"):
                container = self._create(
                    self._client.containers.create,
                    image,
                    command=["none"],
                    network="none",
                    mounts=[Mount(target=_FILLED, source=name, type="volume", no_copy=True)],
                    labels=self._labels,
                )
                try:
                    container.put_archive(_FILLED, tar.stream(directory))
                finally:
                    remove_until_gone(partial(container.remove, force=True))
            yield name
        finally:
            with translate_errors("remove a volume"):
                remove_until_gone(volume.remove)

    def sweep(self) -> CleanupCounts:
        api = self._client.api
        label = {"label": OWNER_LABEL}
        metadata_service.remove_leftovers(self._socket)
        with translate_errors("list the leftovers of earlier runs"):
            return CleanupCounts(
                _remove_leftovers(api.containers(all=True, filters=label), "Id", self._remove_container),
                _remove_leftovers(api.networks(filters=label), "Id", api.remove_network),
                _remove_leftovers(api.volumes(filters=label)["Volumes"] or (), "Name", api.remove_volume),
            )

    def remove_image(self, name: str) -> bool:
        from docker.errors import APIError, NotFound

        with translate_errors(f"remove image `{name}`"):
            try:
                self._client.api.remove_image(name)
            except NotFound:
                return True
            except APIError as error:
                if error.status_code != HTTPStatus.CONFLICT:
                    raise
                return False
        return True

    def prune_build_cache(self, keep: int) -> None:
        with translate_errors("prune the build cache"):
            self._client.api.prune_builds(keep_storage=keep, all=True)

    def build_cache_bytes(self) -> int:
        api = self._client.api
        with translate_errors("read the size of the build cache"):
            # `df()` of the SDK also weighs images and volumes, which takes much longer.
            url = f"{api.base_url}/v{api.api_version}/system/df"
            response = api.get(url, params={"type": "build-cache"}, timeout=api.timeout)
            response.raise_for_status()
        return sum(record["Size"] for record in response.json()["BuildCache"] or ())

    def close(self) -> None:
        self._closed = True
        self._creators.shutdown()
        api = self._client.api
        mine = {"label": f"{CONNECTION_LABEL}={self._labels[CONNECTION_LABEL]}"}
        with translate_errors("remove containers, networks and volumes"):
            for container in api.containers(all=True, filters=mine):
                remove_until_gone(partial(self._remove_container, container["Id"]))
            for network in api.networks(filters=mine):
                remove_until_gone(partial(api.remove_network, network["Id"]))
            for volume in api.volumes(filters=mine)["Volumes"] or ():
                remove_until_gone(partial(api.remove_volume, volume["Name"]))
            self._client.close()
        self._resources.close()

    def _empty_image(self) -> str:
        """Return the name of an image without files, created if the engine lacks it."""
        if self.image(_EMPTY_IMAGE) is None:
            repository, _, tag = _EMPTY_IMAGE.partition(":")
            with translate_errors("create an empty image"):
                self._client.api.import_image_from_data(tar.pack({}), repository=repository, tag=tag)
        return _EMPTY_IMAGE

    def _gateway(self) -> str:
        """Return the IPv4 address of the default bridge; empty without a bridge."""
        from docker.errors import NotFound

        with translate_errors("look up the default bridge"), contextlib.suppress(NotFound):
            networks = self._client.networks.get("bridge").attrs["IPAM"]["Config"] or ()
            gateways = [str(network.get("Gateway", "")) for network in networks]
            return next((gateway for gateway in gateways if "." in gateway), "")
        return ""

    def _create(self, create: Callable[..., _Created], *arguments: Any, **options: Any) -> _Created:
        try:
            return self._creators.submit(create, *arguments, **options).result()
        except RuntimeError as error:
            if not self._closed:
                raise
            raise EngineError("stopped before the container was started") from error

    def _volume_keeper(self, spec: ContainerSpec, container: "SdkContainer") -> "SdkContainer | None":
        """Start a container that keeps in-memory volumes, whose content would otherwise be lost at exit."""
        if not spec.room:
            return None
        with translate_errors("keep the volumes of a container"):
            keeper = self._create(
                self._client.containers.create,
                spec.image,
                entrypoint=["sleep", "infinity"],
                command=[],
                network="none",
                volumes_from=[str(container.id)],
                labels={**self._labels, IMAGE_LABEL: spec.image_name},
            )
            keeper.start()
        return keeper

    def _remove_container(self, key: str) -> None:
        self._client.api.remove_container(key, v=True, force=True)

    def _arguments(self, spec: ContainerSpec) -> dict[str, Any]:
        from docker.types import Mount

        labels = {**self._labels, IMAGE_LABEL: spec.image_name}
        arguments: dict[str, Any] = {
            "image": spec.image,
            "command": list(spec.command) if spec.keep_entrypoint else [],
            "hostname": spec.hostname or None,
            "network": spec.network,
            "environment": dict(spec.environment),
            "labels": labels,
            "shm_size": spec.shared_memory,
            # no_copy: as on SageMaker, the mount hides the image's files at that path.
            "mounts": [
                Mount(
                    target=path,
                    source=None,
                    type="volume",
                    no_copy=True,
                    labels=labels,
                    driver_config=_in_memory(spec.room[path]) if path in spec.room else None,
                )
                for path in spec.mounts
            ]
            + [
                Mount(target=path, source=volume, type="volume", read_only=True)
                for path, volume in spec.volumes.items()
            ]
            + [
                Mount(target=path, source=directory, type="bind", read_only=True)
                for path, directory in spec.shared_directories.items()
            ],
            "extra_hosts": dict(spec.extra_hosts),
            "mem_limit": spec.memory,
            "nano_cpus": round(spec.cpus * 1e9) if spec.cpus else None,
            "stdin_open": spec.interactive,
            "tty": spec.terminal,
        }
        if not spec.keep_entrypoint:
            arguments["entrypoint"] = list(spec.command)
        if spec.network != "none" and spec.hostname:
            alias = self._client.api.create_endpoint_config(aliases=[spec.hostname])
            arguments["networking_config"] = {spec.network: alias}
        if spec.gpus:
            arguments |= device_arguments(self._client.info(), spec.gpus)
        return arguments


def _require_space(directory: Path, free: int | None) -> None:
    """Raise EngineError if the engine's disk has no room for a copy of a directory."""
    if free is None:
        return
    needed = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    if needed > free:
        facts = (("needed", format_bytes(needed)), ("free", format_bytes(free)))
        hint = "remove images with `docker image prune`, or use a smaller directory"
        raise EngineError(
            f"the engine's disk has no room for a copy of `{directory}`", facts=facts, hint=hint
        )


def _in_memory(size: int) -> "DriverConfig":
    from docker.types import DriverConfig

    return DriverConfig("local", {"type": "tmpfs", "device": "tmpfs", "o": f"size={size}"})


def _remove_leftovers(entries: Iterable[Mapping[str, Any]], key: str, remove: Callable[[str], object]) -> int:
    """Remove the entries whose owners have ended, and return their number."""
    gone = [
        str(entry[key])
        for entry in entries
        if tempdir.is_abandoned((entry.get("Labels") or {}).get(OWNER_LABEL, ""), _created(entry))
    ]
    for name in gone:
        remove_until_gone(partial(remove, name))
    return len(gone)


def _created(entry: Mapping[str, Any]) -> float:
    created = entry.get("Created") or entry["CreatedAt"]
    return float(created if isinstance(created, int) else datetime.fromisoformat(created).timestamp())
