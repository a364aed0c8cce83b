"""Starts a container engine of our own, clears what a dead one left, and ends none but that one."""

import contextlib
import itertools
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bakehouse.errors import Diagnostic, EngineError
from bakehouse.util.files import write_whole

START_SECONDS = 60
STOP_SECONDS = 30
GIGABYTE = 10**9
FLEET_GIGABYTES = 40
"""A build cache that holds the catalogue's images: the CUDA one is 5 GB, the store keeps layers packed and
unpacked, and the stages that layers are copied from weigh as much again."""
LEAST_GIGABYTES = 10
CONTAINERD = "containerd"
BRIDGE = "docker0"
INTERFACES = Path("/sys/class/net")
_SET = "3"
"""NET_ADDR_SET of Linux' if_link: somebody has given an interface its address."""


@dataclass(frozen=True, slots=True)
class DaemonPaths:
    """Where an engine lives; another place is another engine."""

    state: Path = Path("/var/lib/bakehouse")
    """Its configuration, log and lock: of the machine, since all checkouts share one engine."""
    socket: Path = Path("/var/run/docker.sock")
    data_root: Path = Path("/var/lib/docker")
    exec_root: Path = Path("/var/run/docker")
    pidfile: Path = Path("/var/run/docker.pid")
    containerd: Path = Path("/run/containerd/containerd.sock")
    """The system's own containerd, which dockerd uses where that socket exists."""
    configured: Path = Path("/etc/docker/daemon.json")
    """What the machine's owner asks of an engine; taken over, never written."""
    command: tuple[str, ...] = ("dockerd",)
    store: str = CONTAINERD
    """How it keeps images: in containerd's store, or as the storage driver of this name does."""

    @property
    def configuration(self) -> Path:
        return self.state / "daemon.json"

    @property
    def in_use(self) -> Path:
        """A lock: those who build or push share it, who restarts the engine holds it alone."""
        return self.state / "in-use"

    @property
    def log(self) -> Path:
        return self.state / "dockerd.log"

    @property
    def endpoint(self) -> str:
        return f"unix://{self.socket}"


