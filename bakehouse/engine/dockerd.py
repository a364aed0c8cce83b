"""Start and stop of the container engine that Bakehouse provisions.

Bakehouse removes the files of a dead engine before a start, and stops only an engine that it started.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bakehouse.engine.daemon_paths import CONTAINERD, DaemonPaths
from bakehouse.errors import Diagnostic, EngineError
from bakehouse.util.files import write_whole
from bakehouse.util.heartbeat import Heartbeat
from bakehouse.util.process import MISSING_PROGRAM, start_service
from bakehouse.util.terminal import Reporter

START_SECONDS = 60
STOP_SECONDS = 30
ORPHAN_SECONDS = 5
"""Time in which a containerd ends whose dockerd was killed; a newer dockerd uses one that goes on."""
GIGABYTE = 10**9
FLEET_GIGABYTES = 40
"""Size of a build cache for the catalogue's images. The CUDA image has 5 GB. The store keeps layers
compressed and unpacked, and the stages that layers are copied from take the same space again."""
MIN_GIGABYTES = 10
_VARIABLES = (
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    *("SSL_CERT_DIR", "SSL_CERT_FILE", "DOCKER_RAMDISK", "DOCKER_TMPDIR"),
)
"""Variables of dockerd; it pulls images through the proxies."""
BRIDGE = "docker0"
INTERFACES = Path("/sys/class/net")
_SET = "3"
"""NET_ADDR_SET of if_link.h: the address of an interface was set explicitly."""


def cache_limit(free: int, former: int = 0) -> int:
    """Return the limit of the build cache in GB: enough for the fleet, at most half of the free disk.

    The former limit stays while that much disk is free. Half of the free disk alone would shrink with
    every start, because the cache itself uses disk space.
    """
    room = free // GIGABYTE
    return max(MIN_GIGABYTES, min(FLEET_GIGABYTES, max(room // 2, min(former, room))))


def configuration(owner: Mapping[str, Any], limit: int, store: str = CONTAINERD) -> dict[str, Any]:
    """Return the owner's configuration with an image store, and with a cache limit (GB) if it has none."""
    builder = {"gc": {"enabled": True, "defaultKeepStorage": f"{limit}GB"}}
    features = {**owner.get("features", {}), "containerd-snapshotter": store == CONTAINERD}
    driver = {} if store == CONTAINERD else {"storage-driver": store}
    # dockerd rejects options that are also on its command line, and a storage driver with containerd's store.
    replaced = {"hosts", "pidfile", "exec-root", "storage-driver"}
    kept = {key: value for key, value in owner.items() if key not in replaced}
    return {"builder": builder, **kept, **driver, "features": features}


def start(paths: DaemonPaths, report: Reporter) -> None:
    """Start an engine, unless it is already starting, and wait until it answers."""
    process = process_of(paths.pidfile, "dockerd")
    if process is None:
        for path in clear_remains(paths):
            report(f"removed {path} of a dead engine")
        process = _launch(paths, report)
    else:
        report(f"waiting for dockerd (process {process}), which another program started")
    deadline = time.monotonic() + START_SECONDS
    beat = Heartbeat(report, "waiting for dockerd to answer")
    while not answers(paths.socket):
        if not _alive(process):
            raise EngineError.of(_not_started("dockerd exited during its start", paths))
        if time.monotonic() > deadline:
            raise EngineError.of(_not_started(f"dockerd does not answer at `{paths.endpoint}`", paths))
        beat.tick()
        time.sleep(0.1)
    fix_address(owner_settings(paths.configured).get("bridge") or BRIDGE, report)


def loose_address(bridge: str, interfaces: Path = INTERFACES) -> str:
    """Return the address of a bridge without a fixed one; empty if it is fixed or there is no bridge.

    The kernel gives such a bridge the lowest address of its ports, so it can change when a container starts
    or ends. Other containers then send to the former address, and their connections stall for a minute or
    more: https://github.com/containers/netavark/pull/833. Where udev runs, it sets a fixed address.
    """
    directory = interfaces / bridge
    if not directory.is_dir() or (directory / "addr_assign_type").read_text().strip() == _SET:
        return ""
    return (directory / "address").read_text().strip()


def address_command(bridge: str, address: str) -> list[str]:
    """Return the command that sets the address of a bridge."""
    return ["ip", "link", "set", "dev", bridge, "address", address]


def fix_address(bridge: str, report: Reporter, interfaces: Path = INTERFACES) -> None:
    """Make the current address of a bridge permanent."""
    address = loose_address(bridge, interfaces)
    if not address:
        return
    command = address_command(bridge, address)
    try:
        done = subprocess.run(
            command, env={**os.environ, "PATH": program_path()}, capture_output=True, text=True, check=False
        )
        problem = done.stderr.strip() if done.returncode else ""
    except MISSING_PROGRAM:
        problem = "`ip` is not installed (package iproute2)"
    if problem:
        report(f"note: the address of {bridge} may change during a build, which stalls downloads: {problem}")


