"""The only door to the docker SDK: containers, networks and images of the engine that `docker` reaches.

Whatever is made here carries the label `bakehouse=<owner>`, so that what a killed run left behind can be told
from what a living one is using, and is swept by the next run.
"""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bakehouse import archives, owners
from bakehouse.engine import Container, ContainerSpec, Ended, StoredImage, Swept
from bakehouse.errors import Diagnostic, EngineError

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container as SdkContainer

OWNER_LABEL = "bakehouse"
IMAGE_LABEL = "bakehouse.image"
KEY_LABEL = "org.bakehouse.key"
REHEARSED_LABEL = "org.bakehouse.rehearsed"
API_SECONDS = 120
POOL = 64
REMOVAL_ATTEMPTS = 5


def connect() -> "DockerEngine":
    """The engine that the `docker` command reaches: DOCKER_HOST, else the current context."""
    import docker
    from docker.context import ContextAPI

    with _told_as("reach the container engine"):
        if host := os.environ.get("DOCKER_HOST"):
            _knock(host)
            client = docker.from_env(timeout=API_SECONDS, max_pool_size=POOL)
        else:
            context = ContextAPI.get_current_context()
            _knock(context.Host or "")
            tls = context.TLSConfig or False
            client = docker.DockerClient(context.Host, tls=tls, timeout=API_SECONDS, max_pool_size=POOL)
        client.ping()
    return DockerEngine(client)


class DockerEngine:
    """The `Engine` behind the docker SDK."""

    def __init__(self, client: "DockerClient") -> None:
        self._client = client
        self._owner = owners.mine()
        self._live: set[str] = set()
        self._closed = False

    def image(self, reference: str) -> StoredImage | None:
        from docker.errors import ImageNotFound

        with _told_as(f"look up `{reference}`"):
            try:
                found = self._client.images.get(reference)
            except ImageNotFound:
                return None
        labels = (found.attrs.get("Config") or {}).get("Labels") or {}
        key = str(labels.get(KEY_LABEL, ""))
        return StoredImage(str(found.id), int(found.attrs["Size"]), REHEARSED_LABEL in labels, key)

    @contextlib.contextmanager
    def container(self, spec: ContainerSpec) -> Iterator[Container]:
        with _told_as(f"make a container of `{spec.image}`"):
            made = self._client.containers.create(**self._arguments(spec))
        container = _DockerContainer(made)
        self._live.add(str(made.id))
        try:
            if self._closed:
                raise EngineError(Diagnostic("stopped before the container was started"))
            if spec.files:
                with _told_as("put files into a container"):
                    made.put_archive("/", archives.pack(spec.files))
            yield container
        finally:
            container.remove()
            self._live.discard(str(made.id))

    @contextlib.contextmanager
    def network(self, name: str) -> Iterator[str]:
        unique = f"bakehouse-{name}-{self._owner}-{time.monotonic_ns()}"
        with _told_as("make a network"):
            made = self._client.networks.create(unique, driver="bridge", labels={OWNER_LABEL: self._owner})
        try:
            yield unique
        finally:
            with _told_as("remove a network"):
                _until_gone(made.remove)

    def sweep(self) -> Swept:
        api = self._client.api
        label = {"label": OWNER_LABEL}
        with _told_as("list what earlier runs have left"):
            return Swept(
                _sweep(api.containers(all=True, filters=label), "Id", self._remove_container),
                _sweep(api.networks(filters=label), "Id", api.remove_network),
                _sweep(api.volumes(filters=label)["Volumes"] or (), "Name", api.remove_volume),
            )

    def remove_images(self, prefix: str, kept: Collection[str]) -> tuple[str, ...]:
        from docker.errors import APIError

        removed = []
        with _told_as("remove images"):
            tags = {tag for entry in self._client.api.images() for tag in entry["RepoTags"] or ()}
            for tag in sorted(tag for tag in tags - set(kept) if tag.startswith(prefix)):
                # A container may still run from it.
                with contextlib.suppress(APIError):
                    self._client.api.remove_image(tag)
                    removed.append(tag)
        return tuple(removed)

    def close(self) -> None:
        self._closed = True
        with _told_as("remove containers"):
            for key in tuple(self._live):
                _until_gone(partial(self._remove_container, key))
            self._client.close()

    def _remove_container(self, key: str) -> None:
        self._client.api.remove_container(key, v=True, force=True)

    def _arguments(self, spec: ContainerSpec) -> dict[str, Any]:
        from docker.types import DeviceRequest, Mount

        labels = {OWNER_LABEL: self._owner, IMAGE_LABEL: spec.image_name}
        arguments: dict[str, Any] = {
            "image": spec.image,
            "command": list(spec.command) if spec.keep_entrypoint else [],
            "hostname": spec.hostname or None,
            "network": spec.network,
            "environment": dict(spec.environment),
            "labels": labels,
            "shm_size": spec.shared_memory,
            # no_copy: as on SageMaker, what the image holds at a mounted path is hidden.
            "mounts": [
                Mount(target=path, source=None, type="volume", no_copy=True, labels=labels)
                for path in spec.mounts
            ]
            + [
                Mount(target=path, source=folder, type="bind", read_only=True)
                for path, folder in spec.folders.items()
            ],
            "mem_limit": spec.memory,
            "nano_cpus": round(spec.cpus * 1e9) if spec.cpus else None,
        }
        if not spec.keep_entrypoint:
            arguments["entrypoint"] = list(spec.command)
        if spec.network != "none" and spec.hostname:
            alias = self._client.api.create_endpoint_config(aliases=[spec.hostname])
            arguments["networking_config"] = {spec.network: alias}
        if spec.gpus:
            devices = [str(number) for number in spec.gpus]
            arguments["device_requests"] = [DeviceRequest(device_ids=devices, capabilities=[["gpu"]])]
        return arguments


