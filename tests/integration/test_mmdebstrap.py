"""A base of the catalogue, compared file by file with what mmdebstrap makes of the same packages."""

import contextlib
import hashlib
import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import IO

import pytest

from bakehouse.builder.base_layer import path_of
from bakehouse.builder.deb_file import DebFile
from bakehouse.engine import docker
from bakehouse.plan.base_steps import EXCLUDED
from bakehouse.plan.model import BootstrappedBase
from bakehouse.util.oci import EPOCH, architecture_of
from tests.integration import projects
from tests.integration.bases import base
from tests.support import feeds

pytestmark = [
    pytest.mark.engine,
    pytest.mark.release,
    pytest.mark.skipif(
        os.geteuid() != 0 or not shutil.which("mmdebstrap"), reason="needs root and mmdebstrap"
    ),
]

REMOVED = (
    "var/log/*", "var/lib/apt/lists/*", "var/cache/apt/*", "var/cache/ldconfig/aux-cache",
    "var/cache/debconf/*-old", "var/lib/dpkg/*-old", "etc/*-", "etc/hostname", "etc/resolv.conf",
    "etc/apt/sources.list", "etc/apt/sources.list.d/*",
)  # fmt: skip
"""Files that differ between runs of mmdebstrap, and its sources."""
DIFFERENCES = {
    "dev/console", "dev/fd", "dev/full", "dev/null", "dev/ptmx", "dev/pts", "dev/random", "dev/shm",
    "dev/stderr", "dev/stdin", "dev/stdout", "dev/tty", "dev/urandom", "dev/zero",
    "etc/apt/apt.conf.d/90bakehouse", "etc/apt/apt.conf.d/99mmdebstrap", "etc/apt/sources.list",
    "etc/dpkg/dpkg.cfg.d/99mmdebstrap", "etc/dpkg/dpkg.cfg.d/bakehouse",
    "etc/fstab", "etc/shells",
    "var/lib/apt/extended_states", "var/lib/apt/lists/lock", "var/lib/apt/lists/partial",
    "var/lib/dpkg/arch", "var/lib/dpkg/available",
}  # fmt: skip
"""Paths that differ: /dev is mounted, settings have other names, apt and dpkg create the rest when needed."""

Entry = tuple[object, ...]


def test_only_the_documented_files_differ(tmp_path: Path) -> None:
    made: dict[str, Entry] = {}
    with contextlib.closing(docker.connect()) as engine:
        engine.read_image(projects.base(), lambda _: lambda stream: made.update(entries(stream)))
    expected = entries(io.BytesIO(mmdebstrap(base(), tmp_path)))
    assert {path for path in {*made, *expected} if made.get(path) != expected.get(path)} == DIFFERENCES
    for made_path, path in (
        ("etc/apt/apt.conf.d/90bakehouse", "etc/apt/apt.conf.d/99mmdebstrap"),
        ("etc/dpkg/dpkg.cfg.d/bakehouse", "etc/dpkg/dpkg.cfg.d/99mmdebstrap"),
    ):
        assert made[made_path] == expected[path]
    assert sorted(made["etc/shells"][-1].splitlines()) == sorted(expected["etc/shells"][-1].splitlines())  # type: ignore[attr-defined]


def entries(stream: IO[bytes]) -> dict[str, Entry]:
    """Return the attributes of all entries; times of directories and times after the build do not count."""
    result: dict[str, Entry] = {}
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for entry in archive:
            path = path_of(entry.name).removeprefix(".")
            if entry.islnk():
                result[path] = result[path_of(entry.linkname)]
                continue
            file = archive.extractfile(entry) if entry.isreg() else None
            data = file.read() if file else b""
            content = data if path == "etc/shells" else hashlib.sha256(data).hexdigest()
            time = 0 if entry.isdir() else min(int(entry.mtime), EPOCH)
            link = entry.linkname if entry.issym() else ""
            result[path] = (entry.type, entry.mode, entry.uid, entry.gid, time, link, content)
    return result


def mmdebstrap(base: BootstrappedBase, directory: Path) -> bytes:
    """Return the archive of a root file system with the packages of a base."""
    repository = directory / "packages"
    feeds.get(base.debs, repository)
    stanzas = []
    for deb in base.debs:
        fields = "".join(f"{name}: {text}\n" for name, text in DebFile(repository / deb.file).fields.items())
        stanzas.append(f"{fields}Filename: ./{deb.file}\nSize: {deb.bytes}\nSHA256: {deb.sha256}\n")
    packages = "\n".join(stanzas).encode()
    (repository / "Packages").write_bytes(packages)
    architecture = architecture_of(base.platform)
    listed = f" {hashlib.sha256(packages).hexdigest()} {len(packages)} Packages\n"
    suite = f"Suite: {base.suite}\nCodename: {base.suite}\nArchitectures: {architecture}\n"
    (repository / "Release").write_text(f"{suite}SHA256:\n{listed}")
    removed = " ".join(f'"$1"/{pattern}' for pattern in REMOVED)
    command = [
        "mmdebstrap",
        "--quiet",
        "--variant=essential",
        f"--architectures={architecture}",
        f"--include={','.join(deb.name for deb in base.debs)}",
        *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in EXCLUDED),
        "--dpkgopt=path-include=/usr/share/doc/*/copyright",
        "--dpkgopt=force-unsafe-io",
        '--aptopt=APT::Install-Recommends "false"',
        '--aptopt=Acquire::Languages "none"',
        f"--customize-hook=rm -rf {removed}",
        base.suite,
        "-",
        f"deb [trusted=yes] copy:{repository} ./",
    ]
    environment = {
        "PATH": os.environ["PATH"],
        "SOURCE_DATE_EPOCH": str(EPOCH),
        "LC_ALL": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": str(directory),
    }
    return subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout
