"""Temporary engine with an empty store for benchmarks; its CPU time is measured."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bakehouse.engine.daemon_paths import CONTAINERD, DaemonPaths
from bakehouse.maintain import isolated_engine

_COUNTED = Path("/sys/fs/cgroup/cpuacct")


@dataclass(frozen=True)
class ColdEngine:
    """Running engine that shares nothing with other engines."""

    paths: DaemonPaths

    @property
    def group(self) -> Path:
        """Control group that counts the CPU of the engine and its build steps."""
        return _COUNTED / isolated_engine.name_of(self.paths.state.parent)

    @property
    def environment(self) -> dict[str, str]:
        """Environment that makes docker and Bakehouse use this engine, with an empty download cache."""
        cache = str(self.paths.state / "files")
        return {**os.environ, "DOCKER_HOST": self.paths.endpoint, "BAKEHOUSE_CACHE": cache}

    def cpu(self) -> float:
        """CPU seconds of the engine and its build steps since its start."""
        return int((self.group / "cpuacct.usage").read_text()) / 1e9

    def disk(self) -> int:
        """Size of its data in bytes."""
        command = ["du", "--summarize", "--block-size=1", str(self.paths.data_root)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        return int(result.stdout.split()[0])

    def docker(self, *arguments: str) -> str:
        """Return the output of a docker command; a failure ends the benchmark."""
        result = subprocess.run(
            ["docker", *arguments], env=self.environment, capture_output=True, text=True, check=False
        )
        if result.returncode:
            sys.exit(f"`docker {' '.join(arguments)}` failed:\n{result.stderr}")
        return result.stdout

    def prune(self) -> None:
        """Empty the build cache."""
        self.docker("builder", "prune", "--all", "--force")

    def copy_in(self, references: Sequence[str]) -> None:
        """Load images of the default engine."""
        with subprocess.Popen(["docker", "save", *references], stdout=subprocess.PIPE) as saved:
            loaded = subprocess.run(
                ["docker", "load"], stdin=saved.stdout, env=self.environment, capture_output=True, check=False
            )
        if saved.returncode or loaded.returncode:
            sys.exit(f"{', '.join(references)} could not be copied: {loaded.stderr.decode(errors='replace')}")


@contextlib.contextmanager
def cold_engine(under: Path) -> Iterator[ColdEngine]:
    """Start an engine with its data below `under`; all of it is removed at the end."""
    if not _COUNTED.is_dir():
        sys.exit(
            f"there is no {_COUNTED}: the CPU that an engine uses is counted with control groups, version 1"
        )
    with isolated_engine.isolated_engine(CONTAINERD, _say, under=under) as paths:
        engine = ColdEngine(paths)
        engine.group.mkdir(exist_ok=True)
        # What these start from now on is counted too.
        for pidfile in (paths.pidfile, paths.exec_root / "containerd" / "containerd.pid"):
            (engine.group / "cgroup.procs").write_text(pidfile.read_text())
        yield engine


def _say(text: str) -> None:
    print(text, file=sys.stderr)
