"""Journey of a small image through an engine that may be elsewhere: build, registry, pull."""

import contextlib
import subprocess
from pathlib import Path

import pytest

from tests.integration import projects, tiny_images
from tests.integration.ports import kept_port
from tests.integration.remote_project import CONTENT, FILE, RemoteProject
from tests.support import programs
from tests.support.registry import registry_at


def build_with_sent_files(endpoint: str, directory: Path) -> None:
    """Build an image whose step gets a file with the build, and check the file in it."""
    base = projects.base()
    with subprocess.Popen(["docker", "save", base], stdout=subprocess.PIPE) as saved:
        subprocess.run(["docker", "--host", endpoint, "load"], stdin=saved.stdout, check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", endpoint)
        with contextlib.closing(RemoteProject(directory, ["elsewhere"])) as project:
            [built] = project.build(sends_files=True)
            command = ["run", "--rm", "--network=none", built.image.reference, "cat", f"/opt/{FILE.file}"]
            assert programs.docker(*command) == CONTENT.decode()


def publish_and_pull(endpoint: str, directory: Path) -> None:
    """Push an image to the local registry from this host, and let the engine pull it by the same name."""
    with pytest.MonkeyPatch.context() as patch, kept_port() as port:
        patch.setenv("DOCKER_HOST", endpoint)
        with registry_at(directory, port) as registry:
            assert registry.status().directory is None
            with tiny_images.built(directory, "tiny") as built:
                manifest = tiny_images.upload(built, registry, "elsewhere/tiny", "one", directory / "packed")
            uri = f"{registry.host}/elsewhere/tiny@{manifest.digest}"
            assert f"Digest: {manifest.digest}" in programs.docker("pull", uri)
        volume = f"bakehouse-registry-{port}"
        assert programs.docker("ps", "--all", "--quiet", "--filter", f"name={volume}") == ""
        programs.docker("volume", "rm", volume)
