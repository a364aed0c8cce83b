"""A bare Debian 12 is given its .venv and its engine, in a container that may start containers."""

import os
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bakehouse.catalog import project
from bakehouse.engine import daemon_info
from bakehouse.engine.daemon_info import Daemon
from bakehouse.fetch.debian_mirrors import debian_mirrors
from bakehouse.util import tempdir
from tests.integration import projects

ROOT = Path(__file__).parents[2]
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
WAYS = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "PIP_INDEX_URL", "PIP_DEFAULT_TIMEOUT")
"""Settings for an index of Python packages; a machine in a container needs them too."""
ENSURE = """
import sys
from bakehouse.engine import daemon_info, provision
daemon = provision.ensure(provision.ask_or_agree, print)
daemon_info.require(daemon, *daemon_info.Feature)
print(daemon.version, daemon.buildx)
"""


def can_run() -> bool:
    daemon = daemon_info.probe()
    return os.geteuid() == 0 and isinstance(daemon, Daemon) and not daemon_info.missing_features(daemon)


pytestmark = [
    pytest.mark.engine,
    # Each run of CI gets its .venv and its engine in the same way.
    pytest.mark.release,
    pytest.mark.skipif(not can_run(), reason="needs root and an engine"),
]


class BareMachine:
    """A machine with Debian's base system, Python, and a clone of this repository."""

    def __init__(self, container: str) -> None:
        self.container = container

    def run(self, script: str) -> str:
        """Return the output of the script, with its error output."""
        result = subprocess.run(
            ["docker", "exec", self.container, "bash", "-ec", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
        )
        assert result.returncode == 0, result.stdout
        return result.stdout

    def python(self, program: str) -> str:
        return self.run(f"cd /; /clone/.venv/bin/python - <<'END'\n{program}\nEND")


@pytest.fixture(scope="module")
def bare_machine() -> Iterator[BareMachine]:
    bundle = os.environ.get("SSL_CERT_FILE") or ssl.get_default_verify_paths().openssl_cafile
    started = subprocess.run(
        [
            *(
                "docker",
                "run",
                "--detach",
                "--rm",
                "--privileged",
                "--label",
                f"bakehouse={tempdir.run_id()}",
            ),
            *("--volume", "/var/lib/docker", "--volume", "/var/lib/containerd"),
            *("--volume", f"{ROOT}:/repository:ro", "--volume", f"{bundle}:{CERTIFICATES}:ro"),
            *("--env", f"PIP_CERT={CERTIFICATES}"),
            *(word for name in WAYS if name in os.environ for word in ("--env", name)),
            *(projects.base(), "sleep", "infinity"),
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    machine = BareMachine(started.stdout.strip())
    try:
        sources = debian_mirrors(project.find(ROOT)).for_suite("bookworm")
        machine.run(
            "cat > /etc/apt/sources.list <<'END'\n"
            + "".join(f"{source.line}\n" for source in sources)
            + "END"
        )
        machine.run("apt-get update && apt-get install -y python3-venv")
        left_out = " ".join(f"--exclude=./{name}" for name in (".venv", ".git", "build"))
        machine.run(f"mkdir /clone && tar -c -C /repository {left_out} . | tar -x -C /clone")
        yield machine
    finally:
        subprocess.run(["docker", "rm", "--force", "--volumes", machine.container], capture_output=True)


def test_a_bare_machine_is_given_all_it_needs(bare_machine: BareMachine) -> None:
    output = bare_machine.run("cd /; /clone/bake --version")

    assert "bake: making .venv with Python 3.11" in output
    assert output.splitlines()[-1].startswith("bake ")

    output = bare_machine.python(ENSURE)

    assert [line for line in output.splitlines() if not line.startswith("still ")][:3] == [
        "no `docker` command on PATH, so Bakehouse cannot use a container engine; Bakehouse will run"
        " these steps:",
        "  - apt-get install docker.io docker-cli docker-buildx from Debian trixie, because the engine of"
        " this release is too old (same mirror; pinned, so that no other package is upgraded)",
        "  - start dockerd with the containerd image store and its data in /var/lib/docker",
    ]
    assert "0 upgraded" in bare_machine.run("grep upgraded /var/lib/bakehouse/apt.log | head -1")

    assert len(bare_machine.python(ENSURE).splitlines()) == 1

    bare_machine.run("kill -9 $(cat /var/run/docker.pid)")
    output = bare_machine.python(ENSURE)

    assert output.splitlines()[:2] == [
        "no container engine answers at `unix:///var/run/docker.sock`; Bakehouse will run these steps:",
        "  - start dockerd with the containerd image store and its data in /var/lib/docker",
    ]
