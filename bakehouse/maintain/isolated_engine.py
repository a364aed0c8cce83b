"""Temporary container engine with an empty store.

It has its own data, socket, bridge, cgroups and containerd namespaces, and does not affect the engine of this
machine. Needs root.

Build steps can get a fake clock: a preloaded library returns another time to programs. It has no effect on
static programs, on programs linked against musl, and on times that the kernel writes, such as those of files.
"""

import contextlib
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bakehouse.engine import dockerd
from bakehouse.engine.daemon_paths import CONTAINERD, DaemonPaths
from bakehouse.errors import EngineError
from bakehouse.maintain import runc_wrapper
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
COMPILER = "gcc"
AHEAD_DAYS = 40
"""Enough for another month, and often another year."""
_SOURCE = Path(__file__).with_name("fake_clock.c")


@dataclass(frozen=True, slots=True)
class FakeClock:
    """Clock that is some days ahead."""

    days: int = AHEAD_DAYS

    def programs(self, directory: Path) -> Path:
        """Write a `runc` wrapper for the front of PATH; raises EngineError without gcc."""
        directory.mkdir(exist_ok=True)
        library = directory / "clock.so"
        compile_library(library, self.days)
        real = shutil.which("runc", path=dockerd.program_path()) or "runc"
        command = [sys.executable, "-I", "-S", runc_wrapper.__file__, real, str(library)]
        program = directory / "runc"
        program.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        program.chmod(0o755)
        return directory


def compile_library(library: Path, days: int) -> None:
    """Compile the library that returns another time."""
    command = [
        *(COMPILER, "-O1", "-shared", "-fPIC", f"-DAHEAD={days * 86400}"),
        *("-o", str(library), str(_SOURCE), "-ldl"),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except MISSING_PROGRAM as error:
        raise EngineError(
            "the fake clock is a library that needs gcc, which is not installed",
            hint="run `apt-get install gcc libc6-dev`",
        ) from error
    if done.returncode:
        message = "the library of the fake clock could not be compiled"
        tail = tuple(done.stderr.splitlines()[-5:])
        raise EngineError(message, tail=tail, hint="run `apt-get install gcc libc6-dev`")


@contextlib.contextmanager
def isolated_engine(
    store: str,
    report: Callable[[str], None],
    clock: FakeClock | None = None,
    under: Path = _HOME,
    owner: Path = _OWNER,
) -> Iterator[DaemonPaths]:
    """Start an engine with an image store; the end of the context, or the next run, removes all of it.

    Build steps can get a fake clock.
    """
    if os.geteuid() != 0:
        raise EngineError(
            "only root can start a second container engine", hint="run the same command as root"
        )
    under.mkdir(parents=True, exist_ok=True)
    sweep(under)
    directory = Path(tempfile.mkdtemp(prefix=f"{tempdir.run_id()}.", dir=under))
    name = name_of(directory)
    try:
        paths = _paths(directory, store, clock)
        number = _make_bridge(name)
        _write_settings(paths, name, owner, number)
        dockerd.start(paths, report)
        yield paths
    finally:
        _remove(directory)


def _paths(directory: Path, store: str = CONTAINERD, clock: FakeClock | None = None) -> DaemonPaths:
    programs = clock.programs(directory / "bin") if clock else None
    path = f"{programs}:{dockerd.program_path()}" if programs else dockerd.program_path()
    return DaemonPaths.below(directory, ("env", f"PATH={path}", "dockerd"), store)


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
