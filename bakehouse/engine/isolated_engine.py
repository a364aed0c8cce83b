"""A container engine of its own that knows nothing yet, for as long as it is needed.

It has its own data, socket, bridge, groups of processes and namespaces of containerd, and leaves the engine
that runs on this machine alone. Needs root.
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
from bakehouse.engine.dockerd import DaemonPaths
from bakehouse.engine.fake_clock import FakeClock
from bakehouse.errors import Diagnostic, EngineError
from bakehouse.util import owners

_HOME = DaemonPaths().state / "engines"
"""Short, since sockets lie below it, and a socket's path has 107 bytes at most."""
_OWNER = DaemonPaths().configured
_GROUPS = Path("/sys/fs/cgroup")
_TAKEN_OVER = ("dns", "dns-opts", "dns-search", "registry-mirrors", "insecure-registries", "proxies")
"""What the machine's owner says of the network is true for this engine too."""
_NETWORKS = range(20, 250)


@contextlib.contextmanager
def isolated_engine(
    store: str,
    report: Callable[[str], None],
    clock: FakeClock | None = None,
    under: Path = _HOME,
    owner: Path = _OWNER,
) -> Iterator[DaemonPaths]:
    """Start one that keeps images in `store`; all of it is removed at the end, or by the next run.

    Under another clock its steps believe that it is later than it is.
    """
    if os.geteuid() != 0:
        message = "a second container engine can be started by root only"
        raise EngineError(Diagnostic(message, hint="run the same command as root"))
    under.mkdir(parents=True, exist_ok=True)
    sweep(under)
    folder = Path(tempfile.mkdtemp(prefix=f"{owners.mine()}.", dir=under))
    name = _name(folder)
    try:
        place = _place(folder, store, clock)
        _write_settings(place, name, owner)
        _make_bridge(name)
        dockerd.start(place, report)
        yield place
    finally:
        _remove(folder)


def _place(folder: Path, store: str = dockerd.CONTAINERD, clock: FakeClock | None = None) -> DaemonPaths:
    programs = clock.programs(folder / "bin") if clock else None
    path = f"{programs}:{dockerd.program_path()}" if programs else dockerd.program_path()
    return DaemonPaths(
        state=folder / "state",
        socket=folder / "docker.sock",
        data_root=folder / "data",
        exec_root=folder / "exec",
        pidfile=folder / "docker.pid",
        containerd=folder / "no-containerd.sock",
        configured=folder / "asked.json",
        command=("env", f"PATH={path}", "dockerd"),
        store=store,
    )


def name_of(place: DaemonPaths) -> str:
    """What its bridge, its group of processes and its namespaces are called."""
    return _name(place.state.parent)


def _name(folder: Path) -> str:
    """An interface's name has 15 letters at most."""
    return f"bake{hashlib.sha256(str(folder).encode()).hexdigest()[:8]}"


def _write_settings(place: DaemonPaths, name: str, owner: Path) -> None:
    asked = dockerd.owner_settings(owner)
    settings = {
        **{key: asked[key] for key in _TAKEN_OVER if key in asked},
        "bridge": name,
        "iptables": False,
        "ip6tables": False,
        "exec-opts": ["native.cgroupdriver=cgroupfs"],
        "cgroup-parent": f"/{name}",
        "containerd-namespace": name,
        "containerd-plugins-namespace": f"{name}-plugins",
    }
    place.configured.write_text(json.dumps(settings))


def _make_bridge(name: str) -> None:
    """A network for containers with a way out: the engine is told to leave the machine's rules alone."""
    taken = _said("ip", "-oneline", "address")
    network = next(one for one in (f"10.213.{number}" for number in _NETWORKS) if f" {one}." not in taken)
    _run("ip", "link", "add", name, "type", "bridge")
    _run("ip", "address", "add", f"{network}.1/24", "dev", name)
    _run("ip", "link", "set", name, "up")
    for table, chain, *rule in (
        ("nat", "POSTROUTING", "-s", f"{network}.0/24", "!", "-o", name, "-j", "MASQUERADE"),
        ("filter", "FORWARD", "-i", name, "-j", "ACCEPT"),
        ("filter", "FORWARD", "-o", name, "-j", "ACCEPT"),
    ):
        _run("iptables", "--wait", "-t", table, "-I", chain, *rule)


def sweep(under: Path) -> None:
    """Remove the engines of runs that were killed."""
    for folder in under.iterdir():
        with contextlib.suppress(FileNotFoundError):
            if owners.is_left_behind(folder.name.partition(".")[0], folder.stat().st_mtime):
                _remove(folder)


def _remove(folder: Path) -> None:
    """Whatever there is of an engine: it may have got anywhere before it was given up."""
    name = _name(folder)
    try:
        dockerd.stop(_place(folder))
    finally:
        for table in ("nat", "filter"):
            for rule in _said("iptables", "--wait", "-t", table, "-S").splitlines():
                words = shlex.split(rule)
                if words[:1] == ["-A"] and name in words:
                    _try("iptables", "--wait", "-t", table, "-D", *words[1:])
        _try("ip", "link", "delete", name)
        mounts = (line.split()[1] for line in Path("/proc/mounts").read_text().splitlines())
        for path in sorted((one for one in mounts if one.startswith(f"{folder}/")), reverse=True):
            _try("umount", "--lazy", path)
        shutil.rmtree(folder, ignore_errors=True)
        for group in (*_GROUPS.glob(name), *_GROUPS.glob(f"*/{name}")):
            below = (one for one in (group, *group.rglob("*")) if one.is_dir())
            for one in sorted(below, reverse=True):
                with contextlib.suppress(OSError):
                    one.rmdir()


def _run(*words: str) -> None:
    done = _try(*words)
    if done.returncode:
        message = f"a second container engine can't be given a network: `{words[0]}` failed"
        hint = f"`{shlex.join(words)}` has to work as root; install iproute2 and iptables"
        raise EngineError(Diagnostic(message, tail=tuple(done.stderr.splitlines()[-3:]), hint=hint))


def _said(*words: str) -> str:
    return _try(*words).stdout


def _try(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": dockerd.program_path()}
    try:
        return subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    except FileNotFoundError as error:
        return subprocess.CompletedProcess(words, 127, "", str(error))
