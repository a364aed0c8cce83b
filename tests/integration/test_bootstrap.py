"""Bases made by the engine: killed in the middle and made again, and on other engines the same."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bakehouse.builder import base_image
from bakehouse.builder.remote_builders import RemoteBuilders
from bakehouse.engine import docker
from bakehouse.engine.daemon_paths import CONTAINERD
from bakehouse.errors import BuildError
from bakehouse.maintain.isolated_engine import isolated_engine
from tests.integration import projects
from tests.integration.bases import base, own_reference
from tests.integration.foreign_host import FEDORA, foreign_host
from tests.integration.remote_builder import remote_builder
from tests.support import feeds
from tests.support.data import text_of
from tests.support.programs import started

pytestmark = pytest.mark.engine

MAKE = text_of(__file__, "make")


MAKE_FROM_FILES = text_of(__file__, "make_from_files")
"""The same from files in a directory, and with another umask."""


@pytest.fixture
def reference() -> Iterator[str]:
    with own_reference() as name:
        yield name


@pytest.mark.release
def test_a_killed_making_leaves_nothing_and_the_next_one_makes_a_clean_base(
    reference: str, tmp_path: Path
) -> None:
    with started(
        [sys.executable, "-c", MAKE, reference, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout
        begun = any("installing the packages in a build step" in line for line in run.stdout)
        run.kill()
    assert begun
    deadline = time.monotonic() + 30
    while (left := mentioning(str(tmp_path))) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert left == []

    messages: list[str] = []
    with contextlib.closing(docker.connect()) as engine:
        assert engine.image(reference) is None
        for _ in range(2):
            base_image.ensure_base(
                base(reference=reference),
                engine=engine,
                state=tmp_path,
                report=messages.append,
                get=feeds.get,
            )
    [line] = [line for line in messages if not line.startswith("still ")]
    assert line.startswith(f"base {reference}: made in ")
    assert list((tmp_path / "private").iterdir()) == []
    check_image(reference)


def test_the_base_of_images_is_clean() -> None:
    check_image(projects.base())


def check_image(reference: str) -> None:
    image = inspected(reference)
    assert (image["Os"], image["Architecture"], image["Created"]) == (
        "linux",
        "amd64",
        "2026-01-01T00:00:00Z",
    )
    assert image["Config"]["Labels"] == {"org.bakehouse.base": reference}
    command = """
    grep CODENAME /etc/os-release
    cat /etc/apt/sources.list
    ls /etc/apt/apt.conf.d /etc/dpkg/dpkg.cfg.d
    dpkg --audit
    dpkg-query --show --showformat '${db:Status-Status}\\n' | sort | uniq -c
    find /var/lib/apt/lists /var/log /usr/share/man -type f -size +0
    find / -xdev -newermt "2026-01-01 00:00:01" -type f ! -path "/etc/host*" ! -name resolv.conf \\
        ! -name .dockerenv
    """
    shell = ["docker", "run", "--rm", "--network=none", reference, "sh", "-c", command]
    assert subprocess.run(shell, capture_output=True, text=True).stdout == (
        "VERSION_CODENAME=bookworm\n"
        "# The packages of this image are locked by sha256. To install others, name a mirror here.\n"
        "/etc/apt/apt.conf.d:\n01autoremove\n70debconf\n90bakehouse\n\n"
        "/etc/dpkg/dpkg.cfg.d:\nbakehouse\n"
        "    120 installed\n"
    )


def mentioning(text: str) -> list[str]:
    """The command lines of other living processes that have a text in them."""
    commands = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        if path.parent.name != str(os.getpid()):
            with contextlib.suppress(OSError):
                commands.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [line for line in commands if text in line]


# `test_apt_locking` makes a base on this engine each day.
@pytest.mark.release
@pytest.mark.skipif(os.geteuid() != 0, reason="a second engine needs root")
@pytest.mark.parametrize(
    ("store", "user"),
    [
        pytest.param("overlay2", 12345, id="overlay2, ordinary user"),
        pytest.param("containerd", 0, id="containerd, root"),
    ],
)
def test_other_engines_hosts_and_users_give_the_same_digest(store: str, user: int) -> None:
    reference = projects.base()
    with isolated_engine(store, print) as engine, foreign_host(FEDORA, user=user) as host:
        engine.state.parent.chmod(0o755)
        os.chown(engine.socket, user, user)
        feeds.get(base().debs, host.directory / "packages")
        environment = {"DOCKER_HOST": engine.endpoint, "TZ": "Asia/Tokyo", "LC_ALL": "C"}
        host.python(MAKE_FROM_FILES, reference, environment=environment)
        made = inspected(reference, "--host", engine.endpoint)
    expected = inspected(reference)
    assert made["RootFS"] == expected["RootFS"]
    assert made["Config"]["Labels"] == expected["Config"]["Labels"]
    if store == CONTAINERD:
        assert made["Id"] == expected["Id"], "the digest of the manifest"


@pytest.mark.release
@pytest.mark.skipif(os.geteuid() != 0, reason="a second engine needs root")
def test_a_remote_builder_gives_the_same_digest(
    reference: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = inspected(projects.base())
    with remote_builder(tmp_path) as far, contextlib.closing(docker.connect()) as engine:
        for name, value in far.environment.items():
            monkeypatch.setenv(name, value)
        base_image.ensure_base(
            base(reference=reference),
            engine=engine,
            state=tmp_path,
            report=print,
            get=feeds.get,
            builders=RemoteBuilders((far.name,), print),
        )
        command = ["docker", "buildx", "du", "--builder", far.name]
        assert (
            "apt-get check" in subprocess.run([*command, "--verbose"], capture_output=True, text=True).stdout
        )
    assert inspected(reference)["RootFS"] == expected["RootFS"]


@pytest.mark.release
def test_a_missing_dependency_makes_no_base(reference: str, tmp_path: Path) -> None:
    whole = base(reference=reference)
    part = replace(whole, debs=tuple(deb for deb in whole.debs if deb.name != "media-types"))
    with contextlib.closing(docker.connect()) as engine:
        with pytest.raises(BuildError) as caught:
            base_image.ensure_base(part, engine=engine, state=tmp_path, report=print, get=feeds.get)
        assert engine.image(reference) is None
    [diagnostic] = caught.value.diagnostics
    assert diagnostic.message == (
        f"base `{reference}` could not be made: stage `base` failed with exit code 100"
    )
    log = (tmp_path / "logs/bookworm-base.log").read_text()
    assert "Depends: media-types but it is not installable" in log


def inspected(reference: str, *options: str) -> dict[str, Any]:
    command = ["docker", *options, "image", "inspect", reference]
    [image] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return dict(image)
