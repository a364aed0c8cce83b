"""Image of the local registry: Debian's `docker-registry`, the shell of its relay, and their libraries.

The packages are locked with those of Bakehouse's own images. The image contains only some of their files
and the registry's configuration. It has no base, and no script of a package runs.
"""

import hashlib
import io
import json
import re
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from bakehouse.catalog.apt_lock import Deb, apt_locks, lock_name
from bakehouse.catalog.project import HOME, ProjectSettings
from bakehouse.engine import daemon_info, image_load
from bakehouse.engine.image_load import add_entry
from bakehouse.errors import BuildError, PublishError, Reason
from bakehouse.fetch.downloader import MissingError
from bakehouse.fetch.project_fetcher import open_fetcher
from bakehouse.fetch.required_files import debs
from bakehouse.registry.registry_keeper import PORT_INSIDE
from bakehouse.util.deb import open_files
from bakehouse.util.oci import EPOCH, architecture_of
from bakehouse.util.terminal import Reporter

SUITE = "bookworm"
PACKAGES = ("docker-registry", "bash", "coreutils", "libc6", "libtinfo6")
DATA = "/var/lib/registry"
_CREATED = "2026-01-01T00:00:00Z"
_KEPT = re.compile(
    r"usr/bin/docker-registry|bin/(?:bash|cat)|(?:lib|lib64|usr/lib|usr/lib64)/.+|usr/share/doc/[^/]+/copyright"
)
_CONFIGURATION = {
    "version": "0.1",
    "log": {"level": "warn", "accesslog": {"disabled": True}},
    "storage": {"filesystem": {"rootdirectory": DATA}, "delete": {"enabled": True}},
    # With this time, the registry handles SIGTERM, as the first process of a container has to.
    "http": {"addr": f":{PORT_INSIDE}", "draintimeout": "2s"},
}
_CONFIGURATION_FILE = "etc/docker/registry/config.yml"
# JSON is valid YAML.
_FILES = {_CONFIGURATION_FILE: json.dumps(_CONFIGURATION, indent=2, sort_keys=True).encode() + b"\n"}
_COMMAND = ["/usr/bin/docker-registry", "serve", f"/{_CONFIGURATION_FILE}"]


def ensure(project: ProjectSettings, platform: str, report: Reporter) -> str:
    """Return the reference of the image in the engine; make the image if the engine lacks it."""
    packages = locked(platform)
    reference = reference_of(packages)
    if daemon_info.docker("image", "inspect", reference).code == 0:
        return reference
    report(f"making the image {reference} of the local registry")
    with open_fetcher(project, report) as fetcher:
        try:
            paths = [fetcher.get(file) for file in debs(packages)]
        except MissingError as error:
            raise PublishError(
                "the image of the local registry cannot be made",
                reasons=tuple(Reason(f"{source}: {reason}") for source, reason in error.failures),
                hint="set `registry` in [tool.bakehouse] to a registry, or make a mirror of Debian reachable",
            ) from error
        layer = make_layer(paths)
    _load(reference, layer, platform)
    return reference


def reference_of(packages: Iterable[Deb]) -> str:
    """Return the name of the image of these packages."""
    content = "".join(deb.sha256 for deb in packages).encode() + b"".join(_FILES.values())
    key = hashlib.sha256(content + _KEPT.pattern.encode()).hexdigest()
    return f"bakehouse-registry:{key[:8]}"


def locked(platform: str) -> tuple[Deb, ...]:
    """Return the locked packages for a platform. Raises PublishError if they are not locked for it."""
    name = lock_name(SUITE, platform)
    locks = apt_locks([HOME / "recipes"])
    packages = {deb.name: deb for deb in locks[name].debs} if name in locks else {}
    try:
        return tuple(packages[package] for package in PACKAGES)
    except KeyError as error:
        raise PublishError(
            f"the local registry cannot run on an engine of {platform}",
            reasons=(Reason(f"{error.args[0]} is not locked for Debian {name}"),),
            hint="set `registry` in [tool.bakehouse] to a registry",
        ) from error


def make_layer(packages: Iterable[Path]) -> bytes:
    """Return the layer with programs, libraries and licences of packages; equal files give equal bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as layer:
        entry = tarfile.TarInfo(DATA.strip("/"))
        entry.type, entry.mode, entry.mtime = tarfile.DIRTYPE, 0o755, EPOCH
        layer.addfile(entry)
        for name, content in _FILES.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(content), 0o644, EPOCH
            layer.addfile(entry, io.BytesIO(content))
        for path in packages:
            with path.open("rb") as file, open_files(file) as archive:
                for member, file_content in _kept(archive):
                    layer.addfile(member, file_content)
    return buffer.getvalue()


def _kept(archive: tarfile.TarFile) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    for member in archive:
        name = member.name.removeprefix("./")
        if _KEPT.fullmatch(name) and (member.isfile() or member.issym()):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = member.type, member.linkname
            entry.size, entry.mode, entry.mtime = member.size, member.mode, EPOCH
            yield entry, archive.extractfile(member) if member.isfile() else None


def _load(reference: str, layer: bytes, platform: str) -> None:
    config = json.dumps(
        {
            "architecture": architecture_of(platform),
            "os": "linux",
            "created": _CREATED,
            "config": {"Cmd": _COMMAND, "Labels": {"org.bakehouse.registry": reference}},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
            "history": [{"created": _CREATED, "created_by": f"Debian {SUITE}: {' '.join(PACKAGES)}"}],
        },
        sort_keys=True,
    ).encode()
    name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = json.dumps([{"Config": name, "RepoTags": [reference], "Layers": ["layer.tar"]}]).encode()

    def write(archive: tarfile.TarFile) -> None:
        for file, content in (("manifest.json", manifest), (name, config), ("layer.tar", layer)):
            add_entry(archive, file, io.BytesIO(content), len(content))

    try:
        image_load.load(write, "the engine could not load the image of the local registry")
    except BuildError as error:
        raise PublishError.of(*error.diagnostics) from error
