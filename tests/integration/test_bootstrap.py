"""A base made by the real mmdebstrap, killed in the middle and made again."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from bakehouse.builder import base_image
from bakehouse.engine import docker
from bakehouse.plan.model import BootstrappedBase
from tests.support import feeds
from tests.support.programs import started

pytestmark = pytest.mark.engine

MAKE = """\
import sys
from pathlib import Path
from bakehouse.builder.base_image import ensure_base
from bakehouse.engine.docker import connect
from bakehouse.plan.model import BootstrappedBase
from tests.support import feeds
base = BootstrappedBase(sys.argv[1], "bookworm", ())
report = lambda text: print(text, flush=True)
ensure_base(base, engine=connect(), state=Path(sys.argv[2]), report=report, get=feeds.get)
"""


@pytest.fixture
def reference() -> Iterator[str]:
    name = f"bakehouse/test-base:{uuid4().hex[:8]}"
    yield name
    subprocess.run(["docker", "image", "rm", name], capture_output=True, check=False)


def test_a_killed_making_leaves_nothing_and_the_next_one_makes_a_clean_base(
    reference: str, tmp_path: Path
) -> None:
    with started(
        [sys.executable, "-c", MAKE, reference, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout
        begun = any("extracting archives" in line for line in run.stdout)
        run.kill()
    assert begun
    deadline = time.monotonic() + 30
    while (left := mentioning(str(tmp_path))) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert left == []
    assert str(tmp_path) not in Path("/proc/self/mounts").read_text()

    base = BootstrappedBase(reference, "bookworm", ())
    messages: list[str] = []
    with contextlib.closing(docker.connect()) as engine:
        assert engine.image(reference) is None
        base_image.ensure_base(base, engine=engine, state=tmp_path, report=messages.append, get=feeds.get)
        count = len(messages)
        base_image.ensure_base(base, engine=engine, state=tmp_path, report=messages.append, get=feeds.get)
    assert count > 5
    assert len(messages) == count
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
    grep -c ^deb /etc/apt/sources.list
    ls /etc/apt/apt.conf.d /etc/apt/sources.list.d
    find /var/lib/apt/lists /var/log /usr/share/man -type f -size +0
    find / -xdev -newermt "2026-01-01 00:00:01" -type f ! -path "/etc/host*" ! -name resolv.conf \\
        ! -name .dockerenv
    """
    shell = ["docker", "run", "--rm", "--network=none", reference, "sh", "-c", command]
    assert subprocess.run(shell, capture_output=True, text=True).stdout == (
        "VERSION_CODENAME=bookworm\n3\n"
        "/etc/apt/apt.conf.d:\n01autoremove\n70debconf\n99mmdebstrap\n\n/etc/apt/sources.list.d:\n"
    )


def mentioning(text: str) -> list[str]:
    """The command lines of other living processes that have a text in them."""
    commands = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        if path.parent.name != str(os.getpid()):
            with contextlib.suppress(OSError):
                commands.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [line for line in commands if text in line]
