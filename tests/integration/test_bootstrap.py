"""Bases made by the engine: killed in the middle and made again, and on other engines the same."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bakehouse.builder import base_image
from bakehouse.engine import docker
from tests.integration.bases import base, own_reference
from tests.support import feeds
from tests.support.programs import started

pytestmark = pytest.mark.engine

MAKE = """\
import sys
from pathlib import Path
from bakehouse.builder.base_image import ensure_base
from bakehouse.engine.docker import connect
from tests.integration.bases import base
from tests.support import feeds
report = lambda text: print(text, flush=True)
own = base(reference=sys.argv[1])
ensure_base(own, engine=connect(), state=Path(sys.argv[2]), report=report, get=feeds.get)
"""


@pytest.fixture
def reference() -> Iterator[str]:
    with own_reference() as name:
        yield name


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
    assert [line for line in messages if not line.startswith("still ")][:2] == [
        f"base {reference}: unpacking 120 Debian packages",
        f"base {reference}: installing the packages in a build step",
    ]
    assert len([line for line in messages if line.endswith("; loading")]) == 1
    assert list((tmp_path / "private").iterdir()) == []
    check_image(reference)


def check_image(reference: str) -> None:
    inspected = subprocess.run(
        ["docker", "image", "inspect", reference], capture_output=True, check=True
    ).stdout
    (image,) = json.loads(inspected)
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


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of the base's packages that every user can read."""
    cache = tmp_path_factory.mktemp("cache")
    for parent in (cache, *cache.parents[:2]):
        parent.chmod(0o755)
    feeds.get(base().debs, cache)
    return cache


@pytest.mark.skipif(os.geteuid() != 0, reason="a second engine needs root")
@pytest.mark.parametrize(
    ("store", "clock", "user"),
    [
        pytest.param("overlay2", FakeClock(), 12345, id="overlay2-another-day-ordinary-user"),
        pytest.param("containerd", None, 0, id="containerd-root"),
    ],
)
def test_another_engine_user_and_day_give_the_same_digests(
    store: str, clock: FakeClock | None, user: int, files: Path
) -> None:
    environment = {"HOME": "/nonexistent", "TZ": "Asia/Tokyo", "LC_ALL": "C", "PATH": os.environ["PATH"]}
    with isolated_engine(store, print, clock) as paths, OrdinaryUser(user) as person:
        paths.state.parent.chmod(0o755)
        os.chown(paths.socket, user, user)
        program = MAKE_FROM.format(reference=projects.base(), files=files, umask=0o077)
        person.run(program, {**environment, "DOCKER_HOST": paths.endpoint})
        made = inspected(projects.base(), paths.endpoint)
    expected = inspected(projects.base())
    assert made["RootFS"] == expected["RootFS"]
    assert made["Config"]["Labels"] == expected["Config"]["Labels"]
    if store == "containerd":
        assert made["Id"] == expected["Id"], "the digest of the manifest"
