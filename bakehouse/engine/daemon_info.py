"""Facts about the container engine: its version, its features, and the effects of missing features.

The docker client returns the facts as JSON, so that tests can use recorded answers of any engine.
"""

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from bakehouse.errors import Diagnostic, EngineError, Reason
from bakehouse.util.json_reader import parse_json
from bakehouse.util.process import MISSING_PROGRAM

CLIENT_SECONDS = 30
OLDEST_BUILDX = (0, 13)
_DEFAULT_ENDPOINT = "unix:///var/run/docker.sock"
START_SELECTED = "start the engine of DOCKER_HOST or of the docker context, or unset it"
"""Hint for an engine that the user selected and that does not answer."""
REQUIRED_PROGRAMS = "Docker Engine 24 or newer and buildx 0.13 or newer"


class Feature(StrEnum):
    """Features that a task can require of an engine."""

    BRIDGE = "default bridge"
    BUILDX = "buildx"
    MEMORY_LIMIT = "memory limit"
    CPU_LIMIT = "limit of cores"
    NATIVE_DIFF = "order of files"


@dataclass(frozen=True, slots=True)
class Daemon:
    """Description of a container engine that answered."""

    endpoint: str
    name: str
    """Host name of the engine's machine."""
    version: str
    platform: str
    store: str
    """Name of the storage driver."""
    containerd_store: bool
    rootless: bool
    selinux: bool
    """It confines containers with SELinux, which denies access to the directories of users."""
    bridge: str | None
    """Gateway address of the default bridge; None without a bridge."""
    interface: str
    """Network interface of the bridge; empty if the engine does not report it."""
    buildx: str | None
    data_root: str
    cores: int
    memory: int
    """Bytes of memory of the engine's machine."""
    memory_limit: bool
    """It can limit the memory of containers."""
    cpu_limit: bool
    """It can limit the cores of containers."""
    native_diff: bool
    """It orders the files of layers as other engines do."""
    runtimes: tuple[str, ...]
    cdi_directories: tuple[str, ...]
    """Directories of CDI specifications; empty if the engine does not use CDI."""
    registry: str
    """Default registry, for image names without a registry."""


class UnavailableReason(StrEnum):
    """Reason why no engine answered."""

    NO_CLIENT = "no docker client"
    NOT_RUNNING = "nothing listens"
    NOT_ALLOWED = "not allowed"
    NO_ANSWER = "no sensible answer"
    NO_BUILDKIT = "another engine with Docker's API"


@dataclass(frozen=True, slots=True)
class UnavailableDaemon:
    """Description of an engine that did not answer."""

    reason: UnavailableReason
    endpoint: str
    output: str
    """Error output of the docker client, or name and version of an engine that is not Docker."""
    buildx: str | None = None


@dataclass(frozen=True, slots=True)
class MissingFeature:
    """Feature that an engine lacks, and the effect for the user."""

    feature: Feature
    message: str
    effect: str
    hint: str


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """Result of a program; code 127 if it is not installed, 124 if it timed out."""

    code: int
    out: str
    err: str = ""


class DockerClient(Protocol):
    """Command line of the docker client."""

    def __call__(self, *arguments: str) -> ProgramResult: ...


def docker(*arguments: str) -> ProgramResult:
    """Run the docker client, which applies contexts and DOCKER_HOST."""
    return run_program("docker", *arguments)


