"""A container engine of its own that knows nothing yet, for as long as a benchmark needs it.

It has its own data, socket and bridge, and a control group that counts the CPU of its steps and its
own. Needs root, and leaves the engine that runs on this machine alone.
"""

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bakehouse import dockerd

_COUNTED = Path("/sys/fs/cgroup/cpuacct")
_GROUPS = Path("/sys/fs/cgroup")
_NUMBERS = itertools.count()
_IN_GROUP = 'mkdir -p "$0" && echo $$ > "$0/cgroup.procs" && exec dockerd "$@"'


@dataclass(frozen=True)
class ColdEngine:
    """An engine that runs; another one has nothing in common with it."""

    place: dockerd.Place
    group: str

    @property
    def environment(self) -> dict[str, str]:
        """What makes docker's programs, and Bakehouse, use it; with no file that was fetched before."""
        cache = str(self.place.state / "files")
        return {**os.environ, "DOCKER_HOST": self.place.endpoint, "BAKEHOUSE_CACHE": cache}

    def cpu(self) -> float:
        """Seconds that its steps and itself have used so far."""
        return int((_COUNTED / self.group / "cpuacct.usage").read_text()) / 1e9

    def disk(self) -> int:
        """Bytes of its data."""
        words = ["du", "--summarize", "--block-size=1", str(self.place.data_root)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        return int(done.stdout.split()[0])

    def docker(self, *words: str) -> str:
        """What a docker command prints; the benchmark ends where it fails."""
        done = subprocess.run(
            ["docker", *words], env=self.environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            sys.exit(f"`docker {' '.join(words)}` failed:\n{done.stderr}")
        return done.stdout

    def copy_in(self, references: Sequence[str]) -> None:
        """Load images of the engine that docker reaches by itself."""
        with subprocess.Popen(["docker", "save", *references], stdout=subprocess.PIPE) as saved:
            loaded = subprocess.run(
                ["docker", "load"],
                stdin=saved.stdout,
                env=self.environment,
                capture_output=True,
                check=False,
            )
        if saved.returncode or loaded.returncode:
            sys.exit(f"{', '.join(references)} could not be copied: {loaded.stderr.decode(errors='replace')}")


@contextlib.contextmanager
def cold_engine(under: Path) -> Iterator[ColdEngine]:
    """Start one with its data below `under`; all of it is removed at the end."""
    if not _COUNTED.is_dir():
        sys.exit(
            f"there is no {_COUNTED}: the CPU that an engine uses is counted with control groups, version 1"
        )
    number = next(_NUMBERS)
    name = f"bh{os.getpid()}n{number}"
    folder = Path(tempfile.mkdtemp(prefix="cold-engine-", dir=under))
    place = dockerd.Place(
        state=folder / "state",
        socket=folder / "docker.sock",
        data_root=folder / "data",
        exec_root=folder / "exec",
        pidfile=folder / "docker.pid",
        containerd=folder / "no-containerd.sock",
        configured=folder / "asked.json",
        command=("sh", "-c", _IN_GROUP, str(_COUNTED / name)),
    )
    settings = {
        "bridge": name,
        "iptables": False,
        "ip6tables": False,
        "cgroup-parent": f"/{name}",
        "containerd-namespace": name,
        "containerd-plugins-namespace": f"{name}-plugins",
    }
    place.configured.write_text(json.dumps(settings))
    try:
        with _bridge(name, f"10.213.{os.getpid() % 200 + 20}"):
            dockerd.start(place, lambda text: print(text, file=sys.stderr))
            try:
                yield ColdEngine(place, name)
            finally:
                dockerd.stop(place)
    finally:
        _remove(folder, name)


@contextlib.contextmanager
def _bridge(name: str, network: str) -> Iterator[None]:
    """A network for containers, with a way out: the engine is told to leave the machine's rules alone."""
    rules = (
        ("-t", "nat", "POSTROUTING", "-s", f"{network}.0/24", "!", "-o", name, "-j", "MASQUERADE"),
        ("-t", "filter", "FORWARD", "-i", name, "-j", "ACCEPT"),
        ("-t", "filter", "FORWARD", "-o", name, "-j", "ACCEPT"),
    )
    _run("ip", "link", "add", name, "type", "bridge")
    with contextlib.ExitStack() as stack:
        stack.callback(_run, "ip", "link", "delete", name)
        _run("ip", "address", "add", f"{network}.1/24", "dev", name)
        _run("ip", "link", "set", name, "up")
        for table, where, chain, *rule in rules:
            _run("iptables", "--wait", table, where, "-I", chain, *rule)
            stack.callback(_run, "iptables", "--wait", table, where, "-D", chain, *rule)
        yield


def _remove(folder: Path, name: str) -> None:
    mounts = (line.split()[1] for line in Path("/proc/mounts").read_text().splitlines())
    for path in sorted((one for one in mounts if one.startswith(f"{folder}/")), reverse=True):
        _run("umount", "--lazy", path)
    shutil.rmtree(folder, ignore_errors=True)
    for group in _GROUPS.glob(f"*/{name}"):
        for below in sorted((one for one in (group, *group.rglob("*")) if one.is_dir()), reverse=True):
            with contextlib.suppress(OSError):
                below.rmdir()


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)
