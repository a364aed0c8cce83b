"""A registry in a container of the local registry's image, or of another one."""

import contextlib
import io
import json
import os
import tarfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from bakehouse.catalog.project import HOME, find
from bakehouse.engine import daemon_info
from bakehouse.fetch.project_fetcher import open_fetcher
from bakehouse.fetch.required_files import debs
from bakehouse.registry import registry_image as local_image
from bakehouse.registry.destination import local_registry
from bakehouse.registry.local_registry import EmbeddedRegistry
from bakehouse.util.oci import PLATFORM

# Read by testcontainers when it is imported.
os.environ["TESTCONTAINERS_RYUK_DISABLED"] = "true"

LABEL, OWNER = "bakehouse-testing", str(os.getpid())
"""Name and owner of containers and images of these tests."""
PASSWORD = "only-the-front-knows"
_HTPASSWD = "AWS:$2b$04$Zk7yOhcu1xuxI2w2RXcC.e8gosUaWSGdAUcSgdtzX/oi/LHfLZ20q\n"
"""bcrypt of the password above."""


def registry_image() -> str:
    """The image of the local registry."""
    return local_image.ensure(find(HOME), daemon_info.inspect().platform, print)


def registry_at(directory: Path, port: int) -> EmbeddedRegistry:
    """The local registry of a user whose state is in a directory, not started."""
    project = replace(find(HOME), user_state=directory, registry_port=port)
    return local_registry(project, print)


def registry_program(directory: Path) -> list[str]:
    """The program of that image, for tests that need a process of this machine; unpacked into a directory."""
    packages = debs(local_image.locked(PLATFORM))
    with open_fetcher(find(HOME), print) as fetcher:
        layer = local_image.make_layer([fetcher.get(file) for file in packages])
    with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
        archive.extractall(directory, filter="tar")
    libraries = directory / "lib/x86_64-linux-gnu"
    loader = libraries / "ld-linux-x86-64.so.2"
    return [str(loader), "--library-path", str(libraries), str(directory / "usr/bin/docker-registry")]


@contextlib.contextmanager
def registry_container(image: str, *, locked: bool = False, disk: str = "") -> Iterator[int]:
    """A registry on a free port of 127.0.0.1, until the block ends.

    `locked` lets in `AWS` with PASSWORD alone; `disk` are the options of a small tmpfs that it stores on.
    """
    from testcontainers.core.container import DockerContainer

    document: dict[str, Any] = {
        "version": "0.1",
        "log": {"level": "error", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": "/var/lib/registry"}, "delete": {"enabled": True}},
        # A proxy in front of it has its own address.
        "http": {"addr": ":5000", "draintimeout": "1s", "relativeurls": True},
    }
    if locked:
        document["auth"] = {"htpasswd": {"realm": "test", "path": "/etc/docker/registry/htpasswd"}}
    container = (
        DockerContainer(image)
        .with_exposed_ports(5000)
        .with_kwargs(labels={LABEL: OWNER})
        .with_copy_into_container(json.dumps(document).encode(), "/etc/docker/registry/config.yml")
        .with_copy_into_container(_HTPASSWD.encode(), "/etc/docker/registry/htpasswd")
    )
    if disk:
        container.with_tmpfs_mount("/var/lib/registry", disk)
    with container:
        port = int(container.get_exposed_port(5000))
        _until_it_answers(f"http://127.0.0.1:{port}/v2/")
        yield port


def _until_it_answers(url: str) -> None:
    for _ in range(100):
        with contextlib.suppress(OSError):
            try:
                urlopen(url, timeout=2).close()
            except OSError as error:
                if getattr(error, "code", None) == 401:
                    return
                raise
            return
        time.sleep(0.05)
    message = f"{url} does not answer"
    raise TimeoutError(message)
