"""A registry in a container, from its own image or from one made of this machine's docker-registry."""

import contextlib
import io
import json
import os
import re
import secrets
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterator
from typing import Any
from urllib.request import urlopen

import pytest

# Read by testcontainers when it is imported.
os.environ["TESTCONTAINERS_RYUK_DISABLED"] = "true"

LABEL, OWNER = "bakehouse-testing", str(os.getpid())
"""Name and owner of containers and images of these tests."""
PASSWORD = "only-the-front-knows"
_HTPASSWD = "AWS:$2b$04$Zk7yOhcu1xuxI2w2RXcC.e8gosUaWSGdAUcSgdtzX/oi/LHfLZ20q\n"
"""bcrypt of the password above."""


@contextlib.contextmanager
def registry_image() -> Iterator[str]:
    """An image of the machine's own docker-registry and nothing else, laid out as the `registry` image is."""
    program = shutil.which("docker-registry")
    if program is None:
        pytest.skip("needs Debian's docker-registry on PATH")
    linked = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", dereference=True) as archive:
        archive.add(program, arcname="bin/registry")
        for library in re.findall(r"(/\S+)", linked):
            archive.add(library, arcname=library.lstrip("/"))
        for directory in ("tmp", "var/lib/registry", "etc/docker/registry"):
            entry = tarfile.TarInfo(directory)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o777
            archive.addfile(entry)
    # Of its own: one process may have several at once, and each is removed when it is done with.
    name, tag = "bakehouse/test-registry", f"{os.getpid()}-{secrets.token_hex(4)}"
    changes = ['ENTRYPOINT ["/bin/registry", "serve"]', 'CMD ["/etc/docker/registry/config.yml"]']
    import docker
    import docker.errors

    with contextlib.closing(docker.from_env()) as client:
        changes.append(f"LABEL {LABEL}={OWNER}")
        client.api.import_image_from_data(buffer.getvalue(), repository=name, tag=tag, changes=changes)
        try:
            yield f"{name}:{tag}"
        finally:
            # Another cleanup on this machine may have removed it.
            with contextlib.suppress(docker.errors.ImageNotFound):
                client.api.remove_image(f"{name}:{tag}", force=True)


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
