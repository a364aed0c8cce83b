"""Says which container engine this machine reaches, what it can do, and what each lack costs.

The facts come from the docker client as JSON, so that recorded answers test every engine nobody has here.
"""

import json
import platform
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from bakehouse.errors import Diagnostic, EngineError, Reason
from bakehouse.util.oci import PLATFORM

CLIENT_SECONDS = 30
OLDEST_BUILDX = (0, 13)
REQUIRED_PROGRAMS = "Docker Engine 24 or newer, buildx 0.13 or newer and mmdebstrap"


class Feature(StrEnum):
    """What a task can need of an engine."""

    LOCAL = "local"
    PLATFORM = "platform"
    ROOTFUL = "rootful"
    CONTAINERD_STORE = "containerd store"
    BRIDGE = "default bridge"
    BUILDX = "buildx"


@dataclass(frozen=True, slots=True)
class Daemon:
    """A container engine that answered, as it described itself."""

    endpoint: str
    name: str
    """The host name of the machine it runs on."""
    version: str
    platform: str
    store: str
    """The storage driver's name."""
    containerd_store: bool
    rootless: bool
    remote: bool
    bridge: str | None
    """The default bridge's gateway address; None where there is no such bridge."""
    interface: str
    """What the bridge is called among its machine's interfaces; empty where the engine doesn't say."""
    buildx: str | None
    data_root: str
    runtimes: tuple[str, ...]
    registry: str
    """The address of the image registry that names without one mean."""


class UnavailableReason(StrEnum):
    """Why no engine answered."""

    NO_CLIENT = "no docker client"
    NOT_RUNNING = "nothing listens"
    NOT_ALLOWED = "not allowed"
    NO_ANSWER = "no sensible answer"


@dataclass(frozen=True, slots=True)
class UnavailableDaemon:
    """There is no engine to talk to."""

    reason: UnavailableReason
    endpoint: str
    said: str
    """What the docker client had to say about it."""
    buildx: str | None = None


@dataclass(frozen=True, slots=True)
class MissingFeature:
    """A feature that an engine has not, and what that means for the user."""

    feature: Feature
    message: str
    cost: str
    hint: str


@dataclass(frozen=True, slots=True)
class DockerResult:
    """How one call of the docker client ended."""

    code: int
    out: str
    err: str = ""


class DockerClient(Protocol):
    """The docker client's command line."""

    def __call__(self, *arguments: str) -> DockerResult: ...


def docker(*arguments: str) -> DockerResult:
    """Run the docker client; contexts and DOCKER_HOST are its own business."""
    try:
        done = subprocess.run(
            ["docker", *arguments], capture_output=True, text=True, errors="replace", timeout=CLIENT_SECONDS
        )
    except FileNotFoundError:
        return DockerResult(127, "", "docker: command not found")
    except subprocess.TimeoutExpired:
        return DockerResult(124, "", f"no answer within {CLIENT_SECONDS} seconds")
    return DockerResult(done.returncode, done.stdout, done.stderr)


def probe(client: DockerClient = docker, hostname: str = "") -> Daemon | UnavailableDaemon:
    """Ask the engine that the docker client reaches for its facts."""
    info_reply = client("info", "--format", "json")
    if info_reply.code == 127:
        return UnavailableDaemon(UnavailableReason.NO_CLIENT, "", info_reply.err.strip())
    info = _object(info_reply.out)
    where = client("context", "inspect", "--format", "{{.Endpoints.docker.Host}}")
    endpoint = where.out.strip() if where.code == 0 else ""
    buildx = _buildx(info)
    # A client of version 26 ends with 0 although no engine answered: the version tells.
    if not info.get("ServerVersion"):
        said = " ".join(info_reply.err.split()) or "; ".join(info.get("ServerErrors") or ())
        return UnavailableDaemon(_silence(said), endpoint, said, buildx)
    network = client("network", "inspect", "bridge", "--format", "json")
    return Daemon(
        endpoint=endpoint,
        name=info["Name"],
        version=info["ServerVersion"],
        platform=f"{info['OSType']}/{_architecture(info['Architecture'])}",
        store=info["Driver"],
        containerd_store=["driver-type", "io.containerd.snapshotter.v1"] in (info["DriverStatus"] or []),
        rootless=any(option.startswith("name=rootless") for option in info["SecurityOptions"] or ()),
        remote=not endpoint.startswith("unix://") or info["Name"] != (hostname or platform.node()),
        bridge=_gateway(network) if network.code == 0 else None,
        interface=_interface(network) if network.code == 0 else "",
        buildx=buildx,
        data_root=info["DockerRootDir"],
        runtimes=tuple(sorted(info["Runtimes"] or ())),
        registry=info["IndexServerAddress"],
    )


def inspect(client: DockerClient = docker, hostname: str = "") -> Daemon:
    """Give the engine's facts, for tasks that need one and must not install one."""
    found = probe(client, hostname)
    if isinstance(found, UnavailableDaemon):
        raise EngineError(unavailable(found, f"install {REQUIRED_PROGRAMS}, and start it"))
    return found


def missing_features(daemon: Daemon) -> tuple[MissingFeature, ...]:
    """Everything that this engine has not, in the order in which it matters."""
    return tuple(lack for feature in Feature if (lack := _lack(daemon, feature)))


