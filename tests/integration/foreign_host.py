"""A host of another distribution, for an ordinary user, simulated in a mount namespace of this machine.

It has the os-release of the other system, and none of Debian's programs on PATH. Its kernel, libraries,
Python and Docker client are those of this machine. Needs root.
"""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bakehouse.catalog.project import HOME
from tests.support.data import text_of
from tests.support.programs import BAKE

FEDORA = """\
NAME="Fedora Linux"
VERSION="42 (Server Edition)"
ID=fedora
VERSION_ID=42
PLATFORM_ID="platform:f42"
"""
AMAZON_LINUX = """\
NAME="Amazon Linux"
VERSION="2023"
ID="amzn"
ID_LIKE="fedora"
VERSION_ID="2023"
"""
DEBIAN = 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\nVERSION_ID="12"\n'
HOSTS = {
    "Fedora Linux 42": FEDORA,
    "Amazon Linux 2023": AMAZON_LINUX,
    "Debian 12 without apt": DEBIAN,
}
ABSENT = ("apt*", "dpkg*", "mmdebstrap", "docker-registry", "gpg*", "debootstrap", "newuidmap", "newgidmap")
"""Globs of programs that such a host does not have."""
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SETUP = text_of(__file__, "setup")


@dataclass(frozen=True)
class ForeignHost:
    """Such a host, and a directory that its user owns."""

    directory: Path
    user: int
    _work: Path

    def run(
        self, *command: str | Path, environment: Mapping[str, str] | None = None, seconds: float = 900
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command in the directory, with a small environment."""
        socket = Path("/var/run/docker.sock")
        script = _SETUP.format(
            work=shlex.quote(str(self._work)),
            absent=" ".join(ABSENT),
            system=shlex.quote(str(self.directory.parent / "os-release")),
            python=shlex.quote(sys.base_prefix),
            home=shlex.quote(str(Path.home())),
            directory=shlex.quote(str(self.directory)),
            user=self.user,
            groups=socket.stat().st_gid if socket.exists() else self.user,
        )
        state = self.directory.with_name("state")
        state.mkdir(exist_ok=True)
        os.chown(state, self.user, self.user)
        own = {
            "PATH": _PATH,
            # The home directory is that of the project
            "XDG_STATE_HOME": str(state),
            "HOME": str(self.directory),
            "TMPDIR": str(self.directory),
            "PYTHONPATH": str(HOME),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        return subprocess.run(
            ["unshare", "--mount", "--", "sh", "-c", script, "sh", *command],
            env={**own, **(environment or {})},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def python(self, program: str, *arguments: str, environment: Mapping[str, str] | None = None) -> str:
        """Run a Python program that must succeed, and return its output."""
        result = self.run(sys.executable, "-c", program, *arguments, environment=environment)
        assert result.returncode == 0, f"{result.stdout}{result.stderr}"
        return result.stdout

    def bake(
        self, *arguments: str | Path, environment: Mapping[str, str] | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """Run `bake`."""
        return self.run(*BAKE, *arguments, environment=environment)


@contextmanager
def foreign_host(system: str, user: int = 12345) -> Iterator[ForeignHost]:
    """Yield a host with an os-release and a user; its directory is removed at the end."""
    parent = Path(tempfile.mkdtemp(prefix="bakehouse-host-", dir="/tmp"))
    try:
        parent.chmod(0o755)
        (parent / "os-release").write_text(system)
        directory, work = parent / "home", parent / "work"
        directory.mkdir()
        work.mkdir()
        os.chown(directory, user, user)
        yield ForeignHost(directory, user, work)
    finally:
        shutil.rmtree(parent, ignore_errors=True)