def cache_limit(free: int, former: int = 0) -> int:
    """The build cache's limit in gigabytes: room for the fleet, but no more than half of the free disk.

    The limit that was set before stays while that much is free: the cache itself has taken of the free disk,
    and half of what it left would be less with every start.
    """
    room = free // GIGABYTE
    return max(LEAST_GIGABYTES, min(FLEET_GIGABYTES, max(room // 2, min(former, room))))


def configuration(owner: Mapping[str, Any], limit: int, store: str = CONTAINERD) -> dict[str, Any]:
    """The owner's configuration with an image store, and a cache limit in gigabytes where it sets none."""
    builder = {"gc": {"enabled": True, "defaultKeepStorage": f"{limit}GB"}}
    features = {**owner.get("features", {}), "containerd-snapshotter": store == CONTAINERD}
    driver = {} if store == CONTAINERD else {"storage-driver": store}
    # dockerd refuses an option that its command line gives as well, and a storage driver beside that store.
    ours = {"hosts", "pidfile", "exec-root", "storage-driver"}
    kept = {key: value for key, value in owner.items() if key not in ours}
    return {"builder": builder, **kept, **driver, "features": features}


def start(place: DaemonPaths, report: Callable[[str], None]) -> None:
    """Start an engine and wait until it answers; one that starts already is only waited for."""
    process = process_of(place.pidfile, "dockerd")
    if process is None:
        for path in clear_remains(place):
            report(f"removed {path}, which a dead engine left")
        process = _launch(place, report)
    else:
        report(f"waiting for dockerd (process {process}), which another started")
    deadline = time.monotonic() + START_SECONDS
    while not answers(place.socket):
        if not _alive(process):
            raise EngineError(_not_started("dockerd ended while it was starting", place))
        if time.monotonic() > deadline:
            raise EngineError(_not_started(f"dockerd does not answer at `{place.endpoint}`", place))
        time.sleep(0.1)
    fix_address(owner_settings(place.configured).get("bridge") or BRIDGE, report)


def loose_address(bridge: str, interfaces: Path = INTERFACES) -> str:
    """The address of a bridge that nobody has given one; empty where somebody has, or there is no bridge.

    The kernel gives such a bridge the lowest address of its ports, another one whenever a container comes or
    goes; the others then send to the former one, and their connections stall for a minute and more:
    https://github.com/containers/netavark/pull/833. Where udev runs, it has given it one.
    """
    folder = interfaces / bridge
    if not folder.is_dir() or (folder / "addr_assign_type").read_text().strip() == _SET:
        return ""
    return (folder / "address").read_text().strip()


def address_command(bridge: str, address: str) -> list[str]:
    """The command that gives a bridge an address."""
    return ["ip", "link", "set", "dev", bridge, "address", address]


def fix_address(bridge: str, report: Callable[[str], None], interfaces: Path = INTERFACES) -> None:
    """Let a bridge keep the address that it has."""
    address = loose_address(bridge, interfaces)
    if not address:
        return
    command = address_command(bridge, address)
    try:
        done = subprocess.run(
            command, env={**os.environ, "PATH": program_path()}, capture_output=True, text=True, check=False
        )
        told = done.stderr.strip() if done.returncode else ""
    except FileNotFoundError:
        told = "there is no `ip` on this machine; install iproute2"
    if told:
        report(
            f"note: the address of {bridge} may change while steps run, which stalls what they fetch: {told}"
        )


def stop(place: DaemonPaths) -> bool:
    """End the engine that was started in this place, and wait for its end; False where there is none."""
    process = process_of(place.pidfile, "dockerd", str(place.configuration))
    if process is None:
        return False
    os.kill(process, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while _alive(process):
        if time.monotonic() > deadline:
            message = f"dockerd (process {process}) does not end"
            raise EngineError(Diagnostic(message, hint=f"read {place.log}"))
        time.sleep(0.1)
    return True


def clear_remains(place: DaemonPaths) -> tuple[Path, ...]:
    """Remove the pid files and sockets of dead processes; the removed paths.

    dockerd believes a pid file while any process has that number, and a socket of containerd while it exists.
    """
    inner = place.exec_root / "containerd"
    dead: list[Path] = []
    if place.pidfile.exists() and process_of(place.pidfile, "dockerd") is None:
        dead.append(place.pidfile)
    pidfile = inner / "containerd.pid"
    if pidfile.exists() and process_of(pidfile, "containerd", str(inner)) is None:
        dead.append(pidfile)
    dead += [path for path in (place.socket, place.containerd) if path.is_socket() and not _listens(path)]
    for path in dead:
        path.unlink(missing_ok=True)
    return tuple(dead)


def process_of(pidfile: Path, program: str, argument: str = "") -> int | None:
    """The living process that wrote this pid file, if it still is that program, run with that argument."""
    try:
        process = int(pidfile.read_text().strip())
        name = Path(f"/proc/{process}/comm").read_text().strip()
    except (OSError, ValueError):
        return None
    return process if name == program and _alive(process) and argument in _command_line(process) else None


def program_path() -> str:
    """PATH with the folders of system programs, which a plain `su` leaves out."""
    return f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"


def answers(path: Path) -> bool:
    """Whether an engine that has finished starting listens there."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as client:
        client.settimeout(5)
        client.connect(str(path))
        client.sendall(b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n")
        return b" 200 " in client.recv(64)
    return False


def configured_cache_limit(endpoint: str, place: DaemonPaths | None = None) -> str | None:
    """What the configuration of the engine at this endpoint says of its build cache's limit; "" for no limit.

    None where it can't be known: another machine, or a configuration that this user may not read.
    """
    place = place or DaemonPaths()
    process = _process_behind(endpoint, place.pidfile)
    if process is None:
        return None
    words = _command_line(process).split("\0")
    named = [word for flag, word in itertools.pairwise(words) if flag == "--config-file"]
    try:
        settings = json.loads(Path(named[-1] if named else place.configured).read_text())
    except FileNotFoundError:
        return ""
    except (OSError, ValueError):
        return None
    collection = settings.get("builder", {}).get("gc", {})
    return str(collection.get("defaultKeepStorage", "")) if collection.get("enabled") else ""


def _launch(place: DaemonPaths, report: Callable[[str], None]) -> int:
    place.state.mkdir(parents=True, exist_ok=True)
    place.data_root.mkdir(parents=True, exist_ok=True)
    limit = cache_limit(shutil.disk_usage(place.data_root).free, _limit_in(place.configuration))
    settings = configuration(owner_settings(place.configured), limit, place.store)
    write_whole(place.configuration, json.dumps(settings, indent=2, sort_keys=True) + "\n")
    command = [*place.command, "--config-file", str(place.configuration), "--host", place.endpoint]
    command += ["--exec-root", str(place.exec_root), "--pidfile", str(place.pidfile)]
    if "data-root" not in settings:
        command += ["--data-root", str(place.data_root)]
    report(f"starting dockerd; its log is {place.log}")
    # The shell gives the process away and names it: it outlives us, and Ctrl-C here doesn't reach it.
    shell = ["setsid", "sh", "-c", '"$@" >"$0" 2>&1 </dev/null & echo $!', str(place.log), *command]
    environment = {**os.environ, "PATH": program_path()}
    return int(subprocess.run(shell, cwd="/", env=environment, check=True, stdout=subprocess.PIPE).stdout)


def _limit_in(configuration: Path) -> int:
    try:
        settings = json.loads(configuration.read_text())
        return int(settings["builder"]["gc"]["defaultKeepStorage"].removesuffix("GB"))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return 0


def owner_settings(path: Path) -> dict[str, Any]:
    """What the machine's owner asks of an engine; raises EngineError where it can't be read."""
    try:
        settings = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        message = f"{path} is not JSON, so no engine can be started with it"
        raise EngineError(Diagnostic(message, tail=(str(error),), hint=f"correct {path}")) from error
    return dict(settings)


def _not_started(message: str, place: DaemonPaths) -> Diagnostic:
    lines = place.log.read_text(errors="replace").splitlines() if place.log.exists() else []
    telling = [line for line in lines if "level=info" not in line] or lines
    return Diagnostic(
        message,
        tail=tuple(telling[-5:]),
        hint=f"read {place.log}; in a container, give it `--privileged` and a volume at {place.data_root}",
    )


def _process_behind(endpoint: str, pidfile: Path) -> int | None:
    if not endpoint.startswith("unix://"):
        return None
    process = 0
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as client:
        client.connect(endpoint.removeprefix("unix://"))
        process, _, _ = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    if process and "dockerd" in _command_line(process):
        return int(process)
    # systemd listens for the engine it starts.
    return process_of(pidfile, "dockerd") if process == 1 else None


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(5)
        try:
            client.connect(str(path))
        except ConnectionRefusedError:
            return False
        except OSError:
            return True
    return True


def _alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state != "Z"


def _command_line(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""