def require(daemon: Daemon, *features: Feature) -> None:
    """Raise an EngineError that names each of these features the engine lacks."""
    missing = [lack for lack in missing_features(daemon) if lack.feature in features]
    if missing:
        engine = (("engine", f"{daemon.version} at {daemon.endpoint}"),)
        raise EngineError(
            *(
                Diagnostic(lack.message, reasons=(Reason(lack.cost),), facts=engine, hint=lack.hint)
                for lack in missing
            )
        )


def unavailable(found: UnavailableDaemon, hint: str) -> Diagnostic:
    """The words for an engine that does not answer; `hint` is what to do where nothing listens."""
    at = f" at `{found.endpoint}`" if found.endpoint else ""
    match found.reason:
        case UnavailableReason.NO_CLIENT:
            return Diagnostic("no `docker` command on PATH, so no container engine can be used", hint=hint)
        case UnavailableReason.NOT_RUNNING:
            return Diagnostic(f"no container engine answers{at}", hint=hint)
        case UnavailableReason.NOT_ALLOWED:
            return Diagnostic(
                f"not allowed to use the container engine{at}",
                hint="run this as root, or as a member of the group `docker` (log in again after joining it)",
            )
        case UnavailableReason.NO_ANSWER:
            return Diagnostic(
                f"the container engine{at} gives no usable answer",
                tail=(found.said,),
                hint="make `docker info` work first; look at DOCKER_HOST and `docker context ls`",
            )


def _lack(daemon: Daemon, feature: Feature) -> MissingFeature | None:
    words = _LACKS[feature]
    match feature:
        case Feature.LOCAL:
            has, value = not daemon.remote, daemon.name
        case Feature.PLATFORM:
            has, value = daemon.platform == PLATFORM, daemon.platform
        case Feature.ROOTFUL:
            has, value = not daemon.rootless, ""
        case Feature.CONTAINERD_STORE:
            has, value = daemon.containerd_store, daemon.store
        case Feature.BRIDGE:
            has, value = daemon.bridge is not None, ""
        case Feature.BUILDX:
            if daemon.buildx is None:
                words = _NO_BUILDX
            has, value = _version(daemon.buildx or "") >= OLDEST_BUILDX, daemon.buildx or ""
    message, cost, hint = words
    return None if has else MissingFeature(feature, message.format(value), cost, hint)


_LACKS: Mapping[Feature, tuple[str, str, str]] = {
    Feature.LOCAL: (
        "the container engine runs on another machine, `{}`",
        "its builds can't fetch the files that this machine serves, its containers can't mount this machine's"
        " folders, and it can't push to a registry on this machine's loopback",
        "run ./bake on the engine's machine, or unset DOCKER_HOST and choose `docker context use default`",
    ),
    Feature.PLATFORM: (
        f"the container engine runs {{}} containers, and the images are for {PLATFORM}",
        "nothing can be built or smoke-tested",
        f"use an engine on a {PLATFORM} machine",
    ),
    Feature.ROOTFUL: (
        "the container engine runs rootless",
        "its builds can't fetch the files that this machine serves, and it can't push to a registry on this"
        " machine's loopback, because its network is a namespace of its own",
        "use an engine that runs as root: `docker context use default`",
    ),
    Feature.CONTAINERD_STORE: (
        "the container engine keeps images in `{}`, without the containerd image store",
        "an image's manifest is then made only by a push, so what is pushed can't be shown to be what was"
        " smoke-tested",
        'add {"features": {"containerd-snapshotter": true}} to /etc/docker/daemon.json and restart the engine'
        " (its present images stay on disk, but hidden)",
    ),
    Feature.BRIDGE: (
        "the container engine has no default bridge network",
        "every RUN step of a build fails with `network bridge not found`",
        'start the engine without `--bridge=none` (or `"bridge": "none"` in its daemon.json)',
    ),
    Feature.BUILDX: (
        "buildx {} is too old",
        "builds need `--progress=rawjson` of buildx 0.13",
        "install docker-buildx 0.13 or newer",
    ),
}
_NO_BUILDX = (
    "the docker client has no buildx",
    "nothing can be built",
    "install docker-buildx 0.13 or newer",
)


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _silence(said: str) -> UnavailableReason:
    if "permission denied" in said:
        return UnavailableReason.NOT_ALLOWED
    # "Cannot connect to the Docker daemon" up to 28, "failed to connect to the docker API" since.
    if re.search(r"connect to the docker (daemon|api)", said, re.IGNORECASE):
        return UnavailableReason.NOT_RUNNING
    return UnavailableReason.NO_ANSWER


def _buildx(info: Mapping[str, Any]) -> str | None:
    plugins = (info.get("ClientInfo") or {}).get("Plugins") or ()
    return next((str(plugin["Version"]) for plugin in plugins if plugin.get("Name") == "buildx"), None)


def _gateway(network: DockerResult) -> str | None:
    try:
        [bridge] = json.loads(network.out)
        return str(bridge["IPAM"]["Config"][0]["Gateway"])
    except (ValueError, LookupError, TypeError):
        return None


def _interface(network: DockerResult) -> str:
    try:
        [bridge] = json.loads(network.out)
        return str(bridge["Options"]["com.docker.network.bridge.name"])
    except (ValueError, LookupError, TypeError):
        return ""


def _architecture(machine: str) -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


def _version(text: str) -> tuple[int, ...]:
    found = re.match(r"v?(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else ()
