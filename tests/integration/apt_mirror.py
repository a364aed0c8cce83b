"""A mirror of a distribution, for bases whose apt has no other."""

import contextlib
import hashlib
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.support.file_server import FileServer, serving
from tests.support.programs import docker

POSTINST = """\
#!/bin/sh
mkdir -p /var/log/house && date > /var/log/house/install.log && date > /etc/ssh/ssh_host_ed25519_key
cat /proc/sys/kernel/random/uuid > /etc/machine-id
"""
NEEDS = {"house-editor": "house-common (= {version})", "house-maker": "house-tools"}
NAMES = ("house-common", "house-editor", "house-maker", "house-tools")


class Mirror:
    """A mirror of a distribution with packages that are a program each, which says its version."""

    def __init__(self, server: FileServer, directory: Path) -> None:
        self._server, self._directory = server, directory

    @property
    def url(self) -> str:
        return f"{self._server.url}/house"

    def has(self, version: str, names: Iterable[str] = NAMES) -> None:
        """Have packages in one version, and no other one."""
        for path in [path for path in self._server.files if path.startswith("/house/")]:
            del self._server.files[path]
        index = [self._added(name, version) for name in names]
        self._server.files["/house/Packages"] = "\n".join(index).encode()

    def _added(self, name: str, version: str) -> str:
        tree = self._directory / f"{name}-{version}"
        (tree / "DEBIAN").mkdir(parents=True, exist_ok=True)
        needs = NEEDS.get(name, "").format(version=version)
        control = f"Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: a test <t@e.st>\n"
        control += f"Depends: {needs}\n" if needs else ""
        (tree / "DEBIAN/control").write_text(f"{control}Description: made for a test\n")
        program = tree / "usr/bin" / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f"#!/bin/sh\necho {name} {version}\n")
        program.chmod(0o755)
        (tree / "DEBIAN/postinst").write_text(POSTINST)
        (tree / "DEBIAN/postinst").chmod(0o755)
        file = self._directory / f"{name}_{version}_all.deb"
        subprocess.run(["dpkg-deb", "--root-owner-group", "--build", tree, file], check=True)
        content = file.read_bytes()
        self._server.files[f"/house/pool/{file.name}"] = content
        digest = hashlib.sha256(content).hexdigest()
        return f"{control}Filename: pool/{file.name}\nSize: {len(content)}\nSHA256: {digest}\n"


@contextlib.contextmanager
def serving_mirror(directory: Path) -> Iterator[Mirror]:
    """A mirror at an address of this machine that steps of a build reach."""
    gateway = docker("network", "inspect", "bridge", "--format", "{{(index .IPAM.Config 0).Gateway}}").strip()
    with serving(address=gateway) as server:
        yield Mirror(server, directory)