def stop(paths: DaemonPaths) -> bool:
    """Stop the engine that Bakehouse started with these paths, and wait; return False if there is none."""
    process = process_of(paths.pidfile, "dockerd", str(paths.configuration))
    if process is None:
        return False
    os.kill(process, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while _alive(process):
        if time.monotonic() > deadline:
            raise EngineError(f"dockerd (process {process}) does not stop", hint=f"read {paths.log}")
        time.sleep(0.1)
    return True


def clear_remains(paths: DaemonPaths) -> tuple[Path, ...]:
    """Remove the pid files and sockets of dead processes, and return the removed paths.

    dockerd accepts a pid file if any process has that id, and a containerd socket if it exists. Its own
    containerd ends a moment after it, and holds the files of the next one until then.
    """
    inner = paths.exec_root / "containerd"
    pidfile = inner / "containerd.pid"
    deadline = time.monotonic() + ORPHAN_SECONDS
    while process_of(pidfile, "containerd", str(inner)) and time.monotonic() < deadline:
        time.sleep(0.1)
    dead: list[Path] = []
    if paths.pidfile.exists() and process_of(paths.pidfile, "dockerd") is None:
        dead.append(paths.pidfile)
    if pidfile.exists() and process_of(pidfile, "containerd", str(inner)) is None:
        dead.append(pidfile)
    dead += [path for path in (paths.socket, paths.containerd) if path.is_socket() and not _listens(path)]
    for path in dead:
        path.unlink(missing_ok=True)
    return tuple(dead)


def process_of(pidfile: Path, program: str, argument: str = "") -> int | None:
    """Return the process of a pid file if it still runs this program, with this argument."""
    try:
        process = int(pidfile.read_text().strip())
        name = Path(f"/proc/{process}/comm").read_text().strip()
    except (OSError, ValueError):
        return None
    return process if name == program and _alive(process) and argument in _command_line(process) else None


def program_path() -> str:
    """Return PATH with the directories of system programs, which a plain `su` omits."""
    return f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"


def answers(path: Path) -> bool:
    """Return whether an engine answers at a socket."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as client:
        client.settimeout(5)
        client.connect(str(path))
        client.sendall(b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n")
        return b" 200 " in client.recv(64)
    return False


def _launch(paths: DaemonPaths, report: Reporter) -> int:
    paths.state.mkdir(parents=True, exist_ok=True)
    settings = write_configuration(paths, paths.configuration, owner_settings(paths.configured))
    command = [*paths.command, "--config-file", str(paths.configuration), "--host", paths.endpoint]
    command += ["--exec-root", str(paths.exec_root), "--pidfile", str(paths.pidfile)]
    if "data-root" not in settings:
        command += ["--data-root", str(paths.data_root)]
    report(f"starting dockerd (log: {paths.log})")
    # The shell detaches dockerd and prints its process id: dockerd outlives Bakehouse and gets no Ctrl-C.
    shell = ["sh", "-c", '"$@" >"$0" 2>&1 </dev/null & echo $!', str(paths.log), *command]
    with start_service(shell, subprocess.PIPE, _VARIABLES, program_path()) as started:
        return int(started.communicate()[0])


def write_configuration(paths: DaemonPaths, file: Path, owner: Mapping[str, Any]) -> dict[str, Any]:
    """Write the configuration of an engine to a file and return it; keep its cache limit if possible."""
    paths.data_root.mkdir(parents=True, exist_ok=True)
    limit = cache_limit(shutil.disk_usage(paths.data_root).free, _limit_in(file))
    settings = configuration(owner, limit, paths.store)
    write_whole(file, json.dumps(settings, indent=2, sort_keys=True) + "\n")
    return settings


def _limit_in(configuration: Path) -> int:
    try:
        settings = json.loads(configuration.read_text())
        return int(settings["builder"]["gc"]["defaultKeepStorage"].removesuffix("GB"))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return 0


def owner_settings(path: Path) -> dict[str, Any]:
    """Return the engine configuration of the machine's owner; raises EngineError if it is not valid JSON."""
    try:
        settings = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise EngineError(
            f"{path} is not valid JSON, so no engine can be started with it",
            tail=(str(error),),
            hint=f"correct {path}",
        ) from error
    return dict(settings)


def _not_started(message: str, paths: DaemonPaths) -> Diagnostic:
    lines = paths.log.read_text(errors="replace").splitlines() if paths.log.exists() else []
    relevant = [line for line in lines if "level=info" not in line] or lines
    return Diagnostic(
        message,
        tail=tuple(relevant[-5:]),
        hint=f"read {paths.log}; in a container, use `--privileged` and a volume at {paths.data_root}",
    )


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