def run_program(*command: str, seconds: float = CLIENT_SECONDS) -> ProgramResult:
    """Run a program that returns information, within a time limit."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=seconds)
    except MISSING_PROGRAM:
        return ProgramResult(127, "", f"{command[0]}: command not found")
    except subprocess.TimeoutExpired:
        return ProgramResult(124, "", f"{command[0]}: no answer within {seconds:.0f} seconds")
    return ProgramResult(done.returncode, done.stdout, done.stderr)


def probe(client: DockerClient = docker) -> Daemon | UnavailableDaemon:
    """Return the facts of the engine that the docker client connects to."""
    info_reply = client("info", "--format", "json")
    if info_reply.code == 127:
        return UnavailableDaemon(UnavailableReason.NO_CLIENT, "", info_reply.err.strip())
    info = _json_object(info_reply.out)
    context = client("context", "inspect", "--format", "{{.Endpoints.docker.Host}}")
    endpoint = context.out.strip() if context.code == 0 else ""
    buildx = _buildx(info)
    if podman := _podman(info):
        return UnavailableDaemon(UnavailableReason.NO_BUILDKIT, endpoint, podman)
    # The client of version 26 exits with 0 without an engine, but then there is no server version.
    if not info.get("ServerVersion"):
        output = " ".join(info_reply.err.split()) or "; ".join(info.get("ServerErrors") or ())
        return UnavailableDaemon(_reason(output), endpoint, output, buildx)
    if product := _product(client("version", "--format", "json")):
        return UnavailableDaemon(UnavailableReason.NO_BUILDKIT, endpoint, product, buildx)
    network = client("network", "inspect", "bridge", "--format", "json")
    return Daemon(
        endpoint=endpoint,
        name=info["Name"],
        version=info["ServerVersion"],
        platform=f"{info['OSType']}/{_architecture(info['Architecture'])}",
        store=info["Driver"],
        containerd_store=["driver-type", "io.containerd.snapshotter.v1"] in (info["DriverStatus"] or []),
        rootless=any(option.startswith("name=rootless") for option in info["SecurityOptions"] or ()),
        selinux=any(option.startswith("name=selinux") for option in info["SecurityOptions"] or ()),
        bridge=_field(network, "IPAM", "Config", 0, "Gateway"),
        interface=_field(network, "Options", "com.docker.network.bridge.name") or "",
        buildx=buildx,
        data_root=info["DockerRootDir"],
        cores=info["NCPU"],
        memory=info["MemTotal"],
        memory_limit=info["MemoryLimit"],
        cpu_limit=info["CpuCfsQuota"],
        native_diff=["Native Overlay Diff", "false"] not in (info["DriverStatus"] or []),
        runtimes=tuple(sorted(info["Runtimes"] or ())),
        cdi_directories=tuple(info.get("CDISpecDirs") or ()),
        registry=info["IndexServerAddress"],
    )


def inspect(client: DockerClient = docker) -> Daemon:
    """Return the engine's facts, without installing an engine. Raises EngineError if none answers."""
    daemon = probe(client)
    if isinstance(daemon, UnavailableDaemon):
        own = daemon.endpoint in ("", _DEFAULT_ENDPOINT)
        hint = f"install {REQUIRED_PROGRAMS}, and start the engine" if own else START_SELECTED
        raise EngineError.of(unavailable(daemon, hint))
    return daemon


def missing_features(daemon: Daemon) -> tuple[MissingFeature, ...]:
    """Return the features that the engine lacks, the most important first."""
    return tuple(missing for feature in Feature if (missing := _missing_feature(daemon, feature)))


def require(daemon: Daemon, *features: Feature) -> None:
    """Raise EngineError if the engine lacks any of these features; the error lists all of them."""
    missing = [lack for lack in missing_features(daemon) if lack.feature in features]
    if missing:
        engine = (("engine", f"{daemon.version} at {daemon.endpoint}"),)
        raise EngineError.of(
            *(
                Diagnostic(lack.message, reasons=(Reason(lack.effect),), facts=engine, hint=lack.hint)
                for lack in missing
            )
        )


def unavailable(daemon: UnavailableDaemon, hint: str) -> Diagnostic:
    """Return the error for an engine that does not answer; `hint` is for an engine that is not running."""
    at = f" at `{daemon.endpoint}`" if daemon.endpoint else ""
    match daemon.reason:
        case UnavailableReason.NO_CLIENT:
            return Diagnostic(
                "no `docker` command on PATH, so Bakehouse cannot use a container engine", hint=hint
            )
        case UnavailableReason.NOT_RUNNING:
            return Diagnostic(f"no container engine answers{at}", hint=hint)
        case UnavailableReason.NOT_ALLOWED:
            return Diagnostic(
                f"not allowed to use the container engine{at}",
                hint="run the command as root, or join the group `docker` and log in again",
            )
        case UnavailableReason.NO_BUILDKIT:
            return Diagnostic(
                f"the container engine{at} is {daemon.output}, which has no BuildKit",
                reasons=(Reason("Bakehouse builds images through Docker's API of BuildKit"),),
                hint=f"use {REQUIRED_PROGRAMS}; a rootless one works, too",
            )
        case UnavailableReason.NO_ANSWER:
            return Diagnostic(
                f"the container engine{at} returned an unusable answer",
                tail=(daemon.output,),
                hint="check that `docker info` works; check DOCKER_HOST and `docker context ls`",
            )


