"""Temporary container engine with an empty store.

It has its own data, socket, bridge, cgroups and containerd namespaces, and does not affect the engine of this
machine. Needs root.
"""

import contextlib
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from bakehouse.engine import dockerd
from bakehouse.engine.daemon_paths import CONTAINERD, DaemonPaths
from bakehouse.errors import EngineError
from bakehouse.util import tempdir
from bakehouse.util.process import MISSING_PROGRAM

_HOME = DaemonPaths().state / "engines"
"""A short path, because a socket path has at most 107 bytes."""
_OWNER = DaemonPaths().configured
_GROUPS = Path("/sys/fs/cgroup")
_NETWORK_SETTINGS = ("dns", "dns-opts", "dns-search", "registry-mirrors", "insecure-registries", "proxies")
"""Settings of the machine's owner that are copied."""
_NETWORKS = range(20, 250)
_BRIDGE = "10.213.{}"
_POOL = "10.214.{}.0/24"
"""Addresses of the networks that are created on an engine."""


@contextlib.contextmanager
def isolated_engine(
    store: str, report: Callable[[str], None], under: Path = _HOME, owner: Path = _OWNER
) -> Iterator[DaemonPaths]:
    """Start an engine with an image store; the end of the context, or the next run, removes all of it."""
    if os.geteuid() != 0:
        raise EngineError(
            "only root can start a second container engine", hint="run the same command as root"
        )
    under.mkdir(parents=True, exist_ok=True)
    sweep(under)
    directory = Path(tempfile.mkdtemp(prefix=f"{tempdir.run_id()}.", dir=under))
    name = name_of(directory)
    try:
        paths = _paths(directory, store)
        number = _make_bridge(name)
        _write_settings(paths, name, owner, number)
        dockerd.start(paths, report)
        yield paths
    finally:
        _remove(directory)


def _paths(directory: Path, store: str = CONTAINERD) -> DaemonPaths:
    return DaemonPaths.below(directory, ("env", f"PATH={dockerd.program_path()}", "dockerd"), store)


def name_of(directory: Path) -> str:
    """Return the name of an engine's bridge, cgroup and containerd namespaces: at most 15 characters."""
    return f"bake{hashlib.sha256(str(directory).encode()).hexdigest()[:8]}"


def _write_settings(paths: DaemonPaths, name: str, owner: Path, number: int) -> None:
    configured = dockerd.owner_settings(owner)
    settings = {
        **{key: configured[key] for key in _NETWORK_SETTINGS if key in configured},
        "bridge": name,
        "iptables": False,
        "ip6tables": False,
        "default-address-pools": [{"base": _POOL.format(number), "size": 28}],
        "exec-opts": ["native.cgroupdriver=cgroupfs"],
        "cgroup-parent": f"/{name}",
        "containerd-namespace": name,
        "containerd-plugins-namespace": f"{name}-plugins",
    }
    paths.configured.write_text(json.dumps(settings))


def _make_bridge(name: str) -> int:
    """Create a network with access to others; the engine itself must not change the machine's rules.

    Returns the number of its network.
    """
    used = _output("ip", "-oneline", "address")
    number = next(number for number in _NETWORKS if f" {_BRIDGE.format(number)}." not in used)
    network, pool = _BRIDGE.format(number), _POOL.format(number)
    label = ("-m", "comment", "--comment", name)
    _run("ip", "link", "add", name, "type", "bridge")
    _run("ip", "address", "add", f"{network}.1/24", "dev", name)
    _run("ip", "link", "set", name, "up")
    for table, chain, *rule in (
        ("nat", "POSTROUTING", "-s", f"{network}.0/24", "!", "-o", name, "-j", "MASQUERADE"),
        ("filter", "FORWARD", "-i", name, "-j", "ACCEPT"),
        ("filter", "FORWARD", "-o", name, "-j", "ACCEPT"),
        # The machine's own engine drops packets of unknown networks, also between the ports of a bridge.
        ("nat", "POSTROUTING", "-s", pool, "!", "-d", pool, *label, "-j", "MASQUERADE"),
        ("filter", "FORWARD", "-s", pool, *label, "-j", "ACCEPT"),
        ("filter", "FORWARD", "-d", pool, *label, "-j", "ACCEPT"),
    ):
        _run("iptables", "--wait", "-t", table, "-I", chain, *rule)
    return number


def sweep(under: Path) -> None:
    """Remove the engines of killed runs."""
    for directory in tempdir.abandoned(under):
        _remove(directory)


def _remove(directory: Path) -> None:
    """Remove all traces of an engine, which may be only partly created."""
    name = name_of(directory)
    try:
        dockerd.stop(_paths(directory))
    finally:
        for table in ("nat", "filter"):
            for rule in _output("iptables", "--wait", "-t", table, "-S").splitlines():
                command = shlex.split(rule)
                if command[:1] == ["-A"] and name in command:
                    _try("iptables", "--wait", "-t", table, "-D", *command[1:])
        _try("ip", "link", "delete", name)
        mounts = (line.split()[1] for line in Path("/proc/mounts").read_text().splitlines())
        for path in sorted((mount for mount in mounts if mount.startswith(f"{directory}/")), reverse=True):
            _try("umount", "--lazy", path)
        shutil.rmtree(directory, ignore_errors=True)
        for group in (*_GROUPS.glob(name), *_GROUPS.glob(f"*/{name}")):
            groups = (path for path in (group, *group.rglob("*")) if path.is_dir())
            for cgroup in sorted(groups, reverse=True):
                with contextlib.suppress(OSError):
                    cgroup.rmdir()


def _run(*command: str) -> None:
    done = _try(*command)
    if done.returncode:
        raise EngineError(
            f"could not create a network for a second container engine: `{command[0]}` failed",
            tail=tuple(done.stderr.splitlines()[-3:]),
            hint=f"install iproute2 and iptables, and check that root can run `{shlex.join(command)}`",
        )


def _output(*command: str) -> str:
    return _try(*command).stdout


def _try(*command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": dockerd.program_path()}
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    except MISSING_PROGRAM as error:
        return subprocess.CompletedProcess(command, 127, "", str(error))