def _deaf(chunk: bytes) -> None:
    """Nobody listens."""


class _DockerContainer:
    """The `Container` behind the docker SDK."""

    def __init__(self, container: "SdkContainer") -> None:
        self._container = container
        self._follower: threading.Thread | None = None

    def start(self, log: Path, heard: Callable[[bytes], None] = _deaf) -> None:
        with _told_as("start a container"):
            self._container.start()
        log.parent.mkdir(parents=True, exist_ok=True)
        self._follower = threading.Thread(target=self._follow, args=(log, heard), daemon=True)
        self._follower.start()

    def wait(self, seconds: float) -> Ended | None:
        import requests

        with _told_as("wait for a container"):
            try:
                code = int(self._container.wait(timeout=seconds)["StatusCode"])
            except (requests.exceptions.ConnectionError, requests.exceptions.ReadTimeout) as error:
                # The SDK reports its own read timeout as a lost connection.
                if "timed out" not in str(error):
                    raise
                return None
            self._finish_log()
            self._container.reload()
        return Ended(code, bool(self._container.attrs["State"]["OOMKilled"]))

    def signal(self, name: str) -> None:
        from docker.errors import APIError

        # One that has ended meanwhile is not there to be signalled.
        with _told_as("signal a container"), contextlib.suppress(APIError):
            self._container.kill(signal=name)

    def stop(self, grace: float) -> None:
        with _told_as("stop a container"):
            self._container.stop(timeout=round(grace))
        self._finish_log()

    def stdout(self) -> str:
        with _told_as("read what a container printed"):
            return self._container.logs(stdout=True, stderr=False).decode(errors="replace")

    def read(self, path: str) -> dict[str, bytes]:
        with archives.unpacked(self._archive(path)) as entries:
            return {entry.name: entry.read() for entry in entries}

    def sizes(self, path: str) -> dict[str, int]:
        with archives.unpacked(self._archive(path)) as entries:
            return {entry.name: entry.size for entry in entries}

    def copy(self, path: str, folder: Path) -> None:
        with archives.unpacked(self._archive(path)) as entries:
            for entry in entries:
                entry.write_below(folder)

    def remove(self) -> None:
        with _told_as("remove a container"):
            _until_gone(lambda: self._container.remove(force=True, v=True))
        self._finish_log()

    def _archive(self, path: str) -> Iterator[bytes]:
        from docker.errors import NotFound

        with _told_as(f"read `{path}` in a container"), contextlib.suppress(NotFound):
            yield from self._container.get_archive(path)[0]

    def _follow(self, log: Path, heard: Callable[[bytes], None]) -> None:
        import docker.errors
        import requests

        lost = (docker.errors.APIError, requests.exceptions.RequestException, OSError)
        with log.open("wb", buffering=0) as file, contextlib.suppress(*lost):
            for chunk in self._container.logs(stream=True, follow=True):
                file.write(chunk)
                heard(chunk)

    def _finish_log(self) -> None:
        if self._follower:
            self._follower.join(timeout=10)


@contextlib.contextmanager
def _told_as(doing: str) -> Iterator[None]:
    """Turn the SDK's exceptions into one EngineError that says what was being done."""
    import docker.errors
    import requests

    try:
        yield
    except docker.errors.ImageNotFound as error:
        raise EngineError(_refusal(doing, error, "build it with `./bake build`")) from error
    except docker.errors.APIError as error:
        raise EngineError(_refusal(doing, error, "")) from error
    except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
        raise EngineError(_silence(doing, str(error))) from error


def _knock(host: str) -> None:
    """Say which socket is missing or closed to us: the SDK buries that in three exceptions."""
    if not host.startswith("unix://"):
        return
    with socket.socket(socket.AF_UNIX) as knock:
        try:
            knock.connect(host.removeprefix("unix://"))
        except OSError as error:
            raise EngineError(_silence(f"open {host}", str(error.strerror))) from error


def _silence(doing: str, answer: str) -> Diagnostic:
    denied = "Permission denied" in answer
    message = "not allowed to use the container engine" if denied else "no container engine answers"
    hint = "add your user to the group `docker`, then log in again" if denied else "see `./bake doctor`"
    return Diagnostic(message, facts=(("wanted to", doing), ("answer", " ".join(answer.split()))), hint=hint)


def _refusal(doing: str, error: Any, hint: str) -> Diagnostic:
    answer = " ".join(str(error.explanation or error).split())
    return Diagnostic(f"the container engine could not {doing}", facts=(("answer", answer),), hint=hint)


def _until_gone(remove: Callable[[], object]) -> None:
    """Remove something, also when another process is at it, or its last container has not quite let go."""
    from docker.errors import APIError, NotFound

    for attempt in range(REMOVAL_ATTEMPTS):
        try:
            remove()
        except NotFound:
            return
        except APIError:
            if attempt == REMOVAL_ATTEMPTS - 1:
                raise
            time.sleep(0.2 * (attempt + 1))
        else:
            return


def _sweep(entries: Iterable[Mapping[str, Any]], key: str, remove: Callable[[str], object]) -> int:
    """Remove those of `entries` whose owners are gone; gives their number."""
    gone = [
        str(entry[key])
        for entry in entries
        if owners.is_left_behind((entry.get("Labels") or {}).get(OWNER_LABEL, ""), _created(entry))
    ]
    for name in gone:
        _until_gone(partial(remove, name))
    return len(gone)


def _created(entry: Mapping[str, Any]) -> float:
    created = entry.get("Created") or entry["CreatedAt"]
    return float(created if isinstance(created, int) else datetime.fromisoformat(created).timestamp())