def _missing_feature(daemon: Daemon, feature: Feature) -> MissingFeature | None:
    texts = _MISSING[feature]
    match feature:
        case Feature.BRIDGE:
            has, value = daemon.bridge is not None, ""
        case Feature.BUILDX:
            if daemon.buildx is None:
                texts = _NO_BUILDX
            has, value = _version(daemon.buildx or "") >= OLDEST_BUILDX, daemon.buildx or ""
        case Feature.MEMORY_LIMIT:
            has, value = daemon.memory_limit, ""
        case Feature.CPU_LIMIT:
            has, value = daemon.cpu_limit, ""
        case Feature.NATIVE_DIFF:
            has, value = daemon.native_diff, ""
    message, effect, hint = texts
    return None if has else MissingFeature(feature, message.format(value), effect, hint)


_DELEGATE = "add `Delegate=cpu memory pids` to the systemd unit `user@.service`, or use an engine with root"
_MISSING: Mapping[Feature, tuple[str, str, str]] = {
    Feature.BRIDGE: (
        "the container engine has no default bridge network",
        "all RUN steps of a build fail with `network bridge not found`",
        'start the engine without `--bridge=none` (or `"bridge": "none"` in its daemon.json)',
    ),
    Feature.BUILDX: (
        "buildx {} is too old",
        "builds need `--progress=rawjson` of buildx 0.13",
        "install docker-buildx 0.13 or newer",
    ),
    Feature.MEMORY_LIMIT: (
        "the container engine cannot limit the memory of containers",
        "its cgroup has no memory controller, so jobs with this limit cannot run",
        _DELEGATE,
    ),
    Feature.CPU_LIMIT: (
        "the container engine cannot limit the cores of containers",
        "its cgroup has no cpu controller, so jobs with this limit cannot run",
        _DELEGATE,
    ),
    Feature.NATIVE_DIFF: (
        "the engine's image store compares directories to make layers",
        "files in layers have another order than on other engines, so images have other digests",
        'add {"features": {"containerd-snapshotter": true}} to its daemon.json, and restart it',
    ),
}
_NO_BUILDX = (
    "the docker client has no buildx",
    "no image can be built",
    "install docker-buildx 0.13 or newer",
)


def _product(version: ProgramResult) -> str:
    """Return name and version of an engine that only implements Docker's API; empty for Docker."""
    server = _json_object(version.out).get("Server") or {}
    engines = [item for item in server.get("Components") or () if item["Name"].endswith(" Engine")]
    return f"{engines[0]['Name'].removesuffix(' Engine')} {engines[0]['Version']}" if engines else ""


def _podman(info: Mapping[str, Any]) -> str:
    """Return name and version of Podman if it provides the command `docker`, as on Fedora; else empty."""
    own = info.get("version")
    return f"Podman {own.get('Version', '')}" if isinstance(own, dict) and "ServerVersion" not in info else ""


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = parse_json(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _reason(output: str) -> UnavailableReason:
    if "permission denied" in output:
        return UnavailableReason.NOT_ALLOWED
    # "Cannot connect to the Docker daemon" up to 28, "failed to connect to the docker API" since.
    if re.search(r"connect to the docker (daemon|api)", output, re.IGNORECASE):
        return UnavailableReason.NOT_RUNNING
    return UnavailableReason.NO_ANSWER


def _buildx(info: Mapping[str, Any]) -> str | None:
    plugins = (info.get("ClientInfo") or {}).get("Plugins") or ()
    return next((str(plugin["Version"]) for plugin in plugins if plugin.get("Name") == "buildx"), None)


def _field(network: ProgramResult, *path: str | int) -> str | None:
    """Return a field of the answer of `docker network inspect`; None without it."""
    try:
        [value] = parse_json(network.out)
        for key in path:
            value = value[key]
    except (ValueError, LookupError, TypeError):
        return None
    return str(value)


def _architecture(machine: str) -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


def _version(text: str) -> tuple[int, ...]:
    version = re.match(r"v?(\d+)\.(\d+)", text)
    return (int(version[1]), int(version[2])) if version else ()
